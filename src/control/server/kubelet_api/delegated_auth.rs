//! Asks the cluster whose a token is and who may do what, and remembers the answers for a while.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use ring::rand::{SecureRandom, SystemRandom};
use serde_json::Value;

use super::auth_cache::{AuthCache, Key, key};
use super::error::ReviewError;
use super::reviews::{ACCESS_REVIEWS, TOKEN_REVIEWS, access_review, is_allowed, token_review, user_of};
use super::user::User;
use crate::platform::apiserver::{Client, Request};
use crate::platform::rt::{self, Semaphore};
use crate::types::error::ErrorChain;
use crate::types::time::TokenBucket;

/// The cluster, as far as it knows people.
pub(super) struct DelegatedAuth {
    /// `None`: there is none.
    client: Option<Client>,
    node: String,
    salt: [u8; 32],
    tokens: RefCell<AuthCache<Option<User>>>,
    /// Tokens that were good of late.
    regulars: RefCell<AuthCache<()>>,
    strangers: RefCell<TokenBucket>,
    /// When it was last told that there are too many.
    told: Cell<Option<Instant>>,
    accesses: RefCell<AuthCache<bool>>,
    /// Who asks for many things at once waits here, and finds the answer to the first.
    asking: Semaphore,
}

/// How long answers are good.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetimes {
    pub(super) allowed: Duration,
    pub(super) refused: Duration,
}

/// Why nothing is known of a token.
#[derive(Debug)]
pub(super) enum Unasked {
    Failed(ReviewError),
    /// Strangers have had too many questions asked.
    TooMany,
}

/// So many answers of each kind are remembered, and so many questions are under way.
const MOST: usize = 256;
const AT_ONCE: usize = 4;
/// A client waits for the answer to the answer.
const LIMIT: Duration = Duration::from_secs(5);
/// What questions about strangers' tokens may cost the line to the cluster, in KiB: at once, and one more in each period. Whoever
/// reaches the port can have them asked, and the line may be paid for by the byte: this is 11 MB a day at the most.
const STRANGERS_BURST: u32 = 24;
const STRANGERS_PERIOD: Duration = Duration::from_secs(8);
/// So long a token that was good is asked about whatever strangers do.
const REGULAR: Duration = Duration::from_secs(3600);
const TELL_AGAIN: Duration = Duration::from_secs(60);
/// A token that is nobody's may have been made just now.
const NOBODYS: Duration = Duration::from_secs(10);

impl DelegatedAuth {
    pub(super) fn new(client: Option<Client>, node: &str) -> Self {
        let mut salt = [0; 32];
        // Without it a digest is a digest still.
        let _ = SystemRandom::new().fill(&mut salt);
        Self {
            client,
            node: node.to_owned(),
            salt,
            tokens: RefCell::new(AuthCache::new(MOST)),
            regulars: RefCell::new(AuthCache::new(MOST)),
            strangers: RefCell::new(TokenBucket::each(STRANGERS_PERIOD, STRANGERS_BURST, rt::now())),
            told: Cell::new(None),
            accesses: RefCell::new(AuthCache::new(MOST)),
            asking: Semaphore::new(AT_ONCE),
        }
    }

    /// Whose a token is; `Ok(None)`: nobody's. An error where nobody could be asked.
    pub(super) async fn user_of(&self, token: &str, good: Duration) -> Result<Option<User>, Unasked> {
        let key = key(&self.salt, token.as_bytes());
        let known = || self.tokens.borrow().get(&key, rt::now());
        if let Some(user) = known() {
            return Ok(user);
        }
        let _turn = self.asking.acquire().await;
        if let Some(user) = known() {
            return Ok(user);
        }
        let now = rt::now();
        let is_regular = self.regulars.borrow().get(&key, now).is_some();
        if !is_regular && !self.strangers.borrow_mut().take_some(kibibytes(token), now) {
            self.tell_of_strangers(now);
            return Err(Unasked::TooMany);
        }
        let answer = self.ask(TOKEN_REVIEWS, &token_review(token)).await.map_err(Unasked::Failed)?;
        let user = user_of(&answer);
        if matches!(user, Ok(Some(_))) {
            self.regulars.borrow_mut().put(key, (), REGULAR, rt::now());
        }
        let good = if matches!(user, Ok(Some(_))) { good } else { good.min(NOBODYS) };
        // Why it is nobody's is nothing to this node; that the cluster has said so is.
        let user = user.unwrap_or_else(|why| {
            log!(debug, "a token that is nobody's", why = ErrorChain(&why));
            None
        });
        self.tokens.borrow_mut().put(key, user.clone(), good, rt::now());
        Ok(user)
    }

    fn tell_of_strangers(&self, now: Instant) {
        if self.told.get().is_none_or(|told| now.saturating_duration_since(told) >= TELL_AGAIN) {
            self.told.set(Some(now));
            log!(warn, "too many unknown tokens are shown to the node: the cluster is asked about few of them");
        }
    }

    /// Whether a user may do so to a part of the node. An error where nobody could be asked.
    pub(super) async fn allows(
        &self,
        user: &User,
        verb: &str,
        part: &str,
        good: Lifetimes,
    ) -> Result<bool, ReviewError> {
        let review = access_review(user, verb, &self.node, part);
        let key: Key = key(&self.salt, review.to_string().as_bytes());
        let known = || self.accesses.borrow().get(&key, rt::now());
        if let Some(allowed) = known() {
            return Ok(allowed);
        }
        let _turn = self.asking.acquire().await;
        if let Some(allowed) = known() {
            return Ok(allowed);
        }
        let allowed = is_allowed(&self.ask(ACCESS_REVIEWS, &review).await?)?;
        let good = if allowed { good.allowed } else { good.refused };
        self.accesses.borrow_mut().put(key, allowed, good, rt::now());
        Ok(allowed)
    }

    async fn ask(&self, path: &str, review: &Value) -> Result<Value, ReviewError> {
        let client = self.client.as_ref().ok_or(ReviewError::NoCluster)?;
        let answer = client.send(&Request::post(path, review).within(LIMIT).at_once()).await;
        answer.and_then(|answer| answer.json()).map_err(ReviewError::Api)
    }
}

/// What a question about a token costs, begun ones whole, and one for what is around it.
fn kibibytes(token: &str) -> u32 {
    u32::try_from(token.len() / 1024).unwrap_or(u32::MAX).saturating_add(1)
}
