//! The daily byte budget. Days are counted by the boot clock, and a restarted agent continues the same day.
//! A step of the wall clock neither ends a day nor lengthens it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::platform::host::{clock, file};
use crate::platform::rt;
use crate::types::error::ErrorChain;

const BYTE_BUDGET_DAY: Duration = Duration::from_secs(24 * 3600);
/// The day's record is written after each of this many parts of the budget: a restart forgets at most one part.
const BYTE_BUDGET_PARTS: u64 = 32;
/// Longest record, in bytes.
const MAX_BUDGET_RECORD_BYTES: u64 = 256;

/// When the day started, the traffic counter at that time, and the bytes that earlier agents used on the same day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ByteDay {
    begun: Duration,
    before: u64,
    earlier: u64,
}

impl ByteDay {
    pub(super) fn new(now: Duration, counted: u64) -> Self {
        Self { begun: now, before: counted, earlier: 0 }
    }

    pub(super) fn left(self, now: Duration) -> Duration {
        BYTE_BUDGET_DAY.saturating_sub(now.saturating_sub(self.begun))
    }

    pub(super) fn used(self, counted: u64) -> u64 {
        counted.saturating_sub(self.before).saturating_add(self.earlier)
    }

    /// The traffic counter's value at which `used` bytes of the day are used.
    pub(super) fn counted_at(self, used: u64) -> u64 {
        used.saturating_sub(self.earlier).saturating_add(self.before)
    }

    /// Parses `BOOT-ID SECONDS BYTES`; `None` if malformed.
    fn read(record: &str, boot: &str, now: Duration) -> Option<Self> {
        let mut words = record.split_ascii_whitespace();
        let [of, begun, earlier] = [words.next()?, words.next()?, words.next()?];
        let day = Self { begun: Duration::from_secs(begun.parse().ok()?), before: 0, earlier: earlier.parse().ok()? };
        // A record of another boot or of a past day does not count.
        let is_today = of == boot && day.begun <= now && !day.left(now).is_zero();
        Some(if is_today { day } else { Self::new(now, 0) })
    }

    fn write(self, boot: &str, counted: u64) -> String {
        format!("{boot} {} {}\n", self.begun.as_secs(), self.used(counted))
    }
}

/// The file with the day's record, on a file system that a reboot clears, so that flash is not worn.
#[derive(Debug)]
pub(super) struct DayRecord {
    path: PathBuf,
    boot: String,
}

impl DayRecord {
    /// The record beside the local socket.
    pub(super) fn beside(socket: &Path) -> Self {
        let mut path = socket.as_os_str().to_owned();
        path.push(".bytes");
        Self { path: path.into(), boot: clock::boot_id() }
    }

    /// The current day, continued from the record if it is still valid.
    pub(super) fn read(&self) -> ByteDay {
        let now = clock::uptime();
        let day = match file::read_all(&self.path, MAX_BUDGET_RECORD_BYTES) {
            Ok(bytes) => ByteDay::read(&String::from_utf8_lossy(&bytes), &self.boot, now)
                .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "expected BOOT-ID SECONDS BYTES")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(ByteDay::new(now, 0)),
            Err(error) => Err(error),
        };
        day.unwrap_or_else(|error| {
            let path = self.path.display();
            log!(
                warn,
                "failed to read today's byte count, starting from zero",
                path = path,
                error = ErrorChain(&error)
            );
            ByteDay::new(now, 0)
        })
    }

    pub(super) async fn write(&self, day: ByteDay, counted: u64) {
        let (path, record) = (self.path.clone(), day.write(&self.boot, counted));
        if let Err(error) = rt::blocking(move || file::replace(&path, record.as_bytes())).await {
            log!(warn, "failed to write today's byte count", path = self.path.display(), error = ErrorChain(&error));
        }
    }
}

/// The number of used bytes at which the record is written next.
pub(super) fn next_write(budget: u64, used: u64) -> u64 {
    let part = (budget / BYTE_BUDGET_PARTS).max(1);
    (used / part).saturating_add(1).saturating_mul(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn day_continues_only_with_the_next_agent_of_the_same_boot() {
        let record = ByteDay::new(HOUR, 500).write("boot", 1700);
        assert_eq!(record, "boot 3600 1200\n");
        let read = |boot: &str, hours| ByteDay::read(&record, boot, hours * HOUR).unwrap();
        let day = read("boot", 3);
        assert_eq!((day.used(0), day.used(300), day.left(3 * HOUR)), (1200, 1500, 22 * HOUR));
        assert_eq!((day.counted_at(1500), day.counted_at(1000)), (300, 0));
        // Another boot, a past day, a day in the future.
        assert_eq!([read("other", 3), read("boot", 25)].map(|day| day.used(0)), [0, 0]);
        assert_eq!(ByteDay::read(&record, "boot", HOUR / 2).unwrap().used(0), 0);
        for damaged in ["", "boot", "boot 1", "boot -1 5", "boot 1 x", "\u{fffd}"] {
            assert_eq!(ByteDay::read(damaged, "boot", HOUR), None, "{damaged:?}");
        }
    }

    #[test]
    fn record_is_written_with_each_part_of_a_budget() {
        assert_eq!([0, 99, 100, 3199].map(|used| next_write(3200, used)), [100, 100, 200, 3200]);
        assert_eq!([next_write(0, 7), next_write(u64::MAX, u64::MAX)], [8, u64::MAX]);
    }
}
