//! The server: a Unix socket, and the handler of its calls.

use std::cell::Cell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use super::handler::Handler;
use super::serve::Connection;
use super::server_limits::ServerLimits;
use crate::platform::rt::{self, Task, UnixListener, UnixStream};
use crate::types::time::Backoff;

/// A listening socket.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    limits: ServerLimits,
}

impl Server {
    /// Fails if the path exists: the caller must remove a stale socket.
    pub fn bind(path: &Path) -> io::Result<Self> {
        Ok(Self { listener: UnixListener::bind(path)?, limits: ServerLimits::default() })
    }

    /// Binds after `prepare`, which runs on the blocking pool, has removed a stale socket. Retries until both succeed.
    pub(crate) async fn bind_prepared(
        path: &Path,
        prepare: impl Fn() -> io::Result<()> + Clone + Send + 'static,
    ) -> Self {
        let mut backoff = Backoff::new(FIRST_ACCEPT_RETRY_DELAY, MAX_ACCEPT_RETRY);
        loop {
            match rt::blocking(prepare.clone()).await.and_then(|()| Self::bind(path)) {
                Ok(server) => return server,
                Err(error) => log!(error, "failed to bind socket", socket = path.display(), error = error),
            }
            rt::sleep(backoff.next_wait()).await;
        }
    }

    pub fn with_limits(self, limits: ServerLimits) -> Self {
        Self { limits, ..self }
    }

    /// Accepts the next connection, for [`serve_connection`](super::serve_connection) or any other use.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }

    /// Serves all clients until the future is dropped.
    pub async fn serve(&self, handler: Handler) -> Infallible {
        serve_accepted(async || self.accept().await, self.limits, handler).await
    }
}

/// Serves the connections that `accept` returns. At the limit, a new client displaces the oldest one without a running
/// handler, or is refused if there is none.
pub(super) async fn serve_accepted(
    mut accept: impl AsyncFnMut() -> io::Result<UnixStream>,
    limits: ServerLimits,
    handler: Handler,
) -> Infallible {
    let mut open: VecDeque<OpenConnection> = VecDeque::new();
    loop {
        let stream = match accept().await {
            Ok(stream) => stream,
            Err(error) => {
                // The process may be out of file descriptors for a while.
                log!(error, "failed to accept connection", error = error);
                rt::sleep(MIN_ACCEPT_RETRY).await;
                continue;
            }
        };
        open.retain(|open| !open.task.is_finished());
        if open.len() >= limits.connections {
            let Some(idle) = open.iter().position(|open| !open.is_busy.get()) else { continue };
            open.remove(idle);
        }
        let connection = Connection::new(stream, Rc::clone(&handler), limits);
        let is_busy = connection.is_busy();
        let task = rt::spawn(async move {
            // An error concerns only this client, which is gone.
            let _ = connection.serve().await;
        });
        open.push_back(OpenConnection { is_busy, task });
    }
}

/// A connection being served.
struct OpenConnection {
    /// Whether a handler is running for it.
    is_busy: Rc<Cell<bool>>,
    task: Task<()>,
}

const MIN_ACCEPT_RETRY: Duration = Duration::from_secs(1);
const FIRST_ACCEPT_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_ACCEPT_RETRY: Duration = Duration::from_secs(60);
