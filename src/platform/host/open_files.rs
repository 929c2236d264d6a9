//! Files that a process has open for writing, from `/proc/PID/fd`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::libc::{O_ACCMODE, O_RDONLY};

use crate::types::sorted::SortedSet;

/// Device and inode.
pub(crate) type FileId = (u64, u64);

/// Those of `files` that a process has open for writing. `proc`: `/proc`. What cannot be read counts as not open: a
/// process may end meanwhile, and without root only its owner's processes are seen.
pub(crate) fn open_for_writing(proc: &Path, files: &SortedSet<FileId>) -> SortedSet<FileId> {
    let mut open = SortedSet::new();
    let is_number = |name: &std::ffi::OsStr| name.to_str().is_some_and(|name| name.parse::<u32>().is_ok());
    let processes = fs::read_dir(proc).into_iter().flatten().flatten().filter(|entry| is_number(&entry.file_name()));
    for process in processes {
        let process = process.path();
        for descriptor in fs::read_dir(process.join("fd")).into_iter().flatten().flatten() {
            let Ok(metadata) = fs::metadata(descriptor.path()) else { continue };
            let file = (metadata.dev(), metadata.ino());
            if files.contains(&file) && is_writable(&process.join("fdinfo").join(descriptor.file_name())) {
                open.insert(file);
            }
        }
    }
    open
}

/// Whether the descriptor of this `fdinfo` file was opened for writing: its line `flags:` is octal.
fn is_writable(info: &Path) -> bool {
    let text = fs::read_to_string(info).unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok()).is_some_and(|flags| flags & O_ACCMODE != O_RDONLY)
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};

    use super::*;

    #[test]
    fn only_files_open_for_writing_are_found() {
        let path = std::env::temp_dir().join(format!("coracle-open-files-{}", std::process::id()));
        let writer = File::create(&path).unwrap();
        let metadata = writer.metadata().unwrap();
        let file = (metadata.dev(), metadata.ino());
        let is_open = || open_for_writing(Path::new("/proc"), &SortedSet::from_iter([file])).contains(&file);
        let seen = is_open();
        drop(writer);
        let reader = OpenOptions::new().read(true).open(&path).unwrap();
        let seen_by_reader = is_open();
        drop(reader);
        fs::remove_file(&path).unwrap();
        assert_eq!((seen, seen_by_reader), (true, false));
        assert!(open_for_writing(Path::new("/no/such"), &SortedSet::from_iter([file])).is_empty());
    }
}
