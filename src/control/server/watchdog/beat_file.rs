//! The moment of the last beat, in memory (`/run`): it outlives a process that could not say a word before its end.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};

use crate::platform::host::clock;
use crate::platform::host::file::read_head;

/// The beat of a process that has not come to an orderly end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastBeat {
    pub(super) pid: u32,
    /// On the clock of this boot.
    pub(super) at: Duration,
    /// A process without a beat for this long is ended by its watchdog.
    pub(super) limit: Duration,
}

impl LastBeat {
    /// What the file has, if there is one.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let bytes = read_head(path, LENGTH).ok()?;
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
    /// None on a disk: it would wear out.
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

    /// Whether it could be noted.
    pub(super) fn beat(&self, limit: Duration) -> bool {
        let (at, limit) = (clock::since_boot().as_millis(), limit.as_millis());
        let line = format!("{:>10} {at:>20} {limit:>20}\n", std::process::id());
        self.file.write_all_at(line.as_bytes(), 0).is_ok()
    }

    /// At an orderly end.
    pub(super) fn remove(self) {
        // It can only be gone already.
        let _ = fs::remove_file(&self.path);
    }
}

const LENGTH: usize = 53;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beat_is_read_back_until_the_orderly_end() {
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
    fn there_is_none_outside_of_memory() {
        assert!(BeatFile::create(Path::new("/proc/coracle-beat")).is_none());
    }
}
