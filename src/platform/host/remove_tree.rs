//! Removes a directory tree without touching anything outside it.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, renameat, statat, unlinkat,
};
use rustix::io::Errno;

/// Removes `path` and everything in it. Links are removed, never followed. A mount is an error and its content stays.
/// A missing `path` is no error. What cannot be removed keeps nothing else from being removed; the first error is
/// returned.
///
/// The content may be hostile: a tree of any depth takes a bounded number of descriptors and stack frames.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    let top = match openat(CWD, path, REMOVAL_OPEN_FLAGS, Mode::empty()) {
        Ok(top) => top,
        Err(Errno::NOENT) => return Ok(()),
        // Not a directory, or a link.
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return match unlinkat(CWD, path, AtFlags::empty()) {
                // ENOTDIR: a parent is a file, so `path` does not exist.
                Ok(()) | Err(Errno::NOTDIR) => Ok(()),
                Err(error) => Err(error.into()),
            };
        }
        Err(error) => return Err(error.into()),
    };
    let device = fstat(&top)?.st_dev;
    let mut removal = Removal { top: top.as_fd(), device, moved: 0, progress: 0, failure: None };
    removal.empty(top.as_fd(), 0);
    match (unlinkat(CWD, path, AtFlags::REMOVEDIR), removal.failure) {
        (Ok(()) | Err(Errno::NOENT), _) => Ok(()),
        // The directory is not empty because of this.
        (Err(_), Some(failure)) => Err(failure),
        (Err(error), None) => Err(error.into()),
    }
}

struct Removal<'a> {
    top: BorrowedFd<'a>,
    device: u64,
    /// How many directories were moved up because they were too deep.
    moved: u32,
    /// How many files and directories were removed or moved.
    progress: u64,
    /// The first error of the last pass over the top level.
    failure: Option<io::Error>,
}

impl Removal<'_> {
    fn empty(&mut self, directory: BorrowedFd<'_>, depth: usize) {
        // A directory that changes while it is read may hide entries, and deep directories are moved up, so repeat until
        // a pass removes nothing.
        for _ in 0..MAX_REMOVAL_PASSES {
            let before = self.progress;
            if depth == 0 {
                self.failure = None;
            }
            if let Err(error) = self.pass(directory, depth) {
                self.note(error);
            }
            if self.progress == before {
                break;
            }
        }
    }

    fn pass(&mut self, directory: BorrowedFd<'_>, depth: usize) -> io::Result<()> {
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if name.to_bytes() == b"." || name.to_bytes() == b".." {
                continue;
            }
            match self.remove(directory, name, entry.file_type(), depth) {
                Ok(()) => self.progress = self.progress.saturating_add(1),
                // Somebody else has removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => self.note(error),
            }
        }
        Ok(())
    }

    fn note(&mut self, error: io::Error) {
        self.failure.get_or_insert(error);
    }

    fn remove(&mut self, parent: BorrowedFd<'_>, name: &CStr, kind: FileType, depth: usize) -> io::Result<()> {
        let kind = match kind {
            FileType::Unknown => FileType::from_raw_mode(statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode),
            kind => kind,
        };
        if kind != FileType::Directory {
            return Ok(unlinkat(parent, name, AtFlags::empty())?);
        }
        if depth >= MAX_REMOVAL_DEPTH {
            return self.move_up(parent, name);
        }
        let directory = self.open(parent, name)?;
        self.empty(directory.as_fd(), depth + 1);
        drop(directory);
        Ok(unlinkat(parent, name, AtFlags::REMOVEDIR)?)
    }

    /// Moves a directory to the top level, where a later pass finds it.
    fn move_up(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
        loop {
            let new = format!(".removed-{}", self.moved);
            self.moved = self.moved.wrapping_add(1);
            match renameat(parent, name, self.top, new) {
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                result => return Ok(result?),
            }
        }
    }

    /// Opens a directory on the same mount. Before Linux 5.6, only another file system is detected.
    fn open(&self, parent: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        match openat2(parent, name, REMOVAL_OPEN_FLAGS, Mode::empty(), resolve) {
            Err(Errno::NOSYS | Errno::PERM) => {}
            result => return Ok(result?),
        }
        let directory = openat(parent, name, REMOVAL_OPEN_FLAGS, Mode::empty())?;
        if fstat(&directory)?.st_dev != self.device {
            return Err(Errno::XDEV.into());
        }
        Ok(directory)
    }
}

const REMOVAL_OPEN_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Each level holds a file descriptor. What is deeper is moved up and removed in another pass.
const MAX_REMOVAL_DEPTH: usize = 32;
/// Bound on the passes. Each one may move directories up; a tree of n levels takes n / 32.
const MAX_REMOVAL_PASSES: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use nix::mount::{MsFlags, mount};

    use super::*;
    use crate::platform::host::mounts::unmount_below;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("coracle-remove-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn links_are_removed_and_their_targets_stay() {
        let top = scratch("links");
        fs::create_dir_all(top.join("kept")).unwrap();
        fs::write(top.join("kept/file"), "x").unwrap();
        fs::create_dir_all(top.join("gone/a/b")).unwrap();
        symlink(top.join("kept"), top.join("gone/a/link")).unwrap();
        symlink("../../kept/file", top.join("gone/a/relative")).unwrap();
        symlink("nowhere", top.join("gone/broken")).unwrap();
        remove_tree(&top.join("gone")).unwrap();
        remove_tree(&top.join("gone")).unwrap();
        symlink(top.join("kept"), top.join("link")).unwrap();
        remove_tree(&top.join("link")).unwrap();
        remove_tree(&top.join("kept/file/below")).unwrap();
        assert_eq!(fs::read_dir(&top).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(top.join("kept/file")).unwrap(), "x");
        fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn content_of_mounts_is_never_removed() {
        let top = scratch("mount");
        let (kept, gone) = (top.join("kept"), top.join("gone/bound"));
        fs::create_dir_all(&kept).unwrap();
        fs::create_dir_all(&gone).unwrap();
        fs::write(kept.join("file"), "x").unwrap();
        mount(Some(&kept), &gone, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
        let result = remove_tree(&top.join("gone"));
        let file = fs::read_to_string(kept.join("file"));
        unmount_below(&top).unwrap();
        assert_eq!(result.unwrap_err().raw_os_error(), Some(Errno::XDEV.raw_os_error()));
        assert_eq!(file.unwrap(), "x");
        remove_tree(&top).unwrap();
    }

    #[test]
    fn what_cannot_be_removed_keeps_only_its_own_parents() {
        let top = scratch("stuck");
        let stuck = top.join("a/b/stuck");
        for path in ["a/b/stuck", "a/c/d", "z"] {
            fs::create_dir_all(top.join(path)).unwrap();
            fs::write(top.join(path).join("file"), "x").unwrap();
        }
        let deep = top.join("a").join("d/".repeat(MAX_REMOVAL_DEPTH * 3));
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("file"), "x").unwrap();
        // A mount point stands for a file that cannot be removed.
        mount(Some(&top.join("z")), &stuck, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
        let result = remove_tree(&top.join("a"));
        let left = |path: &str| fs::read_dir(top.join(path)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        let left: [Vec<_>; 3] = [left("a"), left("a/b"), left("z")];
        unmount_below(&top).unwrap();
        assert_eq!(result.unwrap_err().raw_os_error(), Some(Errno::XDEV.raw_os_error()));
        assert_eq!(left.map(|names| names.join(" ".as_ref())), ["b", "stuck", "file"]);
        remove_tree(&top).unwrap();
        assert!(!top.exists());
    }

    #[test]
    fn trees_of_any_depth_and_width_are_removed() {
        let top = scratch("deep");
        let mut here = rustix::fs::open(&top, REMOVAL_OPEN_FLAGS, Mode::empty()).unwrap();
        for _ in 0..500 {
            rustix::fs::mkdirat(&here, "d", Mode::RWXU).unwrap();
            here = openat(&here, "d", REMOVAL_OPEN_FLAGS, Mode::empty()).unwrap();
        }
        for number in 0..3000 {
            fs::write(top.join(format!("f{number}")), "").unwrap();
        }
        remove_tree(&top).unwrap();
        assert!(!top.exists());
    }
}
