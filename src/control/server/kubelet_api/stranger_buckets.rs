//! Limits the reviews of unknown tokens, for each peer and in total. Pure: time is an argument.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::control::server::peer_buckets::{PeerBuckets, PeerLimits};
use crate::types::time::TokenBucket;

/// What the reviews of unknown tokens may still cost, in KiB.
#[derive(Debug)]
pub(super) struct StrangerBuckets {
    all_peers: TokenBucket,
    peers: PeerBuckets,
}

/// Limits on the traffic that one peer causes, in KiB.
const STRANGER_LIMITS: PeerLimits = PeerLimits { burst: 24, period: Duration::from_secs(8), max_peers: 128 };
/// Limit on the traffic that all peers cause. Anyone who can reach the port causes it, and traffic may be billed: this
/// is at most 43 MB a day.
const ALL_BURST: u32 = 96;
const ALL_PERIOD: Duration = Duration::from_secs(2);

impl StrangerBuckets {
    pub(super) fn new(now: Instant) -> Self {
        Self { all_peers: TokenBucket::each(ALL_PERIOD, ALL_BURST, now), peers: PeerBuckets::new(STRANGER_LIMITS) }
    }

    /// Takes `kibibytes` for a token of this peer, or nothing if that exceeds a limit.
    pub(super) fn take(&mut self, peer: IpAddr, kibibytes: u32, now: Instant) -> bool {
        // What exceeds a peer's own limit is not taken from the limit of all.
        self.peers.take_some(peer, kibibytes, now) && self.all_peers.take_some(kibibytes, now)
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
    fn many_peers_are_limited_together() {
        let now = Instant::now();
        let mut buckets = StrangerBuckets::new(now);
        let taken = (0..1000).filter(|peer| buckets.take(ip(&format!("10.0.{}.{}", peer / 250, peer % 250)), 1, now));
        assert_eq!(taken.count(), 96);
        assert!(buckets.take(ip("10.9.9.9"), 1, now + ALL_PERIOD));
    }
}
