//! Limits the reviews of unknown tokens, for each peer and in total. Pure: time is an argument.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::types::sorted::SortedMap;
use crate::types::time::TokenBucket;

/// Token buckets by peer address, so that a flood from one peer does not keep out the tokens of others.
#[derive(Debug)]
pub(super) struct StrangerBuckets {
    all: TokenBucket,
    peers: SortedMap<IpAddr, (Instant, TokenBucket)>,
}

/// Limit on the traffic that one peer causes, in KiB: the burst, and the period for one more.
const PEER_BURST: u32 = 24;
const PEER_PERIOD: Duration = Duration::from_secs(8);
/// Limit on the traffic that all peers cause. Anyone who can reach the port causes it, and traffic may be billed: this
/// is at most 43 MB a day.
const ALL_BURST: u32 = 96;
const ALL_PERIOD: Duration = Duration::from_secs(2);
/// Maximum number of peers with a bucket of their own.
const MAX_STRANGER_BUCKETS: usize = 128;

impl StrangerBuckets {
    pub(super) fn new(now: Instant) -> Self {
        Self { all: TokenBucket::each(ALL_PERIOD, ALL_BURST, now), peers: SortedMap::new() }
    }

    /// Takes `kibibytes` for a token of this peer, or nothing if that exceeds a limit.
    pub(super) fn take(&mut self, peer: IpAddr, kibibytes: u32, now: Instant) -> bool {
        let peer = network(peer);
        if self.peers.len() >= MAX_STRANGER_BUCKETS && !self.peers.contains_key(&peer) {
            let longest_silent = self.peers.iter().min_by_key(|(_, (last, _))| *last).map(|(peer, _)| *peer);
            longest_silent.map(|peer| self.peers.remove(&peer));
        }
        let full = || (now, TokenBucket::each(PEER_PERIOD, PEER_BURST, now));
        let (mut last, mut bucket) = self.peers.remove(&peer).unwrap_or_else(full);
        last = last.max(now);
        // What exceeds a peer's own limit is not taken from the limit of all.
        let taken = bucket.take_some(kibibytes, now) && self.all.take_some(kibibytes, now);
        self.peers.insert(peer, (last, bucket));
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

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn flood_of_one_peer_leaves_room_for_others() {
        let now = Instant::now();
        let mut buckets = StrangerBuckets::new(now);
        let flood = (0..10_000).filter(|_| buckets.take(ip("10.0.0.1"), 1, now)).count();
        assert_eq!(flood, 24);
        assert!(!buckets.take(ip("::ffff:10.0.0.1"), 1, now), "the same peer");
        assert!(buckets.take(ip("10.0.0.2"), 2, now));
        let v6 = (0..1000).filter(|host| buckets.take(ip(&format!("fd00::{host:x}")), 1, now)).count();
        assert_eq!(v6, 24, "one network");
    }

    #[test]
    fn many_peers_are_limited_together_and_in_memory() {
        let now = Instant::now();
        let mut buckets = StrangerBuckets::new(now);
        let taken = (0..1000).filter(|peer| buckets.take(ip(&format!("10.0.{}.{}", peer / 250, peer % 250)), 1, now));
        assert_eq!(taken.count(), 96);
        assert_eq!(buckets.peers.len(), MAX_STRANGER_BUCKETS);
        assert!(buckets.take(ip("10.9.9.9"), 1, now + ALL_PERIOD));
    }
}
