//! The disk usage of a directory.

use crate::platform::rt;
use crate::types::sorted::SortedSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The usage of a directory tree, including its root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskUsage {
    /// Allocated bytes, fewer than the size of a sparse file.
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
}

/// Most entries counted in one tree. A larger tree is underestimated, so that counting takes a bounded time.
const MOST: u64 = 500_000;
const BLOCK: u64 = 512;

/// Sums up everything below `path` on the same file system. Links are not followed, and a file with several names counts
/// once. Files removed meanwhile are not counted; a missing directory is empty.
pub(crate) fn disk_usage(path: &Path) -> io::Result<DiskUsage> {
    disk_usage_until(path, None)
}

/// As [`disk_usage`], but stops at `end` and returns the sum so far.
pub(crate) fn disk_usage_until(path: &Path, end: Option<Instant>) -> io::Result<DiskUsage> {
    let root = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(DiskUsage::default()),
        root => root?,
    };
    let mut found = DiskUsage { bytes: root.blocks().saturating_mul(BLOCK), inodes: 1 };
    let mut linked = SortedSet::new();
    let mut directories: Vec<PathBuf> = if root.is_dir() { vec![path.to_owned()] } else { Vec::new() };
    while let Some(directory) = directories.pop() {
        if end.is_some_and(|end| rt::now() >= end) {
            return Ok(found);
        }
        // The directory's owner may have replaced it by a link.
        let Ok(opened) = open_directory(&directory) else { continue };
        if opened.metadata()?.dev() != root.dev() {
            continue;
        }
        for entry in fs::read_dir(format!("/proc/self/fd/{}", opened.as_raw_fd()))?.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.dev() != root.dev()
                || metadata.nlink() > 1 && !metadata.is_dir() && !linked.insert(metadata.ino())
            {
                continue;
            }
            found.bytes = found.bytes.saturating_add(metadata.blocks().saturating_mul(BLOCK));
            found.inodes += 1;
            if found.inodes >= MOST {
                return Ok(found);
            }
            if metadata.is_dir() {
                directories.push(directory.join(entry.file_name()));
            }
        }
    }
    Ok(found)
}

fn open_directory(path: &Path) -> io::Result<File> {
    let flags = nix::fcntl::OFlag::O_DIRECTORY | nix::fcntl::OFlag::O_NOFOLLOW;
    OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn hard_links_count_once_and_symlinks_are_not_followed() {
        let root = std::env::temp_dir().join(format!("coracle-disk-usage-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join("a/b")).unwrap();
        let empty = disk_usage(&root).unwrap();
        assert_eq!(empty.inodes, 3);
        fs::write(root.join("a/b/file"), vec![1; 100_000]).unwrap();
        fs::hard_link(root.join("a/b/file"), root.join("again")).unwrap();
        symlink("/", root.join("link")).unwrap();
        let full = disk_usage(&root).unwrap();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(full.inodes, 5, "the file and the link");
        let more = full.bytes - empty.bytes;
        assert!((100_000..200_000).contains(&more), "{more}");
        assert_eq!(disk_usage(&root).unwrap(), DiskUsage::default());
    }
}
