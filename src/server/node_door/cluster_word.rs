//! Asks the cluster whose a token is and who may do what, and remembers the answers for a while.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use ring::rand::{SecureRandom, SystemRandom};
use serde_json::Value;

use super::reviews::{ACCESS_REVIEWS, TOKEN_REVIEWS, access_review, is_allowed, token_review, user_of};
use super::user::User;
use super::verdicts::{Key, Verdicts, key};
use crate::apiserver::{Client, Request};
use crate::error::ErrorChain;
use crate::rt::Semaphore;

/// The cluster, as far as it knows people.
pub(super) struct ClusterWord {
    /// `None`: there is none.
    client: Option<Client>,
    node: String,
    salt: [u8; 32],
    tokens: RefCell<Verdicts<Option<User>>>,
    accesses: RefCell<Verdicts<bool>>,
    /// Who asks for many things at once waits here, and finds the answer to the first.
    asking: Semaphore,
}

/// How long answers are good.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetimes {
    pub(super) allowed: Duration,
    pub(super) refused: Duration,
}

/// So many answers of each kind are remembered, and so many questions are under way.
const MOST: usize = 256;
const AT_ONCE: usize = 4;
/// A client waits for the answer to the answer.
const LIMIT: Duration = Duration::from_secs(5);
/// A token that is nobody's may have been made just now.
const NOBODYS: Duration = Duration::from_secs(10);

impl ClusterWord {
    pub(super) fn new(client: Option<Client>, node: &str) -> Self {
        let mut salt = [0; 32];
        // Without it a digest is a digest still.
        let _ = SystemRandom::new().fill(&mut salt);
        Self {
            client,
            node: node.to_owned(),
            salt,
            tokens: RefCell::new(Verdicts::new(MOST)),
            accesses: RefCell::new(Verdicts::new(MOST)),
            asking: Semaphore::new(AT_ONCE),
        }
    }

    /// Whose a token is; `Ok(None)`: nobody's. An error where nobody could be asked.
    pub(super) async fn user_of(&self, token: &str, good: Duration) -> Result<Option<User>, String> {
        let key = key(&self.salt, token.as_bytes());
        let known = || self.tokens.borrow().get(&key, Instant::now());
        if let Some(user) = known() {
            return Ok(user);
        }
        let _turn = self.asking.acquire().await;
        if let Some(user) = known() {
            return Ok(user);
        }
        let answer = self.ask(TOKEN_REVIEWS, &token_review(token)).await?;
        let user = user_of(&answer);
        let good = if matches!(user, Ok(Some(_))) { good } else { good.min(NOBODYS) };
        // Why it is nobody's is nothing to this node; that the cluster has said so is.
        let user = user.unwrap_or_else(|why| {
            log!(debug, "a token that is nobody's", why = why);
            None
        });
        self.tokens.borrow_mut().put(key, user.clone(), good, Instant::now());
        Ok(user)
    }

    /// Whether a user may do so to a part of the node. An error where nobody could be asked.
    pub(super) async fn allows(&self, user: &User, verb: &str, part: &str, good: Lifetimes) -> Result<bool, String> {
        let review = access_review(user, verb, &self.node, part);
        let key: Key = key(&self.salt, review.to_string().as_bytes());
        let known = || self.accesses.borrow().get(&key, Instant::now());
        if let Some(allowed) = known() {
            return Ok(allowed);
        }
        let _turn = self.asking.acquire().await;
        if let Some(allowed) = known() {
            return Ok(allowed);
        }
        let allowed = is_allowed(&self.ask(ACCESS_REVIEWS, &review).await?)?;
        let good = if allowed { good.allowed } else { good.refused };
        self.accesses.borrow_mut().put(key, allowed, good, Instant::now());
        Ok(allowed)
    }

    async fn ask(&self, path: &str, review: &Value) -> Result<Value, String> {
        let client = self.client.as_ref().ok_or("there is no cluster to ask")?;
        let answer = client.send(&Request::post(path, review).within(LIMIT)).await;
        answer.and_then(|answer| answer.json()).map_err(|error| ErrorChain(&error).to_string())
    }
}
