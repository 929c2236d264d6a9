//! CPU rates from two consecutive snapshots. Pure: time is an argument.

use crate::types::sorted::SortedMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Keeps a small entry for each owner in the last snapshot.
#[derive(Debug, Default)]
pub(super) struct Rates {
    samples: SortedMap<u64, PreviousSample>,
    /// Hashes owners to eight bytes.
    hasher: RandomState,
    collection: u32,
}

#[derive(Clone, Copy, Debug)]
struct PreviousSample {
    at: Duration,
    cpu_nanos: u64,
    nano_cores: Option<u64>,
    collection: u32,
}

/// Minimum time between two samples; within it the last rate is returned.
const MIN_SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

impl Rates {
    /// The rate in nanocores; `None` for a new owner. `at` is monotonic time.
    pub(super) fn nano_cores(&mut self, owner: &str, cpu_nanos: u64, at: Duration) -> Option<u64> {
        let collection = self.collection;
        let fresh = PreviousSample { at, cpu_nanos, nano_cores: None, collection };
        let kept = self.samples.entry(self.hasher.hash_one(owner)).or_insert(fresh);
        kept.collection = collection;
        let passed = at.saturating_sub(kept.at);
        // A lower count means another owner with the same name.
        match cpu_nanos.checked_sub(kept.cpu_nanos) {
            None => *kept = fresh,
            Some(used) if passed >= MIN_SAMPLE_INTERVAL => {
                let rate = u128::from(used) * 1_000_000_000 / passed.as_nanos();
                *kept = PreviousSample { nano_cores: Some(u64::try_from(rate).unwrap_or(u64::MAX)), ..fresh };
            }
            Some(_) => {}
        }
        kept.nano_cores
    }

    /// Ends a snapshot and drops the owners that it does not have.
    pub(super) fn end_look(&mut self) {
        let collection = self.collection;
        self.samples.retain(|_, kept| kept.collection == collection);
        self.collection = collection.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn rate_needs_two_snapshots_and_holds_until_the_next() {
        let mut rates = Rates::default();
        let mut look = |cpu, at| {
            let rate = rates.nano_cores("a", cpu, at);
            rates.end_look();
            rate
        };
        assert_eq!(look(1_000_000_000, second(10)), None);
        assert_eq!(look(1_100_000_000, second(10) + Duration::from_millis(10)), None, "too soon");
        assert_eq!(look(6_000_000_000, second(20)), Some(500_000_000));
        assert_eq!(look(9_000_000_000, second(20)), Some(500_000_000), "too soon");
        assert_eq!(look(6_000_000_000, second(40)), Some(0));
    }

    #[test]
    fn vanished_or_restarted_owner_has_no_rate() {
        let mut rates = Rates::default();
        rates.nano_cores("a", 5, second(1));
        rates.end_look();
        rates.nano_cores("b", 5, second(2));
        rates.end_look();
        assert_eq!(rates.samples.len(), 1);
        assert_eq!(rates.nano_cores("a", 5, second(3)), None);
        assert_eq!(rates.nano_cores("b", 4, second(4)), None, "counts from the start again");
        assert_eq!(rates.nano_cores("b", 4, second(5)), Some(0));
    }
}
