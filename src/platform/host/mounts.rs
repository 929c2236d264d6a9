//! Finds and unmounts what is mounted below a directory.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};

use super::procfs::{Mount, Procfs};

/// Unmounts everything below `directory`, according to the kernel's mount table. A missing directory is no error.
///
/// A busy mount is detached: it is inaccessible at once, and released by its last user.
pub(crate) fn unmount_below(directory: &Path) -> io::Result<()> {
    // The mount table has resolved paths.
    let directory = match fs::canonicalize(directory) {
        Ok(directory) => directory,
        Err(error) if is_missing(&error) => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut failure = None;
    for _ in 0..MAX_UNMOUNT_ROUNDS {
        let mounts = mounts_below(&directory)?;
        if mounts.is_empty() {
            return Ok(());
        }
        // Later mounts lie on top of earlier ones.
        for mount in mounts.iter().rev() {
            if let Err(error) = unmount(&mount.point, mount.file_system.starts_with("nfs")) {
                failure = Some(error);
            }
        }
    }
    Err(failure.map_or_else(|| io::Error::from(io::ErrorKind::ResourceBusy), io::Error::from))
}

/// Whether `path` is on another file system than its parent directory. That is enough for a tmpfs and huge pages: a
/// bind mount within a file system is not noticed.
pub(crate) fn is_mount_point(path: &Path) -> io::Result<bool> {
    let Some(parent) = path.parent() else { return Ok(true) };
    Ok(fs::symlink_metadata(path)?.dev() != fs::metadata(parent)?.dev())
}

/// Whether the mount table has an entry for exactly `path`. Does not access the file system.
pub(crate) fn mounted_at(path: &Path) -> io::Result<bool> {
    let parent = match path.parent().map(fs::canonicalize) {
        Some(Ok(parent)) => parent,
        Some(Err(error)) if is_missing(&error) => return Ok(false),
        Some(Err(error)) => return Err(error),
        None => return Ok(true),
    };
    let path = path.file_name().map_or_else(|| parent.clone(), |name| parent.join(name));
    Ok(mounts_below(&parent)?.iter().any(|mount| mount.point == path))
}

/// There is nothing at the path, or a part of it is a file.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The mount of the file system that `path` is on, if the mount table has it.
pub(crate) fn mount_of(path: &Path) -> io::Result<Option<Mount>> {
    let path = fs::canonicalize(path)?;
    let above = Procfs::host().mounts()?.into_iter().filter(|mount| path.starts_with(&mount.point));
    // Of two mounts on one point, the later lies on top.
    Ok(above.max_by_key(|mount| mount.point.as_os_str().len()))
}

fn unmount(point: &Path, is_remote: bool) -> Result<(), Errno> {
    let detach = MntFlags::UMOUNT_NOFOLLOW | MntFlags::MNT_DETACH;
    // A network file system whose server is down would block forever.
    if is_remote {
        return umount2(point, detach | MntFlags::MNT_FORCE).or_else(|_| umount2(point, detach));
    }
    match umount2(point, MntFlags::UMOUNT_NOFOLLOW) {
        // EINVAL: already unmounted together with a mount above it.
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => Ok(()),
        Err(_) => umount2(point, detach),
    }
}

/// The mounts below `directory`, in the order of the table.
fn mounts_below(directory: &Path) -> io::Result<Vec<Mount>> {
    let is_below = |mount: &Mount| mount.point != directory && mount.point.starts_with(directory);
    Ok(Procfs::host().mounts()?.into_iter().filter(is_below).collect())
}

/// Mounts may be stacked; with more layers than this, someone keeps mounting while we unmount.
const MAX_UNMOUNT_ROUNDS: usize = 16;

#[cfg(test)]
mod tests {
    use nix::mount::{MsFlags, mount};

    use super::*;

    #[test]
    fn mounts_upon_mounts_and_busy_ones_all_go_and_a_second_time_is_no_error() {
        let top = std::env::temp_dir().join(format!("coracle-mounts-{}", std::process::id()));
        let inner = top.join("pods/one/inner");
        fs::create_dir_all(&inner).unwrap();
        let link = top.join("link");
        std::os::unix::fs::symlink(top.join("pods"), &link).unwrap();
        let tmpfs = |at: &Path| mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
        tmpfs(&inner);
        tmpfs(&inner);
        fs::create_dir(inner.join("deep")).unwrap();
        tmpfs(&inner.join("deep"));
        assert!(is_mount_point(&inner).unwrap());
        let busy = fs::File::create(inner.join("deep/file")).unwrap();
        unmount_below(&link).unwrap();
        assert!(!is_mount_point(&inner).unwrap());
        assert!(fs::read_dir(&inner).unwrap().next().is_none(), "a layer is left");
        unmount_below(&link).unwrap();
        unmount_below(&top.join("nothing")).unwrap();
        fs::write(top.join("file"), "").unwrap();
        unmount_below(&top.join("file/below")).unwrap();
        assert!(!mounted_at(&top.join("file/below/it")).unwrap());
        drop(busy);
        fs::remove_dir_all(&top).unwrap();
    }
}
