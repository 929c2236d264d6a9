//! How much room a file system has.

use std::io;
use std::path::Path;

/// In bytes, or in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) capacity: u64,
    /// What is left for those who are not root, as every program counts it.
    pub(crate) available: u64,
}

/// Of the file system that `path` is on. It may take long: a file server may be away.
pub(crate) fn room(path: &Path) -> io::Result<Room> {
    let stat = rustix::fs::statvfs(path)?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    let capacity = bytes(stat.f_blocks);
    Ok(Room { capacity, available: bytes(stat.f_bavail).min(capacity) })
}

/// How many files there can be and how many more there can be, in the same way.
pub(crate) fn inodes(path: &Path) -> io::Result<Room> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(Room { capacity: stat.f_files, available: stat.f_ffree.min(stat.f_files) })
}

/// All that is known of a file system, in one question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileSystem {
    pub(crate) capacity: u64,
    /// As in [`Room`].
    pub(crate) available: u64,
    /// What files hold, whoever's.
    pub(crate) used: u64,
    pub(crate) inodes: u64,
    pub(crate) inodes_free: u64,
}

/// The file system that `path` is on. It may take long, as [`room`].
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
    fn a_file_system_has_room_and_no_more_than_it_holds() {
        let room = room(&std::env::temp_dir()).expect("there is one");
        assert!(room.capacity > 0 && room.available <= room.capacity, "{room:?}");
        assert!(super::room(Path::new("/nowhere/at/all")).is_err());
    }
}
