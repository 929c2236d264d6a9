//! The Unix socket for the command line: owned by one process, usable by root. Members of a group may read.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::{error, fmt};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::{Gid, geteuid};

use crate::platform::rt::{UnixListener, UnixStream};

/// The socket, and the lock that proves its ownership. The kernel releases both when the process ends.
#[derive(Debug)]
pub(super) struct LocalSocket {
    pub(super) listener: UnixListener,
    path: PathBuf,
    /// Whose members may read.
    readers: Option<Gid>,
    _lock: Flock<File>,
}

/// Members of this group may read over the local socket, if it exists when the agent starts.
pub(super) const READERS_GROUP: &str = "coracle";

/// The group id of [`READERS_GROUP`], from /etc/group: a static program has no other name service.
pub(crate) fn readers_group() -> Option<Gid> {
    group_id(&fs::read_to_string("/etc/group").ok()?, READERS_GROUP)
}

fn group_id(groups: &str, name: &str) -> Option<Gid> {
    let fields = groups.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Some(Gid::from_raw(fields?.split(':').nth(1)?.parse().ok()?))
}

impl LocalSocket {
    /// Binds the socket. Replaces a stale one. Its directory is opened to the members of `readers`.
    pub(super) fn bind(path: &Path, readers: Option<Gid>) -> Result<Self, LocalError> {
        let failed = |doing| move |source| LocalError::Io { doing, path: path.to_owned(), source };
        if let Some(dir) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed("create the directory of"))?;
        }
        let lock = lock(path)?;
        match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.file_type().is_socket() => fs::remove_file(path).map_err(failed("replace"))?,
            Ok(_) => return Err(failed("replace")(io::Error::other("it is no socket"))),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed("open")(error)),
        }
        let listener = UnixListener::bind(path).map_err(failed("open"))?;
        // Until here the mode depends on the umask. A client that connects meanwhile is rejected by `peer`; with a
        // group of readers it may read, if the umask lets everybody write (that of the unit lets nobody).
        fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed("protect"))?;
        if let Some(readers) = readers {
            let open_to = |path: &Path, mode| {
                chown(path, None, Some(readers.as_raw()))?;
                fs::set_permissions(path, Permissions::from_mode(mode))
            };
            open_to(path, 0o660).map_err(failed("protect"))?;
            // A directory of others, such as /run, is open already.
            if let Some(dir) = path.parent().filter(|dir| is_private(dir)) {
                open_to(dir, 0o750).map_err(failed("open the directory of"))?;
            }
        }
        Ok(Self { listener, path: path.to_owned(), readers, _lock: lock })
    }

    /// The peer of a connection; `None` if it may do nothing.
    pub(super) fn peer(&self, stream: &UnixStream) -> Option<LocalPeer> {
        let peer = getsockopt(stream, PeerCredentials).ok()?;
        let is_trusted = peer.uid() == 0 || peer.uid() == geteuid().as_raw();
        // Others could only connect as members of the group.
        (is_trusted || self.readers.is_some()).then(|| LocalPeer { process: peer.pid(), may_change: is_trusted })
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

/// Whether only the owner can use the directory.
fn is_private(dir: &Path) -> bool {
    fs::metadata(dir).is_ok_and(|dir| dir.permissions().mode() & 0o077 == 0)
}

/// The process at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LocalPeer {
    pub(super) process: i32,
    /// It belongs to root, or to the user of this process. Others only read.
    pub(super) may_change: bool,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_is_found_by_its_whole_name() {
        let groups = "root:x:0:\ncoracle2:x:7:\ncoracle:x:998:alice,bob\nother:x:y:\n";
        assert_eq!(group_id(groups, "coracle"), Some(Gid::from_raw(998)));
        for none in ["corac", "other", "none"] {
            assert_eq!(group_id(groups, none), None, "{none}");
        }
    }
}
