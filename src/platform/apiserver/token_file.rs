//! The token of a kubeconfig's `tokenFile`: requests read it again, so that they have the rotated one.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::access::{AccessError, read_token};
use super::request::SharedToken;
use crate::platform::rpc::Signal;
use crate::platform::rt::{self, Task};
use crate::types::error::ErrorChain;

/// A token file, for all connections of a client.
pub(super) struct TokenFile {
    path: PathBuf,
    /// The last token that could be read.
    token: SharedToken,
    read_at: Cell<Instant>,
    /// The last attempt to read the file, which may hang.
    reading: RefCell<Option<Task<()>>>,
    /// Notified when the attempt has ended.
    ended: Signal,
    has_failed: Cell<bool>,
}

/// In client-go a token expires a minute after it was read, and is replaced ten seconds before.
const TOKEN_READ_INTERVAL: Duration = Duration::from_secs(50);
/// How long a request waits for the file before it has the last token.
const TOKEN_READ_TIMEOUT: Duration = Duration::from_secs(1);

impl TokenFile {
    /// A token that was just read.
    pub(super) fn new(path: &Path, token: Option<String>) -> Rc<Self> {
        Rc::new(Self {
            path: path.to_owned(),
            token: SharedToken::new(token.into()),
            read_at: Cell::new(rt::now()),
            reading: RefCell::default(),
            ended: Signal::default(),
            has_failed: Cell::default(),
        })
    }

    pub(super) fn is_at(&self, path: &Path) -> bool {
        self.path == path
    }

    pub(super) fn token(&self) -> SharedToken {
        Rc::clone(&self.token)
    }

    /// Reads the file again if that is due. A file that hangs is read by one thread at most, and delays one request.
    pub(super) async fn refresh(self: &Rc<Self>) {
        let hangs = self.reading.borrow().as_ref().is_some_and(|reading| !reading.is_finished());
        if hangs || rt::elapsed(self.read_at.get()) < TOKEN_READ_INTERVAL {
            return;
        }
        let (file, path, before) = (Rc::downgrade(self), self.path.clone(), self.ended.changes());
        let reading = rt::spawn(async move {
            let result = rt::slow(move || read_token(&path)).await;
            if let Some(file) = file.upgrade() {
                file.take(result);
            }
        });
        self.reading.replace(Some(reading));
        if rt::deadline(TOKEN_READ_TIMEOUT, self.ended.beyond(before)).await.is_err() {
            self.warn(&AccessError::Read { path: self.path.clone(), cause: io::ErrorKind::TimedOut.into() });
        }
    }

    fn take(&self, result: Result<String, AccessError>) {
        match result {
            Ok(token) => self.set(Some(token)),
            Err(error) => self.warn(&error),
        }
        self.ended.notify();
    }

    /// Sets the token that was just read.
    pub(super) fn set(&self, token: Option<String>) {
        self.token.replace(token);
        self.read_at.set(rt::now());
        self.has_failed.set(false);
    }

    /// Logs a failure once; the next request tries again.
    fn warn(&self, error: &AccessError) {
        if !self.has_failed.replace(true) {
            log!(warn, "failed to read token file, using the last token", error = ErrorChain(error));
        }
    }
}
