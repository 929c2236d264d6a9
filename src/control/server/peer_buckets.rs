//! A token bucket for each peer address, so that a flood from one peer leaves room for others. Pure: time is an argument.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::types::sorted::SortedMap;
use crate::types::time::TokenBucket;

/// The buckets of the peers that were heard last, each with the time of its last use.
#[derive(Debug)]
pub(super) struct PeerBuckets {
    limits: PeerLimits,
    peers: SortedMap<IpAddr, (Instant, TokenBucket)>,
}

/// A peer's burst, the period for one more, and the number of peers with a bucket of their own.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerLimits {
    pub(super) burst: u32,
    pub(super) period: Duration,
    pub(super) max_peers: usize,
}

impl PeerBuckets {
    pub(super) fn new(limits: PeerLimits) -> Self {
        Self { limits, peers: SortedMap::new() }
    }

    /// Whether the peer's bucket has a token.
    pub(super) fn has_token(&self, peer: IpAddr, now: Instant) -> bool {
        self.peers.get(&network(peer)).is_none_or(|(_, bucket)| bucket.clone().take(now))
    }

    /// Takes `count` tokens of the peer, or none if it has fewer.
    pub(super) fn take_some(&mut self, peer: IpAddr, count: u32, now: Instant) -> bool {
        let peer = network(peer);
        if self.peers.len() >= self.limits.max_peers && !self.peers.contains_key(&peer) {
            let longest_silent = self.peers.iter().min_by_key(|(_, (last, _))| *last).map(|(peer, _)| *peer);
            longest_silent.map(|peer| self.peers.remove(&peer));
        }
        let full = || (now, TokenBucket::each(self.limits.period, self.limits.burst, now));
        let (last, mut bucket) = self.peers.remove(&peer).unwrap_or_else(full);
        let taken = bucket.take_some(count, now);
        self.peers.insert(peer, (last.max(now), bucket));
        taken
    }
}

/// One host often has a whole IPv6 network of 64 bits.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: PeerLimits = PeerLimits { burst: 5, period: Duration::from_secs(30), max_peers: 32 };

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn peer_uses_only_its_own_tokens() {
        let (now, mut buckets) = (Instant::now(), PeerBuckets::new(LIMITS));
        for _ in 0..LIMITS.burst {
            assert!(buckets.has_token(ip("10.0.0.1"), now), "to look takes nothing");
            assert!(buckets.take_some(ip("10.0.0.1"), 1, now));
        }
        assert!(!buckets.has_token(ip("10.0.0.1"), now) && !buckets.take_some(ip("::ffff:10.0.0.1"), 1, now));
        assert!(buckets.has_token(ip("10.0.0.2"), now));
        assert!(buckets.has_token(ip("10.0.0.1"), now + LIMITS.period));
        let of_network = (0..1000).filter(|host| buckets.take_some(ip(&format!("fd00::{host:x}")), 1, now)).count();
        assert_eq!(of_network, 5);
    }

    #[test]
    fn peers_with_a_bucket_are_limited() {
        let (now, mut buckets) = (Instant::now(), PeerBuckets::new(LIMITS));
        for number in 0..1000u32 {
            assert!(buckets.take_some(IpAddr::V4(number.into()), 1, now));
        }
        assert_eq!(buckets.peers.len(), LIMITS.max_peers);
    }
}
