//! Opens regular files and nothing else.
//!
//! A container may place a pipe or a device where the agent expects a file, and opening some devices has an effect:
//! the hardware watchdog begins to count and resets the machine. So the file is held with `O_PATH`, which opens nothing,
//! until its type is known.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;

/// Opens the file at `path` with `flags`; `None` if there is something else. A link is not followed.
pub(crate) fn open(path: &Path, flags: OFlags) -> io::Result<Option<File>> {
    let held = openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    reopen(held.as_fd(), flags)
}

/// Opens a file that is held with `O_PATH`; `None` if it is no regular file.
pub(crate) fn reopen(file: BorrowedFd<'_>, flags: OFlags) -> io::Result<Option<File>> {
    match FileType::from_raw_mode(fstat(file)?.st_mode) {
        FileType::RegularFile => Ok(Some(same(file, flags)?.into())),
        _ => Ok(None),
    }
}

/// The error for callers to which anything but a regular file is one.
pub(crate) fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}

/// Opens the held file, whatever has its name by now.
pub(super) fn same(file: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
    openat(CWD, format!("/proc/self/fd/{}", file.as_raw_fd()), flags | OFlags::CLOEXEC, Mode::empty())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_a_regular_file_is_opened() {
        let top = std::env::temp_dir().join(format!("coracle-regular-{}", std::process::id()));
        fs::create_dir_all(&top).expect("a directory of our own");
        fs::write(top.join("file"), "text").expect("a file of our own");
        symlink("file", top.join("link")).expect("a link of our own");
        nix::unistd::mkfifo(&top.join("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("a pipe of our own");
        // To open a socket is an error.
        let _listener = UnixListener::bind(top.join("socket")).expect("a socket of our own");
        let opened = |name: &str| open(&top.join(name), OFlags::RDONLY).map(|file| file.is_some());
        let found = ["file", "link", "pipe", "socket", "."].map(|name| opened(name).ok());
        let missing = opened("missing").expect_err("there is none").kind();
        let mut text = String::new();
        let file = open(&top.join("file"), OFlags::RDONLY).expect("it is there").expect("it is a file");
        { &file }.read_to_string(&mut text).expect("it can be read");
        fs::remove_dir_all(&top).expect("our own directory");
        assert_eq!(found, [Some(true), Some(false), Some(false), Some(false), Some(false)]);
        assert_eq!((missing, text.as_str()), (io::ErrorKind::NotFound, "text"));
    }
}
