//! How many pulls may begin in a while: a token each, and so many tokens a second. Pure: the moment is an argument.

use std::time::Instant;

#[derive(Clone, Copy, Debug)]
pub(super) struct TokenBucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    updated: Instant,
}

impl TokenBucket {
    /// A full bucket; `None` if nothing is to be limited.
    pub(super) fn new(per_second: u32, burst: u32, now: Instant) -> Option<Self> {
        let burst = f64::from(burst);
        (per_second > 0).then_some(Self { per_second: per_second.into(), burst, tokens: burst, updated: now })
    }

    /// Takes a token, if there is one.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.updated).as_secs_f64();
        self.updated = now.max(self.updated);
        self.tokens = (self.tokens + elapsed * self.per_second).min(self.burst);
        let taken = self.tokens >= 1.0;
        if taken {
            self.tokens -= 1.0;
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_is_taken_at_once_and_then_so_many_a_second() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(5, 10, start).unwrap();
        let taken = |bucket: &mut TokenBucket, now| (0..100).filter(|_| bucket.take(now)).count();
        assert_eq!(taken(&mut bucket, start), 10);
        assert_eq!(taken(&mut bucket, start + Duration::from_millis(190)), 0);
        assert_eq!(taken(&mut bucket, start + Duration::from_millis(210)), 1);
        assert_eq!(taken(&mut bucket, start + Duration::from_secs(3600)), 10);
    }

    #[test]
    fn nothing_a_second_means_no_limit() {
        assert!(TokenBucket::new(0, 10, Instant::now()).is_none());
    }

    #[test]
    fn an_earlier_moment_gives_no_token() {
        let start = Instant::now() + Duration::from_secs(10);
        let mut bucket = TokenBucket::new(1, 1, start).unwrap();
        assert!(bucket.take(start));
        assert!(!bucket.take(start - Duration::from_secs(5)));
        assert!(!bucket.take(start));
    }
}
