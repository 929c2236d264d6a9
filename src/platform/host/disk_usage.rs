//! The disk usage of a directory tree whose content may be hostile.
//!
//! A walk goes down one path at a time and holds open descriptors of it: memory and descriptors are bounded for trees of
//! any width and depth.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, SeekFrom, Stat, fstat, openat, seek, statat, tell};
use rustix::io::Errno;

use crate::platform::rt;
use crate::types::sorted::SortOnce;

/// The usage of a directory tree, including its root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskUsage {
    /// Allocated bytes, fewer than the size of a sparse file.
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
}

/// Most entries counted in one tree, hard links included: as many as ext4 has inodes on 8 GB. A larger tree is
/// underestimated.
const MAX_COUNTED_ENTRIES: u64 = 500_000;
/// The unit of `st_blocks`, whatever the block size of the file system (stat(2)).
const STAT_BLOCK_BYTES: u64 = 512;
/// Open descriptors of the path that a walk is at.
const MAX_OPEN_LEVELS: usize = 32;
/// Bytes of names of directories that were read and not yet entered, on all levels.
const MAX_PENDING_NAME_BYTES: usize = 1 << 20;
/// Number of inodes with several names that are counted once. For further ones, each name counts as its share of the
/// file.
const MAX_LINKED_INODES: usize = 1 << 16;
/// Entries between two reads of the clock.
const ENTRIES_PER_CLOCK_READ: u64 = 256;

/// Sums up everything below `path` on the same file system until `end`, and returns the sum so far then. Links are not
/// followed, and a file with several names counts once. Files removed meanwhile are not counted; a missing directory is
/// empty.
pub(crate) fn disk_usage(path: &Path, end: Instant) -> io::Result<DiskUsage> {
    let root = match statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(DiskUsage::default()),
        root => root?,
    };
    let mut walk = Walk::new(id(&root).0, &root, end);
    if is_directory(&root) {
        // The directory's owner may have replaced it by a link.
        match openat(CWD, path, WALK_OPEN_FLAGS, Mode::empty()) {
            Ok(opened) => walk.tree(opened)?,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(walk.sum())
}

struct Walk {
    device: u64,
    end: Instant,
    /// Entries seen, including all names of a file with several.
    entries: u64,
    usage: DiskUsage,
    /// Inode and bytes of each name of a file that has several.
    linked: Vec<(u64, u64)>,
    /// `linked` is full, and sorted.
    is_full: bool,
    /// Length of the names on all levels.
    names: usize,
}

/// A directory on the path that the walk is at.
struct Level {
    /// `None`: closed, because the path is long.
    opened: Option<OwnedFd>,
    /// Device and inode, to recognize the directory when it is opened again.
    id: (u64, u64),
    /// Where to read on once it is opened again.
    position: u64,
    /// Names of subdirectories that were read, each ending in NUL.
    names: Vec<u8>,
}

/// A bound was reached, or the way back is lost.
struct Full;

impl Walk {
    fn new(device: u64, root: &Stat, end: Instant) -> Self {
        let found = DiskUsage { bytes: size(root), inodes: 1 };
        Self { device, end, entries: 1, usage: found, linked: Vec::new(), is_full: false, names: 0 }
    }

    fn tree(&mut self, root: OwnedFd) -> io::Result<()> {
        let mut path = vec![Level::new(root)?];
        // One buffer for all levels: a level is read up to the end of the buffer before its subdirectories are entered.
        let mut buffer = Vec::with_capacity(8 * 1024);
        while !path.is_empty() && self.step(&mut path, &mut buffer).is_ok() {}
        Ok(())
    }

    /// Enters the next directory, reads further names, or goes back.
    fn step(&mut self, path: &mut Vec<Level>, buffer: &mut Vec<u8>) -> Result<(), Full> {
        let level = path.last_mut().ok_or(Full)?;
        let name = level.next_name();
        let opened = level.opened.as_ref().ok_or(Full)?;
        if let Some(name) = name {
            self.names = self.names.saturating_sub(name.len());
            if let Some(child) = CStr::from_bytes_with_nul(&name).ok().and_then(|name| self.enter(opened, name)) {
                path.push(child);
                close_one(path);
            }
            return Ok(());
        }
        match self.read(opened.as_fd(), buffer)? {
            Some(names) => {
                self.names = self.names.saturating_add(names.len());
                level.names = names;
                if self.names > MAX_PENDING_NAME_BYTES { Err(Full) } else { Ok(()) }
            }
            None => {
                leave(path);
                Ok(())
            }
        }
    }

    fn enter(&self, parent: &OwnedFd, name: &CStr) -> Option<Level> {
        let level = Level::new(openat(parent, name, WALK_OPEN_FLAGS, Mode::empty()).ok()?).ok()?;
        (level.id.0 == self.device).then_some(level)
    }

    /// Counts the next entries of a directory. Returns the names of its subdirectories among them; `None` at the end.
    fn read(&mut self, directory: BorrowedFd<'_>, buffer: &mut Vec<u8>) -> Result<Option<Vec<u8>>, Full> {
        let mut names = Vec::new();
        let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
        loop {
            // A directory that cannot be read further counts as far as it was read.
            let Some(Ok(entry)) = entries.next() else { return Ok((!names.is_empty()).then_some(names)) };
            let name = entry.file_name();
            if name.to_bytes() != b"." && name.to_bytes() != b".." {
                self.entries += 1;
                if self.entries >= MAX_COUNTED_ENTRIES
                    || self.entries % ENTRIES_PER_CLOCK_READ == 0 && rt::now() >= self.end
                {
                    return Err(Full);
                }
                if let Ok(stat) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                    if id(&stat).0 == self.device {
                        self.count(&stat);
                        if is_directory(&stat) {
                            names.extend_from_slice(name.to_bytes_with_nul());
                        }
                    }
                }
            }
            if entries.is_buffer_empty() && !names.is_empty() {
                return Ok(Some(names));
            }
        }
    }

    fn count(&mut self, stat: &Stat) {
        let (links, inode, bytes) = (wide(stat.st_nlink), wide(stat.st_ino), size(stat));
        if links < 2 || is_directory(stat) {
            self.usage.bytes = self.usage.bytes.saturating_add(bytes);
            self.usage.inodes += 1;
        } else if !self.is_full {
            self.linked.push((inode, bytes));
            if self.linked.len() == MAX_LINKED_INODES {
                self.each_once();
                // A list that stayed longer than this would be sorted again for ever fewer names.
                self.is_full = self.linked.len() > MAX_LINKED_INODES / 2;
            }
        } else if self.linked.binary_search_by_key(&inode, |(linked_inode, _)| *linked_inode).is_err() {
            self.usage.bytes = self.usage.bytes.saturating_add(bytes / links);
        }
    }

    fn each_once(&mut self) {
        self.linked.sort_once();
        self.linked.dedup_by_key(|(inode, _)| *inode);
    }

    fn sum(mut self) -> DiskUsage {
        self.each_once();
        let linked = self.linked.iter().fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes));
        DiskUsage {
            bytes: self.usage.bytes.saturating_add(linked),
            inodes: self.usage.inodes.saturating_add(wide(self.linked.len())),
        }
    }
}

impl Level {
    fn new(opened: OwnedFd) -> io::Result<Self> {
        let stat = fstat(&opened)?;
        Ok(Self { opened: Some(opened), id: id(&stat), position: 0, names: Vec::new() })
    }

    fn next_name(&mut self) -> Option<Vec<u8>> {
        let end = self.names.iter().position(|byte| *byte == 0)?;
        let rest = self.names.split_off(end + 1);
        Some(std::mem::replace(&mut self.names, rest))
    }

    /// Opens the directory again from one below it, unless that was moved elsewhere.
    fn reopen(&mut self, below: &OwnedFd) -> io::Result<()> {
        let opened = openat(below, "..", WALK_OPEN_FLAGS, Mode::empty())?;
        if id(&fstat(&opened)?) == self.id {
            seek(&opened, SeekFrom::Start(self.position))?;
            self.opened = Some(opened);
        }
        Ok(())
    }
}

/// Closes the directory that is [`MAX_OPEN_LEVELS`] above the last one.
fn close_one(path: &mut [Level]) {
    let above = path.len().checked_sub(MAX_OPEN_LEVELS + 1);
    let Some(level) = above.and_then(|index| path.get_mut(index)) else { return };
    let Some(position) = level.opened.as_ref().and_then(|opened| tell(opened).ok()) else { return };
    level.position = position;
    level.opened = None;
}

/// Goes back to the directory above. It stays closed if it cannot be found again.
fn leave(path: &mut Vec<Level>) {
    let below = path.pop().and_then(|level| level.opened);
    if let Some((above, below)) = path.last_mut().zip(below) {
        if above.opened.is_none() {
            let _ = above.reopen(&below);
        }
    }
}

fn id(stat: &Stat) -> (u64, u64) {
    (wide(stat.st_dev), wide(stat.st_ino))
}

fn size(stat: &Stat) -> u64 {
    wide(stat.st_blocks).saturating_mul(STAT_BLOCK_BYTES)
}

fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// The integers of `Stat` differ between machines.
fn wide(number: impl TryInto<u64>) -> u64 {
    number.try_into().unwrap_or(u64::MAX)
}

const WALK_OPEN_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;
    use crate::platform::host::remove_tree::remove_tree;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("coracle-disk-usage-{name}-{}", std::process::id()));
            let _ = remove_tree(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = remove_tree(&self.0);
        }
    }

    const HOUR: Duration = Duration::from_secs(3600);

    fn usage(path: &Path) -> DiskUsage {
        disk_usage(path, rt::now() + HOUR).unwrap()
    }

    #[test]
    fn hard_links_count_once_and_symlinks_are_not_followed() {
        let root = Scratch::new("links");
        let path = &root.0;
        fs::create_dir_all(path.join("a/b")).unwrap();
        let empty = usage(path);
        assert_eq!(empty.inodes, 3);
        fs::write(path.join("a/b/file"), vec![1; 100_000]).unwrap();
        fs::hard_link(path.join("a/b/file"), path.join("again")).unwrap();
        symlink("/", path.join("link")).unwrap();
        let full = usage(path);
        assert_eq!(full.inodes, 5, "the file and the link");
        let more = full.bytes - empty.bytes;
        assert!((100_000..200_000).contains(&more), "{more}");
        assert_eq!(usage(&path.join("missing")), DiskUsage::default());
        assert_eq!(usage(&path.join("again")).inodes, 1);
    }

    /// A chain of `depth` directories, each with two empty ones beside the next.
    fn deep(path: &Path, depth: usize) {
        let mut here = openat(CWD, path, WALK_OPEN_FLAGS, Mode::empty()).unwrap();
        for _ in 0..depth {
            for name in ["a", "next", "z"] {
                rustix::fs::mkdirat(&here, name, Mode::RWXU).unwrap();
            }
            here = openat(&here, "next", WALK_OPEN_FLAGS, Mode::empty()).unwrap();
        }
    }

    #[test]
    fn tree_deeper_than_the_open_descriptors_is_counted_whole() {
        let root = Scratch::new("deep");
        deep(&root.0, 500);
        assert_eq!(usage(&root.0).inodes, 1 + 500 * 3);
    }

    #[test]
    fn wide_directory_below_a_long_path_takes_no_memory_for_its_path() {
        const SIBLINGS: u64 = 10_000;
        let root = Scratch::new("wide");
        let mut here = openat(CWD, &root.0, WALK_OPEN_FLAGS, Mode::empty()).unwrap();
        let name = "n".repeat(250);
        for _ in 0..14 {
            rustix::fs::mkdirat(&here, name.as_str(), Mode::RWXU).unwrap();
            here = openat(&here, name.as_str(), WALK_OPEN_FLAGS, Mode::empty()).unwrap();
        }
        for number in 0..SIBLINGS {
            rustix::fs::mkdirat(&here, format!("{number}"), Mode::RWXU).unwrap();
        }
        assert_eq!(usage(&root.0).inodes, 1 + 14 + SIBLINGS);
    }

    #[test]
    fn walk_holds_few_descriptors_of_a_deep_tree() {
        let root = Scratch::new("descriptors");
        deep(&root.0, 100);
        let found = statat(CWD, &root.0, AtFlags::empty()).unwrap();
        let mut walk = Walk::new(id(&found).0, &found, rt::now() + HOUR);
        let mut path = vec![Level::new(openat(CWD, &root.0, WALK_OPEN_FLAGS, Mode::empty()).unwrap()).unwrap()];
        let (mut buffer, mut most, mut deepest) = (Vec::with_capacity(8 * 1024), 0, 0);
        while !path.is_empty() {
            assert!(walk.step(&mut path, &mut buffer).is_ok());
            most = most.max(path.iter().filter(|level| level.opened.is_some()).count());
            deepest = deepest.max(path.len());
        }
        assert_eq!((most, deepest), (MAX_OPEN_LEVELS, 101));
    }

    #[test]
    fn walk_ends_when_it_has_seen_or_holds_too_much() {
        let root = Scratch::new("full");
        deep(&root.0, 50);
        let found = statat(CWD, &root.0, AtFlags::empty()).unwrap();
        let sum = |seen: u64, names: usize| {
            let mut walk = Walk { entries: seen, names, ..Walk::new(id(&found).0, &found, rt::now() + HOUR) };
            walk.tree(openat(CWD, &root.0, WALK_OPEN_FLAGS, Mode::empty()).unwrap()).unwrap();
            walk.sum().inodes
        };
        assert_eq!(sum(0, 0), 151);
        assert_eq!(sum(MAX_COUNTED_ENTRIES - 10, 0), 1 + 9);
        assert_eq!(sum(0, MAX_PENDING_NAME_BYTES), 1 + 3, "the names of the first directory are too many");
    }

    #[test]
    fn walk_ends_at_its_deadline_with_the_sum_so_far() {
        let root = Scratch::new("late");
        (0..2000).for_each(|number| fs::write(root.0.join(format!("{number}")), "").unwrap());
        let found = disk_usage(&root.0, rt::now()).unwrap();
        assert!((2..=ENTRIES_PER_CLOCK_READ).contains(&found.inodes), "{found:?}");
    }

    #[test]
    fn names_of_linked_files_count_as_entries_and_their_table_is_bounded() {
        let mut file = statat(CWD, "/dev/null", AtFlags::empty()).unwrap();
        let mut walk = Walk::new(0, &file, rt::now());
        (file.st_nlink, file.st_blocks) = (2, 8);
        for number in 0..3 * wide(MAX_LINKED_INODES) {
            file.st_ino = number % 98_304;
            walk.count(&file);
        }
        assert!(walk.linked.len() <= MAX_LINKED_INODES);
        let sum = walk.sum();
        let exact = 98_304 * 8 * STAT_BLOCK_BYTES;
        assert!((exact * 9 / 10..=exact * 11 / 10).contains(&sum.bytes), "{sum:?}");
    }
}
