//! A pod's service account token: requested, renewed before it expires, and used on if it cannot be renewed.

use std::time::Duration;

use serde_json::{Value, json};

use super::next_step::NextStep;
use super::token_lifetime::{self, TokenLifetime, is_worth_keeping};
use crate::kubelet::offline::OfflineStore;
use crate::platform::apiserver::{ApiError, Client, Request, Requester};
use crate::platform::host::clock;
use crate::platform::rt;
use crate::state::objects::{Content, ObjectEvent, TokenKey, Topic};
use crate::state::pods::{PodEvent, SyncEvent};
use crate::types::api::{EventKind, ObjectText, PodUid, Reason, Time};
use crate::types::time::{Backoff, jitter};

/// A token that stays in use even after it expires, which is recorded as an event of the pod.
pub(super) struct TokenWork {
    /// From an earlier run, until it is used or renewed.
    unsent: Option<(String, TokenLifetime)>,
    /// The lifetime of the stored token.
    lifetime: Option<TokenLifetime>,
    used: Option<TokenLifetime>,
    is_warned: bool,
    backoff: Backoff,
}

/// A token with its remaining lifetime.
pub(super) type IssuedToken = (String, Duration);

/// Back-off of failed token requests.
const MIN_TOKEN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_TOKEN_BACKOFF: Duration = Duration::from_secs(60);
/// A token is renewed after this share of its lifetime, and after a day at the latest
/// (pkg/kubelet/token/token_manager.go).
const TOKEN_RENEWAL_SHARE: f64 = 0.8;
const MAX_TOKEN_AGE: Duration = Duration::from_secs(24 * 3600);
/// Assumed lifetime if the API server does not return one.
const ASSUMED_TOKEN_LIFETIME: Duration = Duration::from_secs(3600);
/// Pods that were started together do not renew their tokens together.
const TOKEN_JITTER: Duration = Duration::from_secs(10);

impl TokenWork {
    pub(super) fn new(stored: Option<Value>) -> Self {
        let unsent = stored.as_ref().and_then(token_lifetime::read);
        Self {
            lifetime: unsent.as_ref().map(|(_, dates)| *dates),
            unsent,
            used: None,
            is_warned: false,
            backoff: Backoff::new(MIN_TOKEN_BACKOFF, MAX_TOKEN_BACKOFF),
        }
    }

    pub(super) fn has_stored_copy(&self) -> bool {
        self.unsent.is_some()
    }

    pub(super) fn on_response(
        &mut self,
        topic: &Topic,
        issued: Result<IssuedToken, String>,
        store: &OfflineStore,
    ) -> NextStep {
        let now = clock::timestamp().as_second();
        match issued {
            Ok((token, life)) => self.issued(topic, token, life, now, store),
            Err(why) => {
                let mut next = self.use_stored(topic, now);
                if next.events.is_empty() && self.used.is_none() {
                    next.events.push(SyncEvent::Object(ObjectEvent::Failed(topic.clone(), why)));
                }
                next.events.extend(self.warning(topic, now));
                next.request_after = Some(jitter(self.backoff.next_wait(), 0.5, rt::random()));
                next
            }
        }
    }

    /// Without access to the API server: uses the stored token, or reports that the token has expired.
    pub(super) fn on_attention(&mut self, topic: &Topic) -> NextStep {
        let now = clock::timestamp().as_second();
        let mut next = self.use_stored(topic, now);
        next.events.extend(self.warning(topic, now));
        // The clock may have been set back.
        next.attention_after = self.used.and_then(|dates| dates.left(now));
        next
    }

    fn issued(&mut self, topic: &Topic, token: String, life: Duration, now: i64, store: &OfflineStore) -> NextStep {
        self.backoff.reset();
        self.unsent = None;
        self.is_warned = false;
        let dates = TokenLifetime::of(&token, now, life);
        self.used = Some(dates);
        if is_worth_keeping(self.lifetime, now) {
            store.remember(topic, ObjectText::of(&token_lifetime::write(&token, dates)));
            self.lifetime = self.used;
        }
        let before = TOKEN_JITTER.min(life / 10).mul_f64(f64::from(rt::random()) / f64::from(u32::MAX));
        // Pause between requests even if the API server returns a very short lifetime.
        let wait = life.mul_f64(TOKEN_RENEWAL_SHARE).min(MAX_TOKEN_AGE).saturating_sub(before).max(MIN_TOKEN_BACKOFF);
        NextStep {
            events: vec![token_event(topic, token, dates)],
            request_after: Some(wait),
            attention_after: dates.left(now),
            opening_after: Some((life / 2).max(MIN_TOKEN_BACKOFF)),
        }
    }

    fn use_stored(&mut self, topic: &Topic, now: i64) -> NextStep {
        let Some((token, dates)) = self.unsent.take() else { return NextStep::default() };
        self.used = Some(dates);
        NextStep {
            events: vec![token_event(topic, token, dates)],
            attention_after: dates.left(now),
            ..NextStep::default()
        }
    }

    /// The event for an expired token, once.
    fn warning(&mut self, topic: &Topic, now: i64) -> Option<SyncEvent> {
        let Topic::Token(key) = topic else { return None };
        let dates = self.used.filter(|dates| dates.is_over(now) && !self.is_warned)?;
        self.is_warned = true;
        Some(SyncEvent::PodEvent(expired(key, dates)))
    }
}

fn token_event(topic: &Topic, text: String, dates: TokenLifetime) -> SyncEvent {
    let token = Content::Token { text, expires: dates.expires };
    SyncEvent::Object(ObjectEvent::Received(topic.clone(), Some(token)))
}

fn expired(key: &TokenKey, dates: TokenLifetime) -> PodEvent {
    let TokenKey { pod, namespace, service_account, .. } = key;
    let when = Time::from_unix_nanos(dates.expires.saturating_mul(1_000_000_000));
    let message = format!(
        "The token of service account {namespace}/{service_account} has expired at {when}, and the cluster cannot be \
         asked for another one: it is used on"
    );
    PodEvent::of_pod(pod, EventKind::Warning, Reason::TOKEN_EXPIRED, message)
}

/// Requests a token. Returns it with its remaining lifetime.
pub(super) async fn request_token(client: &Client, key: &TokenKey) -> Result<IssuedToken, ApiError> {
    let TokenKey { namespace, service_account, .. } = key;
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token");
    let response =
        client.send(&Request::post(path, &token_request(key)).requested_by(Requester::Tenant)).await?.json()?;
    let token = response.pointer("/status/token").and_then(Value::as_str).filter(|token| !token.is_empty());
    let token = token.ok_or_else(|| ApiError::Malformed("a TokenRequest without a token".into()))?;
    // The lifetime counts from now: the clocks of node and API server may differ.
    let life = response.pointer("/spec/expirationSeconds").and_then(Value::as_u64);
    Ok((token.to_owned(), life.map_or(ASSUMED_TOKEN_LIFETIME, Duration::from_secs)))
}

fn token_request(key: &TokenKey) -> Value {
    let TokenKey { pod, pod_name, audience, seconds, .. } = key;
    let audiences: Vec<&str> = if audience.is_empty() { Vec::new() } else { vec![audience.as_str()] };
    let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": pod_name, "uid": PodUid::as_str(pod)});
    json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": bound},
    })
}
