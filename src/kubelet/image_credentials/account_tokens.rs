//! Fetches service accounts and tokens for credential providers.

use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::service_account::{PodAccount, token_request};
use crate::platform::apiserver::{ApiError, Client, Request, Requester};
use crate::platform::config::TokenAttributes;
use crate::platform::rt;
use crate::types::api::{Pod, PodUid};
use crate::types::sorted::SortedMap;

/// The API server, once there is one, and tokens that are still valid.
#[derive(Clone, Default)]
pub(super) struct AccountTokens(Rc<Inner>);

#[derive(Default)]
struct Inner {
    client: OnceCell<Client>,
    /// With the end of their use.
    tokens: RefCell<SortedMap<TokenOwner, (String, Instant)>>,
}

/// The pod, the audience, and the uid of the service account.
type TokenOwner = (PodUid, String, String);

/// More tokens than a node pulls with at once; the one that ends first gives way.
const MAX_ACCOUNT_TOKENS: usize = 256;
/// The API's default.
const ACCOUNT_TOKEN_SECONDS: u64 = 3600;

impl AccountTokens {
    pub(super) fn set_client(&self, client: &Client) {
        let _ = self.0.client.set(client.clone());
    }

    /// The pod's service account; `None` if it has not opted in.
    pub(super) async fn account(&self, pod: &Pod, wanted: &TokenAttributes) -> Result<Option<PodAccount>, ApiError> {
        let object = self.client()?.send(&Request::get(path(pod)).requested_by(Requester::Tenant)).await?.json()?;
        Ok(PodAccount::of(&object, wanted))
    }

    /// A token of the pod, used for four fifths of its lifetime, as upstream.
    pub(super) async fn token(&self, pod: &Pod, account: &PodAccount, audience: &str) -> Result<String, ApiError> {
        let key = (pod.metadata.uid.clone(), audience.to_owned(), account.uid.clone());
        let now = rt::now();
        self.0.tokens.borrow_mut().retain(|_, (_, until)| now < *until);
        if let Some((token, _)) = self.0.tokens.borrow().get(&key) {
            return Ok(token.clone());
        }
        let request = Request::post([&path(pod), "/token"].concat(), &token_request(pod, &account.uid, audience));
        let response = self.client()?.send(&request.requested_by(Requester::Tenant)).await?.json()?;
        let token = response.pointer("/status/token").and_then(Value::as_str).filter(|token| !token.is_empty());
        let token = token.ok_or_else(|| ApiError::Malformed("a TokenRequest without a token".into()))?.to_owned();
        let life = response.pointer("/spec/expirationSeconds").and_then(Value::as_u64).unwrap_or(ACCOUNT_TOKEN_SECONDS);
        let mut tokens = self.0.tokens.borrow_mut();
        if tokens.len() >= MAX_ACCOUNT_TOKENS {
            let first = tokens.iter().min_by_key(|(_, (_, until))| *until).map(|(key, _)| key.clone());
            if let Some(first) = first {
                tokens.remove(&first);
            }
        }
        if let Some(until) = now.checked_add(Duration::from_secs(life) / 5 * 4) {
            tokens.insert(key, (token.clone(), until));
        }
        Ok(token)
    }

    fn client(&self) -> Result<&Client, ApiError> {
        self.0.client.get().ok_or_else(|| ApiError::Access("there is no API server".into()))
    }
}

impl fmt::Debug for AccountTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccountTokens(***)")
    }
}

fn path(pod: &Pod) -> String {
    format!("/api/v1/namespaces/{}/serviceaccounts/{}", pod.metadata.namespace, pod.spec.service_account_name)
}
