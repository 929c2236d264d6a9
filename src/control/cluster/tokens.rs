//! Requests a pod's service account token, and renews it before it expires.

use std::time::Duration;

use serde_json::{Value, json};

use super::token_lifetime::{self, TokenLifetime, is_worth_keeping};
use super::watch_context::WatchContext;
use crate::platform::apiserver::{ApiError, Client, Rank, Request, Requester};
use crate::platform::host::clock;
use crate::platform::rt;
use crate::state::objects::{Content, ObjectEvent, TokenKey, Topic};
use crate::state::pods::{PodEvent, SyncEvent};
use crate::types::api::{EventKind, PodUid, Reason, Time};
use crate::types::time::{Backoff, jitter};

/// Back-off of failed token requests.
const TOKEN_FIRST: Duration = Duration::from_secs(1);
const TOKEN_LONGEST: Duration = Duration::from_secs(60);
/// A token is renewed after this share of its lifetime, and after a day at the latest
/// (pkg/kubelet/token/token_manager.go).
const TOKEN_LIFE: f64 = 0.8;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Assumed lifetime if the API server does not return one.
const HOUR: Duration = Duration::from_secs(3600);
const TOKEN_JITTER: Duration = Duration::from_secs(10);

/// Keeps the token of `key` up to date. A token that cannot be renewed stays in use, even after it expires, which is
/// recorded as an event of the pod. A stored token is used until the API server issues a new one.
pub(super) async fn keep_token(context: WatchContext, key: TokenKey, stored: Option<Value>) {
    let topic = Topic::Token(key.clone());
    let mut unsent = stored.as_ref().and_then(token_lifetime::read);
    let mut kept = unsent.as_ref().map(|(_, dates)| *dates);
    let mut used: Option<TokenLifetime> = None;
    let mut is_warned = false;
    let mut backoff = Backoff::new(TOKEN_FIRST, TOKEN_LONGEST);
    let mut half = None;
    loop {
        let request = request_token(&context.client, &key);
        let limit = match (&unsent, used) {
            (Some(_), _) => Some(context.store.patience()),
            // Without access to the API server, wake up to report that the token expires.
            (None, Some(dates)) if !is_warned => dates.left(clock::timestamp().as_second()),
            (None, _) => None,
        };
        let answer = match limit {
            Some(limit) => rt::deadline(limit, request).await.unwrap_or(Err(ApiError::Timeout)),
            None => request.await,
        };
        let now = clock::timestamp().as_second();
        let is_fresh = answer.is_ok();
        let (event, wait) = match (answer, unsent.take()) {
            (Ok((token, life)), _) => {
                backoff.reset();
                is_warned = false;
                let dates = TokenLifetime::of(&token, now, life);
                used = Some(dates);
                if is_worth_keeping(kept, now) {
                    context.store.remember(&topic, &token_lifetime::write(&token, dates));
                    kept = used;
                }
                let before = TOKEN_JITTER.min(life / 10).mul_f64(f64::from(rt::random()) / f64::from(u32::MAX));
                // Pause between requests even if the API server returns a very short lifetime.
                let wait = life.mul_f64(TOKEN_LIFE).min(DAY).saturating_sub(before).max(TOKEN_FIRST);
                half = Some((life / 2).max(TOKEN_FIRST));
                (token_event(&topic, token, dates), wait)
            }
            (Err(_), Some((token, dates))) => {
                used = Some(dates);
                (token_event(&topic, token, dates), backoff.next_wait())
            }
            (Err(error), None) => {
                let wait = jitter(backoff.next_wait(), 0.5, rt::random());
                (ObjectEvent::Failed(topic.clone(), error.to_string()), wait)
            }
        };
        let over = used.filter(|dates| dates.is_over(now) && !is_fresh && !is_warned);
        let warning = over.map(|dates| SyncEvent::PodEvent(expired(&key, dates)));
        is_warned |= warning.is_some();
        for event in [Some(SyncEvent::Object(event)), warning].into_iter().flatten() {
            if context.inbox.send(event).await.is_err() {
                return;
            }
        }
        // If the API server is reached only in exchanges, this may be the last one before the token expires.
        let exchange = async {
            match half.take() {
                Some(half) => rt::sleep(half).await,
                None => return std::future::pending().await,
            }
            context.client.gate().opened_since(context.client.gate().openings(), Rank::Intent).await;
        };
        rt::either(rt::sleep(wait), exchange).await;
    }
}

fn token_event(topic: &Topic, text: String, dates: TokenLifetime) -> ObjectEvent {
    ObjectEvent::Received(topic.clone(), Some(Content::Token { text, expires: dates.expires }))
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
async fn request_token(client: &Client, key: &TokenKey) -> Result<(String, Duration), ApiError> {
    let TokenKey { namespace, service_account, .. } = key;
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token");
    let answer =
        client.send(&Request::post(path, &token_request(key)).requested_by(Requester::Tenant)).await?.json()?;
    let token = answer.pointer("/status/token").and_then(Value::as_str).filter(|token| !token.is_empty());
    let token = token.ok_or_else(|| ApiError::Malformed("a TokenRequest without a token".into()))?;
    // The lifetime counts from now: the clocks of node and API server may differ.
    let life = answer.pointer("/spec/expirationSeconds").and_then(Value::as_u64);
    Ok((token.to_owned(), life.map_or(HOUR, Duration::from_secs)))
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
