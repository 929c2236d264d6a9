//! Copies a file or a tree. Paths of a container are its owner's: no link in them leads out of its root, nothing but
//! regular files and directories is opened, and nothing is written through what was there before.

use std::ffi::{CStr, CString, OsStr};
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, fchown};
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, fstat, mkdirat, openat, readlinkat, renameat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use crate::cli::complain;
use crate::platform::host::open_beneath::{Outside, hold_inside};
use crate::platform::host::regular_file;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Copied {
    pub(super) files: u64,
    pub(super) bytes: u64,
}

/// Each level holds a file descriptor.
const MAX_COPY_DEPTH: usize = 64;
const DIRECTORY_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Holds what is at `path`.
pub(super) fn hold(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    hold_inside(root.as_fd(), path, Outside::IsRoot)
}

/// Where the copy goes: a directory, and the name in it.
#[derive(Debug)]
pub(super) struct Target {
    directory: OwnedFd,
    name: CString,
}

impl Target {
    /// `path`, or below it if it is a directory, under the source's `name`.
    pub(super) fn find(root: &OwnedFd, path: &Path, name: Option<&OsStr>) -> Result<Self, Errno> {
        match hold(root, path) {
            Ok(opened) if is_directory(&opened)? => return Self::new(opened, name),
            Ok(_) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
        let parent = hold(root, path.parent().ok_or(Errno::INVAL)?)?;
        Self::new(parent, path.file_name())
    }

    fn new(directory: OwnedFd, name: Option<&OsStr>) -> Result<Self, Errno> {
        let name = CString::new(name.ok_or(Errno::INVAL)?.as_bytes()).map_err(|_| Errno::INVAL)?;
        Ok(Self { directory, name })
    }
}

fn is_directory(opened: &OwnedFd) -> Result<bool, Errno> {
    Ok(FileType::from_raw_mode(fstat(opened)?.st_mode) == FileType::Directory)
}

/// Copies what is held. Files in a container belong to the owner of the directory that they are copied to.
pub(super) fn copy(source: OwnedFd, target: &Target, into_container: bool) -> Result<Copied, String> {
    let stat = fstat(&target.directory).map_err(|error| error.to_string())?;
    let owner = into_container.then_some((stat.st_uid, stat.st_gid));
    let mut copying = Copying { owner, done: Copied::default() };
    let name = target.name.to_string_lossy();
    copying.entry(source, target.directory.as_fd(), &target.name, 0).map_err(|error| format!("{name}: {error}"))?;
    Ok(copying.done)
}

struct Copying {
    owner: Option<(u32, u32)>,
    done: Copied,
}

impl Copying {
    fn entry(&mut self, source: OwnedFd, into: BorrowedFd<'_>, name: &CStr, depth: usize) -> io::Result<()> {
        let mode = fstat(&source)?.st_mode;
        match FileType::from_raw_mode(mode) {
            FileType::RegularFile => self.file(&source, into, name, mode),
            FileType::Directory if depth < MAX_COPY_DEPTH => self.directory(&source, into, name, mode, depth),
            FileType::Directory => Err(io::Error::other("too deep")),
            FileType::Symlink => {
                let to = readlinkat(&source, "", Vec::new())?;
                match symlinkat(&to, into, name) {
                    Err(Errno::EXIST) => {
                        unlinkat(into, name, AtFlags::empty()).and_then(|()| symlinkat(&to, into, name))?
                    }
                    made => made?,
                }
                Ok(())
            }
            _ => {
                complain(&format!("{}: not a file, skipped", name.to_string_lossy()));
                Ok(())
            }
        }
    }

    /// The file appears whole under its name, or not at all.
    fn file(&mut self, source: &OwnedFd, into: BorrowedFd<'_>, name: &CStr, mode: u32) -> io::Result<()> {
        let opened = regular_file::reopen(source.as_fd(), OFlags::RDONLY)?;
        let mut from = opened.ok_or_else(regular_file::not_regular)?;
        let part = CString::new([b".coracle-cp-", name.to_bytes()].concat())?;
        // What an interrupted copy left.
        let _ = unlinkat(into, &*part, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut to = File::from(openat(into, &*part, flags, Mode::RUSR | Mode::WUSR)?);
        let copied = io::copy(&mut from, &mut to).and_then(|bytes| {
            self.give(&to, mode)?;
            renameat(into, &*part, into, name)?;
            Ok(bytes)
        });
        if copied.is_err() {
            let _ = unlinkat(into, &*part, AtFlags::empty());
        }
        self.done.bytes += copied?;
        self.done.files += 1;
        Ok(())
    }

    fn directory(
        &mut self,
        source: &OwnedFd,
        into: BorrowedFd<'_>,
        name: &CStr,
        mode: u32,
        depth: usize,
    ) -> io::Result<()> {
        let is_new = match mkdirat(into, name, Mode::RWXU) {
            Err(Errno::EXIST) => false,
            made => made.map(|()| true)?,
        };
        let made = openat(into, name, DIRECTORY_FLAGS, Mode::empty())?;
        let from = openat(source, c".", DIRECTORY_FLAGS, Mode::empty())?;
        for entry in Dir::read_from(&from)? {
            let entry = entry?;
            let name = entry.file_name();
            if [c".", c".."].contains(&name) {
                continue;
            }
            let held = openat(&from, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
            self.entry(held, made.as_fd(), name, depth + 1)
                .map_err(|error| io::Error::other(format!("{}: {error}", name.to_string_lossy())))?;
        }
        if is_new {
            self.give(&File::from(made), mode)?;
        }
        Ok(())
    }

    /// Sets owner and permissions, without set-user-id.
    fn give(&self, made: &File, mode: u32) -> io::Result<()> {
        if let Some((user, group)) = self.owner {
            fchown(made, Some(user), Some(group))?;
        }
        made.set_permissions(Permissions::from_mode(mode & 0o777))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use rustix::fs::CWD;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("coracle-copy-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(path.join("container/data")).unwrap();
            fs::create_dir_all(path.join("host")).unwrap();
            Self(path)
        }

        fn root(&self, of: &str) -> OwnedFd {
            openat(CWD, self.0.join(of), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap()
        }

        fn copy(&self, from: (&str, &str), to: (&str, &str)) -> Result<Copied, String> {
            let source = hold(&self.root(from.0), Path::new(from.1)).map_err(|error| error.to_string())?;
            let name = Path::new(from.1).file_name();
            let target = Target::find(&self.root(to.0), Path::new(to.1), name).map_err(|error| error.to_string())?;
            copy(source, &target, to.0 == "container")
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn file_is_copied_to_a_name_or_into_a_directory() {
        let folder = Folder::new("file");
        fs::write(folder.0.join("host/a"), "one").unwrap();
        fs::set_permissions(folder.0.join("host/a"), Permissions::from_mode(0o4750)).unwrap();
        let one = Copied { files: 1, bytes: 3 };
        assert_eq!(folder.copy(("host", "/a"), ("container", "/data")), Ok(one));
        assert_eq!(folder.copy(("host", "/a"), ("container", "/data/b")), Ok(one));
        for name in ["a", "b"] {
            let path = folder.0.join("container/data").join(name);
            assert_eq!(fs::read_to_string(&path).unwrap(), "one");
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o750);
        }
        fs::write(folder.0.join("host/a"), "two").unwrap();
        assert_eq!(folder.copy(("host", "/a"), ("container", "/data/b")), Ok(one));
        assert_eq!(fs::read_to_string(folder.0.join("container/data/b")).unwrap(), "two");
        assert!(folder.copy(("host", "/a"), ("container", "/none/b")).is_err());
        assert!(folder.copy(("host", "/none"), ("container", "/data")).is_err());
    }

    #[test]
    fn tree_is_copied_with_its_links_and_without_its_devices() {
        let folder = Folder::new("tree");
        let data = folder.0.join("container/data");
        fs::create_dir_all(data.join("deep/er")).unwrap();
        fs::write(data.join("deep/er/file"), "x").unwrap();
        symlink("/etc/passwd", data.join("link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(data.join("socket")).unwrap();
        assert_eq!(folder.copy(("container", "/data"), ("host", "/")), Ok(Copied { files: 1, bytes: 1 }));
        let here = folder.0.join("host/data");
        assert_eq!(fs::read_to_string(here.join("deep/er/file")).unwrap(), "x");
        assert_eq!(fs::read_link(here.join("link")).unwrap(), Path::new("/etc/passwd"));
        assert!(!here.join("socket").exists());
    }

    #[test]
    fn no_link_of_a_container_leads_out_of_it() {
        let folder = Folder::new("links");
        fs::write(folder.0.join("secret"), "host").unwrap();
        fs::write(folder.0.join("host/a"), "new").unwrap();
        let data = folder.0.join("container/data");
        symlink(folder.0.join("secret"), data.join("absolute")).unwrap();
        symlink("../../secret", data.join("relative")).unwrap();
        for link in ["/data/absolute", "/data/relative"] {
            assert!(folder.copy(("container", link), ("host", "/")).is_err(), "{link}");
            // The link is replaced, its target stays.
            assert_eq!(folder.copy(("host", "/a"), ("container", link)).unwrap().files, 1);
        }
        assert_eq!(fs::read_to_string(folder.0.join("secret")).unwrap(), "host");
    }
}
