//! Delegates authentication and authorization to the API server, and caches the results.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;

use super::auth_cache::AuthCache;
use super::error::ReviewError;
use super::regular_tokens::{MAX_CACHED_REVIEWS, RegularTokens};
use super::reviews::{ACCESS_REVIEWS, TOKEN_REVIEWS, access_review, is_allowed, token_review, user_of};
use super::user::User;
use crate::platform::apiserver::{Client, Request, Requester};
use crate::platform::rt::{self, Turns};
use crate::types::error::ErrorChain;

/// The API server's token and access reviews.
pub(super) struct DelegatedAuth {
    /// `None` without a cluster.
    client: Option<Client>,
    node: String,
    regulars: RegularTokens,
    tokens: RefCell<AuthCache<Option<User>>>,
    accesses: RefCell<AuthCache<bool>>,
    /// Limits concurrent reviews. A request that has waited may find an earlier one's result in the cache.
    asking: Rc<Turns>,
}

/// How long results are cached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetimes {
    pub(super) allowed: Duration,
    pub(super) refused: Duration,
}

/// Why a token could not be reviewed.
#[derive(Debug)]
pub(super) enum ReviewFailure {
    Failed(ReviewError),
    /// The limit on reviews of unknown tokens is exhausted.
    TooMany,
}

/// Maximum number of concurrent reviews, and of those of tokens from one address or of accesses of one user.
const MAX_REVIEWS: usize = 6;
const MAX_REVIEWS_OF_CLIENT: usize = 2;
/// Time limit of a review, for which a client is waiting.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);
/// A rejected token may become valid soon, because it has just been created.
const REJECTED_TOKEN_CACHE_TIME: Duration = Duration::from_secs(10);

impl DelegatedAuth {
    pub(super) fn new(client: Option<Client>, node: &str) -> Self {
        Self {
            client,
            node: node.to_owned(),
            regulars: RegularTokens::new(),
            tokens: RefCell::new(AuthCache::new(MAX_CACHED_REVIEWS)),
            accesses: RefCell::new(AuthCache::new(MAX_CACHED_REVIEWS)),
            asking: Turns::new(MAX_REVIEWS, MAX_REVIEWS_OF_CLIENT),
        }
    }

    /// The user of a token; `Ok(None)`: the token is invalid. Fails if the review failed.
    pub(super) async fn user_of(
        &self,
        token: &str,
        peer: IpAddr,
        good: Duration,
    ) -> Result<Option<User>, ReviewFailure> {
        let key = self.regulars.key(token);
        let cached_user = || self.tokens.borrow().get(&key, rt::now());
        if let Some(user) = cached_user() {
            return Ok(user);
        }
        let _turn = self.asking.take(&peer.to_string()).await;
        if let Some(user) = cached_user() {
            return Ok(user);
        }
        if !self.regulars.has(&key) && !self.regulars.admits_stranger(peer, token.len()) {
            return Err(ReviewFailure::TooMany);
        }
        let response = self.send_review(TOKEN_REVIEWS, &token_review(token)).await.map_err(ReviewFailure::Failed)?;
        let user = user_of(&response);
        if matches!(user, Ok(Some(_))) {
            self.regulars.add(key);
        }
        let good = if matches!(user, Ok(Some(_))) { good } else { good.min(REJECTED_TOKEN_CACHE_TIME) };
        // Only the API server's decision matters to the client, not its reason.
        let user = user.unwrap_or_else(|why| {
            log!(debug, "token rejected by the API server", why = ErrorChain(&why));
            None
        });
        self.tokens.borrow_mut().put(key, user.clone(), good, rt::now());
        Ok(user)
    }

    /// Whether the user may access a subresource of the node. Fails if the review failed.
    pub(super) async fn allows(
        &self,
        user: &User,
        verb: &str,
        part: &str,
        good: Lifetimes,
    ) -> Result<bool, ReviewError> {
        let review = access_review(user, verb, &self.node, part);
        let key = self.regulars.key(&review.to_string());
        let cached_verdict = || self.accesses.borrow().get(&key, rt::now());
        if let Some(allowed) = cached_verdict() {
            return Ok(allowed);
        }
        let _turn = self.asking.take(&user.name).await;
        if let Some(allowed) = cached_verdict() {
            return Ok(allowed);
        }
        let allowed = is_allowed(&self.send_review(ACCESS_REVIEWS, &review).await?)?;
        let good = if allowed { good.allowed } else { good.refused };
        self.accesses.borrow_mut().put(key, allowed, good, rt::now());
        Ok(allowed)
    }

    async fn send_review(&self, path: &str, review: &Value) -> Result<Value, ReviewError> {
        let client = self.client.as_ref().ok_or(ReviewError::NoCluster)?;
        let response = client
            .send(&Request::post(path, review).within(REVIEW_TIMEOUT).requested_by(Requester::Tenant).at_once())
            .await;
        response.and_then(|response| response.json()).map_err(ReviewError::Api)
    }
}
