//! The tokens that the API server has confirmed recently, and the limit on what it is sent for others.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ring::rand::{SecureRandom as _, SystemRandom};

use super::auth_cache::{AuthCache, Key, key};
use super::stranger_buckets::StrangerBuckets;
use crate::platform::rt;

pub(in crate::control::server) struct RegularTokens {
    salt: [u8; 32],
    regulars: RefCell<AuthCache<()>>,
    strangers: RefCell<StrangerBuckets>,
    /// When the last warning about too many unknown tokens was logged.
    last_warned: Cell<Option<Instant>>,
}

/// Maximum number of tokens, and of cached results of each kind.
pub(super) const MAX_CACHED_REVIEWS: usize = 256;
/// How long a valid token is exempt from the limit.
const REGULAR_TOKEN_TIME: Duration = Duration::from_secs(3600);
const REVIEW_WARNING_INTERVAL: Duration = Duration::from_secs(60);

impl RegularTokens {
    pub(in crate::control::server) fn new() -> Self {
        let mut salt = [0; 32];
        // Without the salt, the keys are still digests.
        let _ = SystemRandom::new().fill(&mut salt);
        Self {
            salt,
            regulars: RefCell::new(AuthCache::new(MAX_CACHED_REVIEWS)),
            strangers: RefCell::new(StrangerBuckets::new(rt::now())),
            last_warned: Cell::new(None),
        }
    }

    /// The key of a token or of another secret text.
    pub(in crate::control::server) fn key(&self, text: &str) -> Key {
        key(&self.salt, text.as_bytes())
    }

    pub(in crate::control::server) fn has(&self, token: &Key) -> bool {
        self.regulars.borrow().get(token, rt::now()).is_some()
    }

    /// The API server has confirmed the token.
    pub(in crate::control::server) fn add(&self, token: Key) {
        self.regulars.borrow_mut().put(token, (), REGULAR_TOKEN_TIME, rt::now());
    }

    /// Whether the API server may be sent this many bytes for an unknown token of this peer.
    pub(in crate::control::server) fn admits_stranger(&self, peer: IpAddr, bytes: usize) -> bool {
        let now = rt::now();
        let admits = self.strangers.borrow_mut().take(peer, kibibytes(bytes), now);
        let is_warned = |at| now.saturating_duration_since(at) < REVIEW_WARNING_INTERVAL;
        if !admits && !self.last_warned.get().is_some_and(is_warned) {
            self.last_warned.set(Some(now));
            log!(warn, "too many unknown tokens, limiting requests to the API server", peer = peer);
        }
        admits
    }
}

/// The assumed traffic of a request in KiB: the whole KiB of its content, plus one for everything else.
fn kibibytes(bytes: usize) -> u32 {
    u32::try_from(bytes / 1024).unwrap_or(u32::MAX).saturating_add(1)
}
