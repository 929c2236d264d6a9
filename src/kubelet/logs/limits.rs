//! How large a log may become, and when it is looked at next. Pure.

use std::time::Duration;

/// What the logs of one run of a container may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogLimits {
    /// A file that is as large as this is full.
    pub(crate) file_bytes: u64,
    /// How many files there may be, the one that is written included.
    pub(crate) files: u32,
    /// How many logs are rotated at once.
    pub(crate) workers: u32,
    /// How often logs are looked at that the kernel tells nothing of.
    pub(crate) interval: Duration,
}

/// As fast as a log may grow and still keep its limit.
const FASTEST: u64 = 64_000_000;
const SHORTEST: Duration = Duration::from_millis(20);

impl LogLimits {
    /// The limit of all files together.
    pub(super) fn total(&self) -> u64 {
        self.file_bytes.saturating_mul(u64::from(self.files))
    }

    /// How many of the full files, the oldest first, have to go beside a current one of so many bytes. With `rotates`
    /// that one is about to become one of them.
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

    /// The size at which the current file has to be seen to, beside full ones of so many bytes.
    pub(super) fn threshold(&self, full: u64) -> u64 {
        // Full files that are too much already are seen to at once, even beside an empty one.
        self.file_bytes.min(self.total().checked_sub(full).map_or(0, |room| room.saturating_add(1)))
    }

    /// Until then nothing that grows no faster than anything does can go over its limit by more than a twentieth.
    pub(super) fn next_look(&self, size: u64, threshold: u64) -> Duration {
        let room = threshold.saturating_sub(size).saturating_add(self.total() / 20);
        let micros = room / (FASTEST / 1_000_000);
        Duration::from_micros(micros).clamp(SHORTEST, self.interval.max(SHORTEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: LogLimits = LogLimits { file_bytes: 100, files: 5, workers: 1, interval: Duration::from_secs(10) };

    #[test]
    fn there_are_never_more_files_than_may_be() {
        assert_eq!(LIMITS.surplus(&[100; 4], 50, false), 0);
        assert_eq!(LIMITS.surplus(&[100; 4], 100, true), 1);
        assert_eq!(LIMITS.surplus(&[10; 9], 0, false), 5);
        assert_eq!(LIMITS.surplus(&[], 1000, true), 0);
    }

    #[test]
    fn files_that_grew_too_large_cost_the_oldest() {
        assert_eq!(LIMITS.surplus(&[150, 150, 150], 50, false), 0);
        assert_eq!(LIMITS.surplus(&[150, 150, 150], 51, false), 1);
        assert_eq!(LIMITS.surplus(&[600, 1, 1], 1, false), 1);
        assert_eq!(LIMITS.surplus(&[u64::MAX, u64::MAX], 1, false), 2);
    }

    #[test]
    fn a_log_is_seen_to_when_its_file_or_all_of_it_is_full() {
        assert_eq!(LIMITS.threshold(0), 100);
        assert_eq!(LIMITS.threshold(400), 100);
        assert_eq!(LIMITS.threshold(450), 51);
        assert_eq!(LIMITS.threshold(500), 1);
        assert_eq!(LIMITS.threshold(501), 0);
    }

    #[test]
    fn the_next_look_comes_before_the_limit_can_be_broken() {
        let limits = LogLimits { file_bytes: 10 << 20, ..LIMITS };
        for size in [0, 1 << 20, 9 << 20, (10 << 20) - 1] {
            let wait = limits.next_look(size, 10 << 20);
            let grown = size as f64 + wait.as_secs_f64() * 50e6;
            assert!(grown < (10 << 20) as f64 + limits.total() as f64 / 20.0, "{size}: {wait:?}");
        }
        assert!(limits.next_look(0, 10 << 20) > Duration::from_millis(150));
        assert_eq!(limits.next_look(1 << 40, 0), Duration::from_micros(limits.total() / 20 / 64));
        assert_eq!(LIMITS.next_look(0, 100), SHORTEST);
        let huge = LogLimits { file_bytes: u64::MAX, ..LIMITS };
        assert_eq!(huge.next_look(0, huge.threshold(0)), huge.interval);
    }
}
