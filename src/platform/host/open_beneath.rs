//! Resolves paths below a directory without ever leaving it, whatever links are on the way.
//!
//! What is found is held with `O_PATH`, so that nothing is opened before its type is known.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, readlinkat};
use rustix::io::Errno;

use super::regular_file::same;

/// How to treat a link that leads out of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outside {
    /// Fail the open.
    Refused,
    /// Treat the directory as the root, as in a container.
    IsRoot,
}

/// Holds what is at `path` below `root`, with openat2(2) if available (Linux 5.6), or else component by component.
pub(crate) fn hold_inside(root: BorrowedFd<'_>, path: &Path, outside: Outside) -> Result<OwnedFd, Errno> {
    let resolve = match outside {
        Outside::Refused => ResolveFlags::BENEATH,
        Outside::IsRoot => ResolveFlags::IN_ROOT,
    };
    match openat2(root, path, HOLD, Mode::empty(), resolve | ResolveFlags::NO_MAGICLINKS) {
        // EPERM is what an old seccomp filter returns for an unknown system call.
        Err(Errno::NOSYS | Errno::PERM) => walk(root, path, outside),
        result => result,
    }
}

/// Opens the file or directory at `path` below `root` for reading. Links may be absolute, and `root` may be one. The
/// type is checked on the open descriptor, so that the path cannot be exchanged meanwhile.
pub(crate) fn open_below(root: &Path, path: &Path) -> Result<File, Errno> {
    let top = openat(CWD, "/", HOLD, Mode::empty())?;
    let root_directory = hold_inside(top.as_fd(), root, Outside::IsRoot)?;
    let opened = hold_inside(top.as_fd(), &root.join(path), Outside::IsRoot)?;
    if !path_of(opened.as_fd())?.starts_with(path_of(root_directory.as_fd())?) {
        return Err(Errno::XDEV);
    }
    match FileType::from_raw_mode(fstat(&opened)?.st_mode) {
        FileType::RegularFile | FileType::Directory => {
            Ok(same(opened.as_fd(), OFlags::RDONLY | OFlags::NONBLOCK)?.into())
        }
        _ => Err(Errno::ACCESS),
    }
}

/// The path of an open file, without links.
fn path_of(file: BorrowedFd<'_>) -> Result<PathBuf, Errno> {
    let target = readlinkat(CWD, format!("/proc/self/fd/{}", file.as_raw_fd()), Vec::new())?;
    Ok(PathBuf::from(OsStr::from_bytes(target.to_bytes())))
}

/// Resolves the path in user space: the kernel follows no link, and `..` returns to a directory that is held open, so
/// that moving directories meanwhile cannot lead out.
fn walk(root: BorrowedFd<'_>, path: &Path, outside: Outside) -> Result<OwnedFd, Errno> {
    if path.as_os_str().is_empty() {
        return Err(Errno::NOENT);
    }
    let mut inside = Vec::new();
    let mut ahead = Vec::new();
    put_ahead(&mut ahead, path);
    let mut links = 0;
    while let Some(part) = ahead.pop() {
        match part {
            Part::Root if outside == Outside::Refused => return Err(Errno::XDEV),
            Part::Root => inside.clear(),
            Part::Up if inside.pop().is_none() && outside == Outside::Refused => return Err(Errno::XDEV),
            Part::Up => {}
            Part::Down(name) => {
                let here = inside.last().map_or(root, OwnedFd::as_fd);
                let opened = openat(here, &name, STEP_OPEN_FLAGS, Mode::empty())?;
                if FileType::from_raw_mode(fstat(&opened)?.st_mode) == FileType::Symlink {
                    links += 1;
                    let target = readlinkat(&opened, "", Vec::new())?;
                    put_ahead(&mut ahead, Path::new(OsStr::from_bytes(target.to_bytes())));
                } else {
                    inside.push(opened);
                }
            }
        }
        if links > MAX_LINKS || inside.len() > MAX_OPEN_DEPTH {
            return Err(Errno::LOOP);
        }
    }
    same(inside.last().map_or(root, OwnedFd::as_fd), OFlags::PATH)
}

enum Part {
    Root,
    Up,
    Down(OsString),
}

/// Pushes the components of a path onto the stack of those to visit; the next one is last.
fn put_ahead(ahead: &mut Vec<Part>, path: &Path) {
    ahead.extend(path.components().rev().filter_map(|part| match part {
        Component::RootDir => Some(Part::Root),
        Component::ParentDir => Some(Part::Up),
        Component::Normal(name) => Some(Part::Down(name.to_owned())),
        Component::CurDir | Component::Prefix(_) => None,
    }));
}

const HOLD: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const STEP_OPEN_FLAGS: OFlags = HOLD.union(OFlags::NOFOLLOW);
/// The kernel's limit.
const MAX_LINKS: usize = 40;
/// Each level holds a file descriptor.
const MAX_OPEN_DEPTH: usize = 128;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::Stat;

    use super::*;

    /// A directory `v` with links of all kinds, and files beside it that must not be reached.
    fn volume(name: &str) -> PathBuf {
        let top = std::env::temp_dir().join(format!("coracle-open-inside-{name}-{}", std::process::id()));
        let root = top.join("v");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir_all(root.join("..2026")).unwrap();
        fs::write(root.join("a/b/file"), "inside").unwrap();
        fs::write(root.join("..2026/key"), "value").unwrap();
        fs::write(top.join("secret"), "outside").unwrap();
        for (target, link) in [
            ("..2026", "..data"),
            ("..data/key", "key"),
            ("a/b", "short"),
            ("../a/./b/../b/file", "a/round"),
            ("../secret", "out"),
            ("../../../../../../secret", "a/b/far-out"),
            ("/secret", "absolute"),
            ("/a/b/file", "absolute-inside"),
            ("nowhere", "broken"),
            ("loop", "loop"),
            ("..", "up"),
        ] {
            symlink(target, root.join(link)).unwrap();
        }
        top
    }

    const PATHS: [&str; 24] = [
        "a",
        "a/b/file",
        "a/b/../b/file",
        "./a/./b",
        ".",
        "",
        "..",
        "a/../..",
        "a/../../v/a",
        "/",
        "/a",
        "key",
        "short/file",
        "short/..",
        "a/round",
        "out",
        "a/b/far-out",
        "absolute",
        "absolute-inside",
        "broken",
        "loop",
        "up",
        "up/secret",
        "a/b/file/below",
    ];

    fn identity(fd: &OwnedFd) -> (u64, u64) {
        let Stat { st_dev, st_ino, .. } = fstat(fd).unwrap();
        (st_dev, st_ino)
    }

    #[test]
    fn fallback_resolves_as_openat2_does() {
        let top = volume("same");
        let root = openat(CWD, top.join("v"), STEP_OPEN_FLAGS, Mode::empty()).unwrap();
        for (outside, resolve) in [(Outside::Refused, ResolveFlags::BENEATH), (Outside::IsRoot, ResolveFlags::IN_ROOT)]
        {
            for path in PATHS {
                let kernel = openat2(&root, path, HOLD, Mode::empty(), resolve);
                if kernel.as_ref().err() == Some(&Errno::NOSYS) {
                    continue;
                }
                let own = walk(root.as_fd(), Path::new(path), outside);
                let own = own.as_ref().map(identity);
                assert_eq!(own, kernel.as_ref().map(identity), "{path:?} {outside:?}");
            }
        }
        fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn files_outside_the_directory_are_never_reached() {
        let top = volume("beside");
        let root = openat(CWD, top.join("v"), STEP_OPEN_FLAGS, Mode::empty()).unwrap();
        let secret = identity(&openat(CWD, top.join("secret"), STEP_OPEN_FLAGS, Mode::empty()).unwrap());
        for outside in [Outside::Refused, Outside::IsRoot] {
            for path in PATHS {
                for hold in [hold_inside, walk] {
                    let found = hold(root.as_fd(), Path::new(path), outside);
                    assert_ne!(found.as_ref().map(identity), Ok(secret), "{path:?} {outside:?}");
                }
            }
        }
        fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn held_files_can_be_read() {
        use std::io::Read as _;
        let top = volume("read");
        let root = openat(CWD, top.join("v"), STEP_OPEN_FLAGS, Mode::empty()).unwrap();
        fs::write(top.join("v/large"), "larger than 4 GiB").unwrap();
        File::options().write(true).open(top.join("v/large")).unwrap().set_len(5 << 30).unwrap();
        for (path, expected) in [("key", "value"), ("absolute-inside", "inside"), ("large", "larger than 4 GiB")] {
            for hold in [hold_inside, walk] {
                let held = hold(root.as_fd(), Path::new(path), Outside::IsRoot).unwrap();
                let found = same(held.as_fd(), OFlags::RDONLY).unwrap();
                let mut head = vec![0; expected.len()];
                File::from(found).read_exact(&mut head).unwrap();
                assert_eq!(head, expected.as_bytes());
            }
        }
        fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn deep_paths_use_a_bounded_number_of_descriptors() {
        let top = volume("deep");
        let deep = "d/".repeat(MAX_OPEN_DEPTH + 1);
        fs::create_dir_all(top.join("v").join(&deep)).unwrap();
        let root = openat(CWD, top.join("v"), STEP_OPEN_FLAGS, Mode::empty()).unwrap();
        let found = walk(root.as_fd(), Path::new(&deep), Outside::Refused);
        assert_eq!(found.err(), Some(Errno::LOOP));
        fs::remove_dir_all(&top).unwrap();
    }
}
