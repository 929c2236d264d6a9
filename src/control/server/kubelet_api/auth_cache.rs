//! A cache of authentication and authorization results. Pure.

use std::time::{Duration, Instant};

use crate::types::sorted::SortedMap;
use ring::digest;

/// A bounded number of results, each with its own expiry. Their keys are digests, because requests may contain secrets.
#[derive(Debug)]
pub(super) struct AuthCache<V> {
    limit: usize,
    results: SortedMap<Key, (Instant, V)>,
}

/// A digest of the request.
pub(in crate::control::server) type Key = [u8; 32];

pub(super) fn key(salt: &[u8], request: &[u8]) -> Key {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(salt);
    context.update(request);
    context.finish().as_ref().try_into().unwrap_or_default()
}

impl<V: Clone> AuthCache<V> {
    pub(super) const fn new(limit: usize) -> Self {
        Self { limit, results: SortedMap::new() }
    }

    pub(super) fn get(&self, key: &Key, now: Instant) -> Option<V> {
        self.results.get(key).filter(|(until, _)| now < *until).map(|(_, verdict)| verdict.clone())
    }

    /// A full cache drops the entry that expires next.
    pub(super) fn put(&mut self, key: Key, verdict: V, good: Duration, now: Instant) {
        self.results.retain(|_, (until, _)| now < *until);
        if self.results.len() >= self.limit && !self.results.contains_key(&key) {
            let next = self.results.iter().min_by_key(|(_, (until, _))| *until).map(|(key, _)| *key);
            if let Some(next) = next {
                self.results.remove(&next);
            }
        }
        self.results.insert(key, (now + good, verdict));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn entry_is_valid_until_it_expires() {
        let (mut verdicts, now) = (AuthCache::new(9), Instant::now());
        let [a, b] = ["a", "b"].map(|text| key(b"salt", text.as_bytes()));
        verdicts.put(a, 1, seconds(10), now);
        assert_eq!((verdicts.get(&a, now + seconds(9)), verdicts.get(&b, now)), (Some(1), None));
        assert_eq!(verdicts.get(&a, now + seconds(10)), None);
        verdicts.put(a, 2, seconds(20), now + seconds(5));
        assert_eq!(verdicts.get(&a, now + seconds(24)), Some(2));
    }

    #[test]
    fn full_cache_drops_the_entry_that_expires_next() {
        let (mut verdicts, now) = (AuthCache::new(2), Instant::now());
        let keys = [0, 1, 2].map(|number: u8| key(b"", &[number]));
        for (key, good) in keys.iter().zip([30, 20, 10]) {
            verdicts.put(*key, (), seconds(good), now);
        }
        assert_eq!(keys.map(|key| verdicts.get(&key, now).is_some()), [true, false, true]);
        verdicts.put(keys[1], (), seconds(5), now + seconds(15));
        let later = now + seconds(16);
        assert_eq!(keys.map(|key| verdicts.get(&key, later).is_some()), [true, true, false]);
    }

    #[test]
    fn keys_are_salted_digests() {
        assert_ne!(key(b"a", b"token"), key(b"b", b"token"));
    }
}
