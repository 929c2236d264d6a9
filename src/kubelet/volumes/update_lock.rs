//! The update lock of an application: an flock(2) on a file in one of its volumes.
//!
//! The volume's content is untrusted: the file is held with `O_PATH` until it is known to be a regular file of the
//! volume, and opening it never waits. The node takes the lock itself, without waiting, so that the answer holds: until
//! the file is closed the application gets no lock. `/proc/locks` would not do: it hides locks of other pid namespaces,
//! names no device that btrfs shows, and the application could take the lock between the look and the stop.

use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;

use crate::platform::host::open_beneath::{Outside, hold_inside};
use crate::platform::host::regular_file::{not_regular, reopen};
use crate::state::pods::UpdateLock;

/// Takes the lock on the file at `path` below `root`, if no other process holds it. Blocking, if the file system hangs.
pub(super) fn take(root: &Path, path: &Path) -> io::Result<UpdateLock> {
    let held = openat(CWD, root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .and_then(|root| hold_inside(root.as_fd(), path, Outside::Refused));
    let held = match held {
        Err(Errno::NOENT) => return Ok(UpdateLock::Taken(None)),
        held => held?,
    };
    let file = reopen(held.as_fd(), OFlags::RDONLY | OFlags::NONBLOCK)?.ok_or_else(not_regular)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(UpdateLock::Taken(Some(file))),
        Err(Errno::WOULDBLOCK) => Ok(UpdateLock::Held),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::platform::rt::TestFolder;

    fn word(lock: &io::Result<UpdateLock>) -> String {
        match lock {
            Ok(UpdateLock::Taken(Some(_))) => "taken".to_owned(),
            Ok(UpdateLock::Taken(None)) => "no file".to_owned(),
            Ok(UpdateLock::Held) => "held".to_owned(),
            Err(error) => error.kind().to_string(),
        }
    }

    #[test]
    fn lock_of_another_process_is_seen_until_it_is_released() {
        let top = TestFolder::new("update-lock");
        fs::write(top.0.join("lock"), "").unwrap();
        for operation in [FlockOperation::LockShared, FlockOperation::LockExclusive] {
            // Locks belong to open files: another one is as good as another process.
            let application = File::open(top.0.join("lock")).unwrap();
            flock(&application, operation).unwrap();
            assert_eq!(word(&take(&top.0, Path::new("lock"))), "held");
            drop(application);
            assert_eq!(word(&take(&top.0, Path::new("lock"))), "taken");
        }
    }

    #[test]
    fn application_gets_no_lock_while_the_node_has_it() {
        let top = TestFolder::new("update-lock-taken");
        fs::write(top.0.join("lock"), "").unwrap();
        let application = File::open(top.0.join("lock")).unwrap();
        let taken = take(&top.0, Path::new("lock")).unwrap();
        let tried = flock(&application, FlockOperation::NonBlockingLockShared);
        drop(taken);
        assert_eq!(tried, Err(Errno::WOULDBLOCK));
        assert_eq!(flock(&application, FlockOperation::NonBlockingLockShared), Ok(()));
    }

    #[test]
    fn only_regular_files_of_the_volume_are_locks() {
        let top = TestFolder::new("update-lock-kinds");
        fs::create_dir_all(top.0.join("v/folder")).unwrap();
        fs::write(top.0.join("secret"), "").unwrap();
        nix::unistd::mkfifo(&top.0.join("v/pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        symlink("../secret", top.0.join("v/out")).unwrap();
        symlink("/dev/watchdog", top.0.join("v/device")).unwrap();
        let root = top.0.join("v");
        let found = ["folder", "pipe", "out", "device", "missing", "missing/file"];
        let found = found.map(|path| word(&take(&root, Path::new(path))));
        let (other, outside) = ("invalid input parameter", "cross-device link or rename");
        assert_eq!(found, [other, other, outside, outside, "no file", "no file"]);
        assert_eq!(word(&take(&top.0.join("gone"), Path::new("lock"))), "no file");
    }
}
