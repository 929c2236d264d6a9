//! Binds subpaths of volumes.
//!
//! The volume's content is untrusted: a symlink in it may change at any moment. The kernel resolves the subpath
//! without leaving the volume, and the result is held open and bound without a second lookup.

use std::fs::{self, File, Permissions};
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use rustix::fs::{CWD, Mode, OFlags, fchmod, fstat, mkdirat, openat};
use rustix::io::Errno;

use super::error::Error;
use super::mounts::Part;
use super::progress::Progress;
use crate::platform::host::directories;
use crate::platform::host::open_beneath::{Outside, hold_inside};
use crate::platform::host::regular_file::{not_regular, reopen};

/// Binds `part` to its target; creates a missing subpath as a directory. Does nothing if it is already bound. Fails
/// once the pod has given it up.
pub(super) fn bind(part: &Part, progress: &Progress) -> Result<(), Error> {
    try_bind(part, progress).map_err(|source| Error::SubPath {
        volume: part.volume.clone(),
        container: part.container.clone(),
        source,
    })
}

fn try_bind(part: &Part, progress: &Progress) -> io::Result<()> {
    let source_file = find(&part.root, Path::new(&part.path))?;
    let source_file = File::from(source_file);
    let source = source_file.metadata()?;
    let is_there = match fs::symlink_metadata(&part.target) {
        Ok(target) if (target.dev(), target.ino()) == (source.dev(), source.ino()) => return Ok(()),
        Ok(_) => true,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => false,
        Err(error) => return Err(error),
    };
    // The file system of the volume may have hung until now, and the pod's directory be gone. What follows only changes
    // that directory.
    let _mount = progress.mount().ok_or_else(|| io::Error::other("the pod is terminating"))?;
    if let Some(parent) = part.target.parent() {
        make_private(parent)?;
    }
    if is_there {
        clear(&part.target)?;
    }
    if source.is_dir() {
        directories::make_own(&part.target, 0o750)?;
    } else {
        File::create(&part.target)?.set_permissions(Permissions::from_mode(0o640))?;
    }
    let held = format!("/proc/self/fd/{}", source_file.as_raw_fd());
    Ok(mount(Some(held.as_str()), &part.target, None::<&str>, MsFlags::MS_BIND, None::<&str>)?)
}

/// Creates the directories of the volume and the container below the subpath directory.
fn make_private(path: &Path) -> io::Result<()> {
    for path in [path.ancestors().nth(2), path.parent(), Some(path)].into_iter().flatten() {
        directories::make_own(path, 0o750)?;
    }
    Ok(())
}

/// Removes an old bind mount of another file, and the mount point.
fn clear(target: &Path) -> io::Result<()> {
    match umount2(target, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
        Ok(()) | Err(nix::errno::Errno::EINVAL) => {}
        Err(error) => return Err(error.into()),
    }
    let metadata = fs::symlink_metadata(target)?;
    if metadata.is_dir() { fs::remove_dir(target) } else { fs::remove_file(target) }
}

/// Opens `path` below `root`; missing directories are created with the root's mode.
fn find(root: &Path, path: &Path) -> io::Result<OwnedFd> {
    let root = openat(CWD, root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    match hold(&root, path) {
        Err(Errno::NOENT) => {}
        result => return Ok(result?),
    }
    let mode = Mode::from_raw_mode(fstat(&root)?.st_mode & 0o7777);
    let mut here = root.try_clone()?;
    let mut walked = PathBuf::new();
    for part in path.components().filter(|part| matches!(part, Component::Normal(_))) {
        walked.push(part);
        here = match hold(&root, &walked) {
            Err(Errno::NOENT) => {
                match mkdirat(&here, part.as_os_str(), mode) {
                    // The umask has removed bits from the mode.
                    Ok(()) => fchmod(openat(&here, part.as_os_str(), MADE, Mode::empty())?.as_fd(), mode)?,
                    Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                hold(&root, &walked)?
            }
            result => result?,
        };
    }
    Ok(here)
}

/// Reads a file below `root`, up to `limit` bytes. Symlinks are resolved inside the volume.
pub(super) fn read(root: &Path, path: &Path, limit: usize) -> io::Result<String> {
    let root = openat(CWD, root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let held = hold_inside(root.as_fd(), path, Outside::IsRoot)?;
    let file = reopen(held.as_fd(), OFlags::RDONLY)?.ok_or_else(not_regular)?;
    let mut text = String::new();
    file.take(u64::try_from(limit).unwrap_or(u64::MAX)).read_to_string(&mut text)?;
    Ok(text)
}

fn hold(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    hold_inside(root.as_fd(), path, Outside::Refused)
}

const MADE: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
