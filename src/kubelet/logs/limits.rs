//! Log size limits, and the time of the next check. Pure.

use std::time::Duration;

/// Limits for the log of one container run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogLimits {
    /// A file of this size is rotated.
    pub(crate) file_bytes: u64,
    /// Maximum number of files, including the current one.
    pub(crate) files: u32,
    /// Number of logs rotated concurrently.
    pub(crate) workers: u32,
    /// Check interval for logs that inotify does not cover.
    pub(crate) interval: Duration,
}

/// Fastest growth for which the limit holds, in bytes a second.
const MAX_BYTES_PER_SECOND: u64 = 64_000_000;
const MIN_LOG_LIMIT_INTERVAL: Duration = Duration::from_millis(20);

impl LogLimits {
    /// Limit of all files together, in bytes.
    pub(super) fn total(&self) -> u64 {
        self.file_bytes.saturating_mul(u64::from(self.files))
    }

    /// The number of rotated files to remove, oldest first, given a current file of `current` bytes.
    /// `rotates`: the current file is about to be rotated too.
    pub(super) fn surplus(&self, full: &[u64], current: u64, rotates: bool) -> usize {
        let kept = usize::try_from(self.files).unwrap_or(usize::MAX).saturating_sub(if rotates { 2 } else { 1 });
        let by_number = full.len().saturating_sub(kept);
        let mut bytes: u128 = full.iter().map(|file| u128::from(*file)).sum::<u128>() + u128::from(current);
        let by_size = full.iter().take_while(|file| {
            let too_many = bytes > u128::from(self.total());
            bytes -= u128::from(**file);
            too_many
        });
        by_size.count().max(by_number)
    }

    /// The size at which the current file must be handled, given rotated files of `full` bytes.
    pub(super) fn threshold(&self, full: u64) -> u64 {
        // If the rotated files alone exceed the limit, they are handled at once, even with an empty current file.
        self.file_bytes.min(self.total().checked_sub(full).map_or(0, |room| room.saturating_add(1)))
    }

    /// The delay until the next check: until then a log growing at `MAX_BYTES_PER_SECOND` exceeds its limit by at most a
    /// twentieth.
    pub(super) fn next_look(&self, size: u64, threshold: u64) -> Duration {
        let room = threshold.saturating_sub(size).saturating_add(self.total() / 20);
        let micros = room / (MAX_BYTES_PER_SECOND / 1_000_000);
        Duration::from_micros(micros).clamp(MIN_LOG_LIMIT_INTERVAL, self.interval.max(MIN_LOG_LIMIT_INTERVAL))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: LogLimits = LogLimits { file_bytes: 100, files: 5, workers: 1, interval: Duration::from_secs(10) };

    #[test]
    fn number_of_files_stays_within_the_limit() {
        assert_eq!(LIMITS.surplus(&[100; 4], 50, false), 0);
        assert_eq!(LIMITS.surplus(&[100; 4], 100, true), 1);
        assert_eq!(LIMITS.surplus(&[10; 9], 0, false), 5);
        assert_eq!(LIMITS.surplus(&[], 1000, true), 0);
    }

    #[test]
    fn oversized_files_remove_the_oldest() {
        assert_eq!(LIMITS.surplus(&[150, 150, 150], 50, false), 0);
        assert_eq!(LIMITS.surplus(&[150, 150, 150], 51, false), 1);
        assert_eq!(LIMITS.surplus(&[600, 1, 1], 1, false), 1);
        assert_eq!(LIMITS.surplus(&[u64::MAX, u64::MAX], 1, false), 2);
    }

    #[test]
    fn threshold_is_the_file_limit_or_the_rest_of_the_total() {
        assert_eq!(LIMITS.threshold(0), 100);
        assert_eq!(LIMITS.threshold(400), 100);
        assert_eq!(LIMITS.threshold(450), 51);
        assert_eq!(LIMITS.threshold(500), 1);
        assert_eq!(LIMITS.threshold(501), 0);
    }

    #[test]
    fn next_check_comes_before_the_limit_is_exceeded() {
        let limits = LogLimits { file_bytes: 10 << 20, ..LIMITS };
        for size in [0, 1 << 20, 9 << 20, (10 << 20) - 1] {
            let wait = limits.next_look(size, 10 << 20);
            let grown = size as f64 + wait.as_secs_f64() * 50e6;
            assert!(grown < (10 << 20) as f64 + limits.total() as f64 / 20.0, "{size}: {wait:?}");
        }
        assert!(limits.next_look(0, 10 << 20) > Duration::from_millis(150));
        assert_eq!(limits.next_look(1 << 40, 0), Duration::from_micros(limits.total() / 20 / 64));
        assert_eq!(LIMITS.next_look(0, 100), MIN_LOG_LIMIT_INTERVAL);
        let huge = LogLimits { file_bytes: u64::MAX, ..LIMITS };
        assert_eq!(huge.next_look(0, huge.threshold(0)), huge.interval);
    }
}
