//! Sets the group of a volume's files.

use std::ffi::CStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::progress::Progress;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, chownat, fstat, openat, statat};

/// Gives the group read and write access, and sets setgid on directories. The volume's root is changed last: with
/// `on_mismatch` it shows that everything else is done.
///
/// Files that cannot be changed, as on a file system without owners, are left alone and logged once. Fails once the
/// volume is given up: a large volume takes hours.
pub(super) fn set_ownership(volume: &Path, group: u32, on_mismatch: bool, progress: &Progress) -> io::Result<()> {
    let top = openat(CWD, volume, OWNERSHIP_OPEN_FLAGS, Mode::empty())?;
    let top_stat = fstat(&top)?;
    if on_mismatch && top_stat.st_gid == group && top_stat.st_mode & VOLUME_DIRECTORY_MODE == VOLUME_DIRECTORY_MODE {
        return Ok(());
    }
    let mut giving = OwnershipChange { group, failed: 0, why: None, progress };
    giving.all(top.as_fd(), 0)?;
    giving.note(give_one(top.as_fd(), group, top_stat.st_mode));
    if let Some(why) = giving.why {
        let (volume, failed) = (volume.display(), giving.failed);
        log!(warn, "failed to set group of volume files", volume = volume, group = group, count = failed, error = why);
    }
    Ok(())
}

struct OwnershipChange<'a> {
    group: u32,
    failed: u32,
    /// The first error.
    why: Option<io::Error>,
    progress: &'a Progress,
}

impl OwnershipChange<'_> {
    /// Symlinks are changed but never followed: the content is untrusted and may change meanwhile.
    fn all(&mut self, directory: BorrowedFd<'_>, depth: usize) -> io::Result<()> {
        if depth > MAX_OWNERSHIP_DEPTH {
            return Err(io::Error::other(format!("directories are more than {MAX_OWNERSHIP_DEPTH} deep")));
        }
        for entry in Dir::read_from(directory)? {
            if self.progress.is_given_up() {
                return Err(io::Error::other("the pod is terminating"));
            }
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            match self.entry(directory, name, depth) {
                // Removed in the meantime.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                changed => changed?,
            }
        }
        Ok(())
    }

    fn entry(&mut self, directory: BorrowedFd<'_>, name: &CStr, depth: usize) -> io::Result<()> {
        let kind = FileType::from_raw_mode(statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode);
        if kind == FileType::Symlink {
            let group = Some(Gid::from_raw(self.group));
            let changed = chownat(directory, name, None, group, AtFlags::SYMLINK_NOFOLLOW);
            self.note(changed.map_err(io::Error::from));
            return Ok(());
        }
        // A device or a pipe is not opened for reading, which could act or hang.
        let flags = if kind == FileType::Directory {
            OWNERSHIP_OPEN_FLAGS
        } else {
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC
        };
        let file = openat(directory, name, flags, Mode::empty())?;
        let mode = fstat(&file)?.st_mode;
        match FileType::from_raw_mode(mode) {
            FileType::Directory if kind == FileType::Directory => self.all(file.as_fd(), depth + 1)?,
            // Replaced in the meantime.
            FileType::Symlink | FileType::Directory => return Ok(()),
            _ => {}
        }
        self.note(give_one(file.as_fd(), self.group, mode));
        Ok(())
    }

    fn note(&mut self, changed: io::Result<()>) {
        if let Err(error) = changed {
            self.failed = self.failed.saturating_add(1);
            self.why.get_or_insert(error);
        }
    }
}

fn give_one(file: BorrowedFd<'_>, group: u32, mode: u32) -> io::Result<()> {
    let more =
        if FileType::from_raw_mode(mode) == FileType::Directory { VOLUME_DIRECTORY_MODE } else { VOLUME_FILE_MODE };
    // A file opened with O_PATH can only be changed through this name.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::os::unix::fs::chown(&path, None, Some(group))?;
    fs::set_permissions(&path, Permissions::from_mode((mode | more) & 0o7777))
}

const OWNERSHIP_OPEN_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Added to what a file has (upstream's `rwMask`, `execMask` and setgid): a mode that the image chose stays, and new
/// files of a directory get the group.
const VOLUME_FILE_MODE: u32 = 0o660;
const VOLUME_DIRECTORY_MODE: u32 = 0o2770;
/// A tenant chooses the tree: each level holds a file descriptor.
const MAX_OWNERSHIP_DEPTH: usize = 256;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;
    use crate::platform::host::remove_tree::remove_tree;

    #[test]
    fn group_is_set_below_the_volume_but_not_through_symlinks() {
        let top = std::env::temp_dir().join(format!("coracle-ownership-{}", std::process::id()));
        let volume = top.join("volume");
        fs::create_dir_all(volume.join("a/b")).unwrap();
        fs::write(volume.join("a/b/file"), "").unwrap();
        fs::write(top.join("outside"), "").unwrap();
        symlink(top.join("outside"), volume.join("link")).unwrap();
        let of = |path: &Path| fs::symlink_metadata(path).map(|found| (found.gid(), found.mode() & 0o7777)).unwrap();
        for path in ["volume", "volume/a", "volume/a/b"] {
            fs::set_permissions(top.join(path), Permissions::from_mode(0o700)).unwrap();
        }
        fs::set_permissions(volume.join("a/b/file"), Permissions::from_mode(0o644)).unwrap();
        let outside = of(&top.join("outside"));
        set_ownership(&volume, 1234, false, &Progress::default()).unwrap();
        for path in ["volume", "volume/a", "volume/a/b"] {
            assert_eq!(of(&top.join(path)), (1234, 0o2770), "{path}");
        }
        assert_eq!(of(&volume.join("a/b/file")), (1234, 0o664));
        assert_eq!((of(&volume.join("link")).0, of(&top.join("outside"))), (1234, outside));
        fs::write(volume.join("new"), "").unwrap();
        fs::set_permissions(volume.join("new"), Permissions::from_mode(0o600)).unwrap();
        set_ownership(&volume, 1234, true, &Progress::default()).unwrap();
        assert_eq!(of(&volume.join("new")).1, 0o600, "the volume's root already had the group");
        set_ownership(&volume, 1234, false, &Progress::default()).unwrap();
        assert_eq!(of(&volume.join("new")).1, 0o660);
        remove_tree(&top).unwrap();
    }

    #[test]
    fn volume_that_is_given_up_keeps_the_groups_of_its_other_files() {
        let top = std::env::temp_dir().join(format!("coracle-ownership-given-up-{}", std::process::id()));
        fs::create_dir_all(top.join("a")).unwrap();
        let progress = Progress::default();
        progress.give_up();
        let error = set_ownership(&top, 1234, false, &progress).unwrap_err();
        assert_eq!(error.to_string(), "the pod is terminating");
        assert_ne!(fs::metadata(&top).unwrap().gid(), 1234, "the root shows that everything is done");
        remove_tree(&top).unwrap();
    }

    #[test]
    fn unchangeable_files_do_not_fail_the_volume() {
        // The modes of these cannot be changed.
        set_ownership(Path::new("/proc/self/fdinfo"), 1234, false, &Progress::default()).unwrap();
        let error = set_ownership(Path::new("/proc/self/none"), 1234, false, &Progress::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
