//! Back-off, jitter and rate limits. Pure: the time is an argument.

use std::time::{Duration, Instant};

/// 2020, in Unix seconds: an earlier clock was never set.
pub(crate) const EARLIEST_CLOCK_SECONDS: i64 = 1_577_836_800;

/// Delays that double from `first` up to `limit`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    limit: Duration,
    next: Duration,
    /// The limit of the first attempts, how many those are, and how many of them are left.
    early: Option<(Duration, u32)>,
    early_left: u32,
}

impl Backoff {
    pub(crate) const fn new(first: Duration, limit: Duration) -> Self {
        Self { first, limit, next: first, early: None, early_left: 0 }
    }

    /// Limits the delays of the first attempts to `early`.
    pub(crate) const fn with_early_limit(self, early: Duration, attempts: u32) -> Self {
        Self { early: Some((early, attempts)), early_left: attempts, ..self }
    }

    /// The delay before the next attempt; the one after it is twice as long.
    pub(crate) fn next_wait(&mut self) -> Duration {
        let wait = self.next;
        let early = self.early.filter(|_| self.early_left > 0);
        self.early_left = self.early_left.saturating_sub(1);
        self.next = wait.saturating_mul(2).min(early.map_or(self.limit, |(early, _)| early));
        wait
    }

    pub(crate) fn reset(&mut self) {
        self.next = self.first;
        self.early_left = self.early.map_or(0, |(_, attempts)| attempts);
    }
}

/// A token bucket: bursts of `burst`, refilled at `per_second`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenBucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    updated: Instant,
}

impl TokenBucket {
    /// A full bucket; `None`, which means no limit, if `per_second` is 0.
    pub(crate) fn new(per_second: u32, burst: u32, now: Instant) -> Option<Self> {
        let burst = f64::from(burst);
        (per_second > 0).then_some(Self { per_second: per_second.into(), burst, tokens: burst, updated: now })
    }

    /// A full bucket that gains a token every `period`.
    pub(crate) fn each(period: Duration, burst: u32, now: Instant) -> Self {
        let burst = f64::from(burst);
        Self { per_second: period.as_secs_f64().recip(), burst, tokens: burst, updated: now }
    }

    /// Takes a token if there is one.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        self.take_some(1, now)
    }

    /// Takes `count` tokens, or none if there are fewer.
    pub(crate) fn take_some(&mut self, count: u32, now: Instant) -> bool {
        let count = f64::from(count);
        let elapsed = now.saturating_duration_since(self.updated).as_secs_f64();
        self.updated = now.max(self.updated);
        self.tokens = (self.tokens + elapsed * self.per_second).min(self.burst);
        let taken = self.tokens >= count;
        if taken {
            self.tokens -= count;
        }
        taken
    }

    /// When the next token arrives, as of the last attempt to take one.
    pub(crate) fn next_token(&self) -> Instant {
        let missing = ((1.0 - self.tokens) / self.per_second).max(0.0);
        // One millisecond more, so that rounding cannot leave less than one token.
        let wait =
            Duration::try_from_secs_f64(missing).unwrap_or(Duration::MAX).saturating_add(Duration::from_millis(1));
        self.updated.checked_add(wait).unwrap_or(self.updated)
    }
}

/// `base` lengthened by up to `most` of itself; `random` must be uniformly distributed.
pub(crate) fn jitter(base: Duration, most: f64, random: u32) -> Duration {
    base.mul_f64(1.0 + most * f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_to_the_limit_and_resets() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));
        let waits: Vec<u64> = (0..5).map(|_| backoff.next_wait().as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 5, 5]);
        backoff.reset();
        assert_eq!(backoff.next_wait(), Duration::from_secs(1));
    }

    #[test]
    fn early_limit_applies_to_the_first_attempts() {
        let mut backoff =
            Backoff::new(Duration::from_secs(1), Duration::from_secs(9)).with_early_limit(Duration::from_secs(2), 3);
        for _ in 0..2 {
            let waits: Vec<u64> = (0..7).map(|_| backoff.next_wait().as_secs()).collect();
            assert_eq!(waits, [1, 2, 2, 2, 4, 8, 9]);
            backoff.reset();
        }
    }

    #[test]
    fn burst_is_available_at_once_then_at_the_rate() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(5, 10, start).unwrap();
        let taken = |bucket: &mut TokenBucket, now| (0..100).filter(|_| bucket.take(now)).count();
        assert_eq!(taken(&mut bucket, start), 10);
        assert_eq!(taken(&mut bucket, start + Duration::from_millis(190)), 0);
        assert_eq!(taken(&mut bucket, start + Duration::from_millis(210)), 1);
        assert_eq!(taken(&mut bucket, start + Duration::from_secs(3600)), 10);
    }

    #[test]
    fn tokens_are_taken_all_or_none() {
        let start = Instant::now();
        let mut bucket = TokenBucket::each(Duration::from_secs(8), 24, start);
        assert!(bucket.take_some(17, start));
        assert!(!bucket.take_some(17, start) && bucket.take_some(7, start) && !bucket.take(start));
        assert!(bucket.take(start + Duration::from_secs(9)));
    }

    #[test]
    fn rate_of_zero_means_no_limit() {
        assert!(TokenBucket::new(0, 10, Instant::now()).is_none());
    }

    #[test]
    fn time_going_backwards_adds_no_token() {
        let start = Instant::now() + Duration::from_secs(10);
        let mut bucket = TokenBucket::new(1, 1, start).unwrap();
        assert!(bucket.take(start));
        assert!(!bucket.take(start - Duration::from_secs(5)));
        assert!(!bucket.take(start));
    }

    #[test]
    fn next_token_predicts_the_next_token() {
        let start = Instant::now();
        let period = Duration::from_secs(300);
        let mut bucket = TokenBucket::each(period, 2, start);
        assert!(bucket.take(start) && bucket.take(start) && !bucket.take(start));
        let next = bucket.next_token();
        assert!(next >= start + period && next <= start + period + Duration::from_secs(1));
        assert!(!bucket.take(start + period / 2));
        assert!(bucket.take(next) && !bucket.take(next));
    }

    #[test]
    fn jitter_stays_between_base_and_maximum() {
        let base = Duration::from_secs(60);
        assert_eq!(jitter(base, 0.5, 0), base);
        assert_eq!(jitter(base, 0.5, u32::MAX), Duration::from_secs(90));
    }
}
