//! Back-off and jitter. Pure: the moment is an argument.

use std::time::Duration;

/// Waits that double from `first` up to `limit`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    limit: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) const fn new(first: Duration, limit: Duration) -> Self {
        Self { first, limit, next: first }
    }

    /// The wait before the coming try; the one after it is twice as long.
    pub(crate) fn next_wait(&mut self) -> Duration {
        let wait = self.next;
        self.next = wait.saturating_mul(2).min(self.limit);
        wait
    }

    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

/// `base` stretched by up to `most` of itself; `random` is any number, evenly spread.
pub(crate) fn jitter(base: Duration, most: f64, random: u32) -> Duration {
    base.mul_f64(1.0 + most * f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_limit_and_start_again_after_a_reset() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));
        let waits: Vec<u64> = (0..5).map(|_| backoff.next_wait().as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 5, 5]);
        backoff.reset();
        assert_eq!(backoff.next_wait(), Duration::from_secs(1));
    }

    #[test]
    fn jitter_stays_between_the_base_and_its_stretch() {
        let base = Duration::from_secs(60);
        assert_eq!(jitter(base, 0.5, 0), base);
        assert_eq!(jitter(base, 0.5, u32::MAX), Duration::from_secs(90));
    }
}
