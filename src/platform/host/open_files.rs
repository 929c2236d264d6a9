//! Files that a process has open for writing, from `/proc/PID/fd`.
//!
//! A descriptor is compared by the name behind its link and by the inode in its `fdinfo`. Neither asks the file system:
//! a `stat` of a container's file on a dead NFS server would hang.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::libc::{O_ACCMODE, O_RDONLY};

use crate::types::sorted::SortedSet;

/// The last component of the real path, and the inode.
pub(crate) type NameAndInode = (OsString, u64);

/// Those of `files` that a process has open for writing. `proc`: `/proc`. What cannot be read counts as not open: a
/// process may end meanwhile, and without root only its owner's processes are seen.
pub(crate) fn open_for_writing(proc: &Path, files: &SortedSet<NameAndInode>) -> SortedSet<NameAndInode> {
    let names: SortedSet<&OsStr> = files.iter().map(|(name, _)| name.as_os_str()).collect();
    let mut open = SortedSet::new();
    let is_number = |name: &OsStr| name.to_str().is_some_and(|name| name.parse::<u32>().is_ok());
    let processes = fs::read_dir(proc).into_iter().flatten().flatten().filter(|entry| is_number(&entry.file_name()));
    for process in processes {
        let process = process.path();
        for descriptor in fs::read_dir(process.join("fd")).into_iter().flatten().flatten() {
            let Ok(target) = fs::read_link(descriptor.path()) else { continue };
            let Some(name) = target.file_name().filter(|name| names.contains(name)) else { continue };
            let info = process.join("fdinfo").join(descriptor.file_name());
            let Some(inode) = writable_inode(&info, &descriptor.path()) else { continue };
            let file = (name.to_owned(), inode);
            if files.contains(&file) {
                open.insert(file);
            }
        }
    }
    open
}

/// The inode of a descriptor that was opened for writing. `flags:` is octal; kernels before 5.14 have no `ino:`.
fn writable_inode(info: &Path, descriptor: &Path) -> Option<u64> {
    let text = fs::read_to_string(info).ok()?;
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let flags = i32::from_str_radix(value("flags:")?, 8).ok()?;
    if flags & O_ACCMODE == O_RDONLY {
        return None;
    }
    match value("ino:") {
        Some(inode) => inode.parse().ok(),
        None => fs::metadata(descriptor).ok().map(|metadata| metadata.ino()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};

    use super::*;

    #[test]
    fn only_files_open_for_writing_are_found() {
        let path = std::env::temp_dir().join(format!("coracle-open-files-{}", std::process::id()));
        let writer = File::create(&path).unwrap();
        let file = (path.file_name().unwrap().to_owned(), writer.metadata().unwrap().ino());
        let files = SortedSet::from_iter([file.clone()]);
        let is_open = || open_for_writing(Path::new("/proc"), &files).contains(&file);
        let seen = is_open();
        drop(writer);
        let reader = OpenOptions::new().read(true).open(&path).unwrap();
        let seen_by_reader = is_open();
        drop(reader);
        fs::remove_file(&path).unwrap();
        assert_eq!((seen, seen_by_reader), (true, false));
        assert!(open_for_writing(Path::new("/no/such"), &files).is_empty());
    }
}
