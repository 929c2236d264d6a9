//! The time of the last beat, in a file in memory (`/run`). It survives a process that is killed without warning.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};

use crate::platform::host::clock;
use crate::platform::host::file::read_head;

/// The last beat of a process that did not end in an orderly way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastBeat {
    pub(super) pid: u32,
    /// Time since boot.
    pub(super) at: Duration,
    /// The watchdog ends a process without a beat for this long.
    pub(super) limit: Duration,
}

impl LastBeat {
    /// The content of the file, if it exists.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let bytes = read_head(path, BEAT_FILE_BYTES).ok()?;
        let mut numbers = std::str::from_utf8(&bytes).ok()?.split_whitespace().map(str::parse::<u64>);
        let pid = u32::try_from(numbers.next()?.ok()?).ok()?;
        let (at, limit) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        Some(Self { pid, at: Duration::from_millis(at), limit: Duration::from_millis(limit) })
    }
}

#[derive(Debug)]
pub(super) struct BeatFile {
    file: File,
    path: PathBuf,
}

impl BeatFile {
    /// `None` on a disk, which the writes would wear out.
    pub(super) fn create(path: &Path) -> Option<Self> {
        let folder = File::open(path.parent()?).ok()?;
        if fstatfs(folder).ok()?.filesystem_type() != TMPFS_MAGIC {
            return None;
        }
        let no_link = OFlag::O_NOFOLLOW.bits();
        let file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).custom_flags(no_link).open(path);
        Some(Self { file: file.ok()?, path: path.to_owned() })
    }

    /// Whether the beat could be written.
    pub(super) fn beat(&self, limit: Duration) -> bool {
        let (at, limit) = (clock::since_boot().as_millis(), limit.as_millis());
        let line = format!("{:>10} {at:>20} {limit:>20}\n", std::process::id());
        self.file.write_all_at(line.as_bytes(), 0).is_ok()
    }

    /// Removes the file, at an orderly end.
    pub(super) fn remove(self) {
        // Fails only if the file is already gone.
        let _ = fs::remove_file(&self.path);
    }
}

/// The exact length of a beat. Its numbers are padded, so that each beat overwrites the former one as a whole.
const BEAT_FILE_BYTES: usize = 53;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beat_is_read_back_until_the_orderly_end() {
        let path = Path::new("/dev/shm").join(format!("coracle-beat-{}", std::process::id()));
        let file = BeatFile::create(&path).unwrap();
        assert!(file.beat(Duration::from_secs(60)) && file.beat(Duration::from_secs(30)));
        let beat = LastBeat::read(&path);
        file.remove();
        let LastBeat { pid, at, limit } = beat.unwrap();
        assert_eq!((pid, limit), (std::process::id(), Duration::from_secs(30)));
        assert!(at <= clock::since_boot() && clock::since_boot() - at < Duration::from_secs(60));
        assert_eq!(LastBeat::read(&path), None);
    }

    #[test]
    fn beat_file_is_created_only_in_memory() {
        assert!(BeatFile::create(Path::new("/proc/coracle-beat")).is_none());
    }
}
