//! The Unix socket for the command line: owned by one process, usable only by root.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{error, fmt};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;

use crate::platform::rt::{UnixListener, UnixStream};

/// The socket, and the lock that proves its ownership. The kernel releases both when the process ends.
#[derive(Debug)]
pub(super) struct LocalSocket {
    pub(super) listener: UnixListener,
    path: PathBuf,
    _lock: Flock<File>,
}

impl LocalSocket {
    /// Binds the socket. Replaces a stale one.
    pub(super) fn bind(path: &Path) -> Result<Self, LocalError> {
        let failed = |doing| move |source| LocalError::Io { doing, path: path.to_owned(), source };
        if let Some(dir) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed("create the directory of"))?;
        }
        let lock = lock(path)?;
        match fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => fs::remove_file(path).map_err(failed("replace"))?,
            Ok(_) => return Err(failed("replace")(io::Error::other("it is no socket"))),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed("open")(error)),
        }
        let listener = UnixListener::bind(path).map_err(failed("open"))?;
        // Until here the mode depends on the umask. A client that connects meanwhile is rejected by `trusted_peer`.
        fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed("protect"))?;
        Ok(Self { listener, path: path.to_owned(), _lock: lock })
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        // The lock is still held, so the socket belongs to this process.
        let _ = fs::remove_file(&self.path);
    }
}

/// Takes the lock file beside the socket. The kernel releases the lock when its process ends, so it is never stale.
fn lock(path: &Path) -> Result<Flock<File>, LocalError> {
    let mut lock_path = path.as_os_str().to_owned();
    lock_path.push(".lock");
    let failed = |source| LocalError::Io { doing: "lock", path: PathBuf::from(&lock_path), source };
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&lock_path);
    Flock::lock(file.map_err(failed)?, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
        nix::Error::EWOULDBLOCK => LocalError::AlreadyRunning { path: path.to_owned() },
        error => failed(error.into()),
    })
}

/// The id of the peer process, if it belongs to root, or to the user of this process.
pub(super) fn trusted_peer(stream: &UnixStream) -> Option<i32> {
    let peer = getsockopt(stream, PeerCredentials).ok()?;
    (peer.uid() == 0 || peer.uid() == geteuid().as_raw()).then(|| peer.pid())
}

/// Why the local socket could not be bound.
#[derive(Debug)]
pub(crate) enum LocalError {
    /// Another process serves this socket.
    AlreadyRunning {
        path: PathBuf,
    },
    Io {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

impl fmt::Display for LocalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyRunning { path } => write!(f, "coracle is already running: it holds {}", path.display()),
            Self::Io { doing, path, .. } => write!(f, "{doing} {}", path.display()),
        }
    }
}

impl error::Error for LocalError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::AlreadyRunning { .. } => None,
            Self::Io { source, .. } => Some(source),
        }
    }
}
