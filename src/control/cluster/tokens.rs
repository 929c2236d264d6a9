//! Keeps a pod's token of its service account: asks for it, and for another before its time is over.

use std::time::Duration;

use serde_json::{Value, json};

use super::token_lifetime::{self, Dates, is_worth_keeping};
use super::watch_context::WatchContext;
use crate::platform::apiserver::{ApiError, Client, Rank, Request};
use crate::platform::host::clock;
use crate::platform::rt;
use crate::state::objects::{Content, ObjectEvent, TokenKey, Topic};
use crate::state::pods::{PodEvent, SyncEvent};
use crate::types::api::{EventKind, PodUid, Reason, Time};
use crate::types::time::{Backoff, jitter};

/// A token that could not be had is asked for again after so long, and then twice as long.
const TOKEN_FIRST: Duration = Duration::from_secs(1);
const TOKEN_LONGEST: Duration = Duration::from_secs(60);
/// A token is replaced when so much of its time is over, and a day at the latest (pkg/kubelet/token/token_manager.go).
const TOKEN_LIFE: f64 = 0.8;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// A token of a server that does not say how long it is valid.
const HOUR: Duration = Duration::from_secs(3600);
const TOKEN_JITTER: Duration = Duration::from_secs(10);

/// One that could not be replaced is used on, also when its time is over: then the pod is told of. What was stored counts
/// until the cluster gives another.
pub(super) async fn keep_token(context: WatchContext, key: TokenKey, stored: Option<Value>) {
    let topic = Topic::Token(key.clone());
    let mut untold = stored.as_ref().and_then(token_lifetime::read);
    let mut kept = untold.as_ref().map(|(_, dates)| *dates);
    let mut used: Option<Dates> = None;
    let mut is_warned = false;
    let mut backoff = Backoff::new(TOKEN_FIRST, TOKEN_LONGEST);
    let mut half = None;
    loop {
        let asked = request_token(&context.client, &key);
        let limit = match (&untold, used) {
            (Some(_), _) => Some(context.store.patience()),
            // However long nobody may be asked, the pod hears when its token is over.
            (None, Some(dates)) if !is_warned => dates.left(clock::timestamp().as_second()),
            (None, _) => None,
        };
        let answer = match limit {
            Some(limit) => rt::deadline(limit, asked).await.unwrap_or(Err(ApiError::Timeout)),
            None => asked.await,
        };
        let now = clock::timestamp().as_second();
        let is_fresh = answer.is_ok();
        let (news, wait) = match (answer, untold.take()) {
            (Ok((token, life)), _) => {
                backoff.reset();
                is_warned = false;
                let dates = Dates::of(&token, now, life);
                used = Some(dates);
                if is_worth_keeping(kept, now) {
                    context.store.remember(&topic, &token_lifetime::write(&token, dates));
                    kept = used;
                }
                let before = TOKEN_JITTER.min(life / 10).mul_f64(f64::from(rt::random()) / f64::from(u32::MAX));
                // Whatever a server calls a life, it is not asked without a pause.
                let wait = life.mul_f64(TOKEN_LIFE).min(DAY).saturating_sub(before).max(TOKEN_FIRST);
                half = Some((life / 2).max(TOKEN_FIRST));
                (heard(&topic, token, dates), wait)
            }
            (Err(_), Some((token, dates))) => {
                used = Some(dates);
                (heard(&topic, token, dates), backoff.next_wait())
            }
            (Err(error), None) => {
                let wait = jitter(backoff.next_wait(), 0.5, rt::random());
                (ObjectEvent::Failed(topic.clone(), error.to_string()), wait)
            }
        };
        let over = used.filter(|dates| dates.is_over(now) && !is_fresh && !is_warned);
        let warning = over.map(|dates| SyncEvent::Happened(expired(&key, dates)));
        is_warned |= warning.is_some();
        for event in [Some(SyncEvent::Object(news)), warning].into_iter().flatten() {
            if context.inbox.send(event).await.is_err() {
                return;
            }
        }
        // Where the cluster is asked now and then alone, this may be the last time before the token is over.
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

fn heard(topic: &Topic, text: String, dates: Dates) -> ObjectEvent {
    ObjectEvent::Heard(topic.clone(), Some(Content::Token { text, expires: dates.expires }))
}

fn expired(key: &TokenKey, dates: Dates) -> PodEvent {
    let TokenKey { pod, namespace, service_account, .. } = key;
    let when = Time::from_unix_nanos(dates.expires.saturating_mul(1_000_000_000));
    let message = format!(
        "The token of service account {namespace}/{service_account} has expired at {when}, and the cluster cannot be \
         asked for another one: it is used on"
    );
    PodEvent::of_pod(pod, EventKind::Warning, Reason::TOKEN_EXPIRED, message)
}

/// A token, and how long it is valid from now on.
async fn request_token(client: &Client, key: &TokenKey) -> Result<(String, Duration), ApiError> {
    let TokenKey { namespace, service_account, .. } = key;
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token");
    let answer = client.send(&Request::post(path, &token_request(key))).await?.json()?;
    let token = answer.pointer("/status/token").and_then(Value::as_str).filter(|token| !token.is_empty());
    let token = token.ok_or_else(|| ApiError::Malformed("a TokenRequest without a token".into()))?;
    // Counted from here: the clocks of node and server need not agree.
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
