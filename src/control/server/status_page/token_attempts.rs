//! Limits wrong tokens of each peer. Pure: time is an argument.

use core::net::IpAddr;
use std::time::{Duration, Instant};

use crate::types::sorted::SortedMap;
use crate::types::time::TokenBucket;

/// Wrong tokens of one peer: the burst, and the period for one more.
const WRONG_TOKENS_OF_PEER: u32 = 5;
const WRONG_TOKEN_PERIOD: Duration = Duration::from_secs(30);
/// Peers that are remembered.
const MAX_TOKEN_PEERS: usize = 32;

/// The peers that have sent a wrong token.
#[derive(Debug, Default)]
pub(super) struct TokenAttempts(SortedMap<IpAddr, (Instant, TokenBucket)>);

impl TokenAttempts {
    /// Whether a token of this peer is looked at.
    pub(super) fn may_try(&self, peer: IpAddr, now: Instant) -> bool {
        self.0.get(&network(peer)).is_none_or(|(_, bucket)| {
            // Of a copy: a right token costs nothing.
            let mut copy = *bucket;
            copy.take(now)
        })
    }

    /// The peer has sent a wrong token.
    pub(super) fn fail(&mut self, peer: IpAddr, now: Instant) {
        let peer = network(peer);
        if self.0.len() >= MAX_TOKEN_PEERS && !self.0.contains_key(&peer) {
            let oldest = self.0.iter().min_by_key(|(_, (last, _))| *last).map(|(peer, _)| *peer);
            oldest.map(|peer| self.0.remove(&peer));
        }
        let full = || (now, TokenBucket::each(WRONG_TOKEN_PERIOD, WRONG_TOKENS_OF_PEER, now));
        let (_, mut bucket) = self.0.remove(&peer).unwrap_or_else(full);
        let _ = bucket.take(now);
        self.0.insert(peer, (now, bucket));
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

    #[test]
    fn peer_is_refused_after_five_wrong_tokens_and_others_are_not() {
        let (now, mut attempts) = (Instant::now(), TokenAttempts::default());
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        for _ in 0..WRONG_TOKENS_OF_PEER {
            assert!(attempts.may_try(ip("10.0.0.1"), now));
            attempts.fail(ip("10.0.0.1"), now);
        }
        assert!(!attempts.may_try(ip("10.0.0.1"), now) && !attempts.may_try(ip("::ffff:10.0.0.1"), now));
        assert!(attempts.may_try(ip("10.0.0.2"), now));
        assert!(attempts.may_try(ip("10.0.0.1"), now + WRONG_TOKEN_PERIOD));
        for number in 0..1000u32 {
            attempts.fail(IpAddr::V4(number.into()), now + WRONG_TOKEN_PERIOD);
        }
        assert!(attempts.0.len() <= MAX_TOKEN_PEERS);
    }
}
