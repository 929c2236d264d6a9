//! Finds and unmounts what is mounted below a directory.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};

/// The mounts of this thread, which may have a mount namespace of its own.
const MOUNTS: &str = "/proc/thread-self/mountinfo";

/// Unmounts everything below `directory`, according to the kernel's mount table. A missing directory is no error.
///
/// A busy mount is detached: it is inaccessible at once, and released by its last user.
pub(crate) fn unmount_below(directory: &Path) -> io::Result<()> {
    // The mount table has resolved paths.
    let directory = match fs::canonicalize(directory) {
        Ok(directory) => directory,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut failure = None;
    for _ in 0..ROUNDS {
        let points = mount_points_below(&fs::read(MOUNTS)?, &directory);
        if points.is_empty() {
            return Ok(());
        }
        // In reverse order, as later mounts cover earlier ones.
        for point in points.iter().rev() {
            if let Err(error) = unmount(&point.path, point.is_remote) {
                failure = Some(error);
            }
        }
    }
    Err(failure.map_or_else(|| io::Error::from(io::ErrorKind::ResourceBusy), io::Error::from))
}

/// Whether `path` is on another file system than its parent directory.
pub(crate) fn is_mount_point(path: &Path) -> io::Result<bool> {
    let Some(parent) = path.parent() else { return Ok(true) };
    Ok(fs::symlink_metadata(path)?.dev() != fs::metadata(parent)?.dev())
}

/// Whether the mount table has an entry for exactly `path`. Does not access the file system.
pub(crate) fn mounted_at(path: &Path) -> io::Result<bool> {
    let parent = match path.parent().map(fs::canonicalize) {
        Some(Ok(parent)) => parent,
        Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Some(Err(error)) => return Err(error),
        None => return Ok(true),
    };
    let path = path.file_name().map_or_else(|| parent.clone(), |name| parent.join(name));
    Ok(mount_points_below(&fs::read(MOUNTS)?, &parent).iter().any(|point| point.path == path))
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

#[derive(Debug, PartialEq)]
struct MountPoint {
    path: PathBuf,
    /// Whether it is a network file system.
    is_remote: bool,
}

/// The mount points below `directory` in a `mountinfo` table, in the table's order.
fn mount_points_below(mountinfo: &[u8], directory: &Path) -> Vec<MountPoint> {
    let points = mountinfo.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let path = PathBuf::from(OsString::from_vec(unescaped(fields.nth(4)?)));
        // The file system type follows the optional fields and a dash.
        let kind = fields.skip_while(|field| *field != b"-").nth(1);
        Some(MountPoint { path, is_remote: kind.is_some_and(|kind| kind.starts_with(b"nfs")) })
    });
    points.filter(|point| point.path != directory && point.path.starts_with(directory)).collect()
}

/// Replaces the kernel's octal escapes of space, tab, newline and backslash.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = |digits: &[u8; 3]| {
            let text = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(text, 8).ok()
        };
        let escaped = if *first == b'\\' { after.split_first_chunk::<3>() } else { None };
        match escaped.and_then(|(digits, after)| Some((octal(digits)?, after))) {
            Some((byte, after)) => {
                out.push(byte);
                rest = after;
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

/// Mounts may be stacked; with more layers than this, someone keeps mounting while we unmount.
const ROUNDS: usize = 16;

#[cfg(test)]
mod tests {
    use nix::mount::{MsFlags, mount};

    use super::*;

    #[test]
    fn mount_points_are_found_in_order_and_unescaped() {
        let table = b"22 1 0:20 / / rw - ext4 /dev/vda rw\n\
            30 22 0:21 / /var/pods rw shared:1 - tmpfs tmpfs rw\n\
            31 22 0:22 / /var/pods/a\\040b rw - tmpfs tmpfs rw\n\
            32 22 0:23 / /var/podsick rw - tmpfs tmpfs rw\n\
            33 22 0:23 / /var/pods/a\\040b/\\134\\012x rw shared:1 master:2 - nfs4 server:/x rw\n\nbroken\n";
        let points = mount_points_below(table, Path::new("/var/pods"));
        let point = |path: &str, is_remote| MountPoint { path: path.into(), is_remote };
        assert_eq!(points, [point("/var/pods/a b", false), point("/var/pods/a b/\\\nx", true)]);
    }

    #[test]
    fn invalid_escapes_are_left() {
        for (field, expected) in [("\\04", "\\04"), ("\\999", "\\999"), ("\\", "\\"), ("a\\0401", "a 1")] {
            assert_eq!(unescaped(field.as_bytes()), expected.as_bytes());
        }
    }

    #[test]
    fn stacked_and_busy_mounts_are_unmounted() {
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
        drop(busy);
        fs::remove_dir_all(&top).unwrap();
    }
}
