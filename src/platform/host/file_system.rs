//! Capacity and free space of file systems.

use std::io;
use std::path::Path;

/// Bytes or inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiskSpace {
    pub(crate) capacity: u64,
    /// What is available to users other than root.
    pub(crate) available: u64,
}

/// The space on the file system of `path`. May block for long on a network file system.
pub(crate) fn room(path: &Path) -> io::Result<DiskSpace> {
    let stat = rustix::fs::statvfs(path)?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    let capacity = bytes(stat.f_blocks);
    Ok(DiskSpace { capacity, available: bytes(stat.f_bavail).min(capacity) })
}

/// The inodes on the file system of `path`.
pub(crate) fn inodes(path: &Path) -> io::Result<DiskSpace> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(DiskSpace { capacity: stat.f_files, available: stat.f_ffree.min(stat.f_files) })
}

/// Space and inodes of a file system, from one system call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileSystem {
    pub(crate) capacity: u64,
    /// As in [`DiskSpace`].
    pub(crate) available: u64,
    /// Bytes used by all users.
    pub(crate) used: u64,
    pub(crate) inodes: u64,
    pub(crate) inodes_free: u64,
}

/// The file system of `path`. May block for long, as [`room`].
pub(crate) fn file_system(path: &Path) -> io::Result<FileSystem> {
    let stat = rustix::fs::statvfs(path)?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    let capacity = bytes(stat.f_blocks);
    Ok(FileSystem {
        capacity,
        available: bytes(stat.f_bavail).min(capacity),
        used: capacity.saturating_sub(bytes(stat.f_bfree)),
        inodes: stat.f_files,
        inodes_free: stat.f_ffree.min(stat.f_files),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_space_is_at_most_the_capacity() {
        let room = room(&std::env::temp_dir()).expect("there is one");
        assert!(room.capacity > 0 && room.available <= room.capacity, "{room:?}");
        assert!(super::room(Path::new("/nowhere/at/all")).is_err());
    }
}
