//! Service accounts of pods, for credential providers with `tokenAttributes`. Pure.
//!
//! `getServiceAccountData` and `generateServiceAccountCacheKey` in pkg/credentialprovider/plugin.

use serde_json::{Map, Value, json};

use crate::platform::config::{TokenAttributes, TokenCacheType};
use crate::protocol::sha256::sha256;
use crate::types::api::Pod;

/// A pod's service account, as far as a provider asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodAccount {
    pub(super) uid: String,
    /// The annotations that the provider asks for.
    pub(super) annotations: Map<String, Value>,
}

/// What a plugin gets beside the image.
#[derive(Debug, Default)]
pub(super) struct AccountToken {
    pub(super) token: String,
    pub(super) annotations: Map<String, Value>,
}

impl PodAccount {
    /// `None` if a required annotation is missing: the account has not opted in.
    pub(super) fn of(object: &Value, attributes: &TokenAttributes) -> Option<Self> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let has = object.pointer("/metadata/annotations").and_then(Value::as_object);
        let annotation = |key: &String| has.and_then(|has| has.get(key)).map(|value| (key.clone(), value.clone()));
        let required: Option<Vec<_>> = attributes.required_annotations.iter().map(annotation).collect();
        let optional = attributes.optional_annotations.iter().filter_map(annotation);
        let annotations = required?.into_iter().chain(optional).collect();
        Some(Self { uid: text("/metadata/uid"), annotations })
    }

    /// Answers are cached by the service account, or by the pod's token.
    pub(super) fn cache_key(&self, pod: &Pod, cache: TokenCacheType, token: &str) -> String {
        let of_pod = match cache {
            TokenCacheType::ServiceAccount => Value::Null,
            TokenCacheType::Token => {
                json!([pod.metadata.name, pod.metadata.uid.as_str(), sha256(token.as_bytes())])
            }
        };
        json!([pod.metadata.namespace, pod.spec.service_account_name, self.uid, self.annotations, of_pod]).to_string()
    }
}

/// The TokenRequest for the pod. The server chooses the lifetime.
pub(super) fn token_request(pod: &Pod, account_uid: &str, audience: &str) -> Value {
    let bound = json!({
        "kind": "Pod", "apiVersion": "v1", "name": pod.metadata.name, "uid": pod.metadata.uid.as_str(),
    });
    json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        // The server refuses it for another account of the same name.
        "metadata": {"uid": account_uid},
        "spec": {"audiences": [audience], "boundObjectRef": bound},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::decode;

    fn attributes(required: &[&str], optional: &[&str]) -> TokenAttributes {
        let own = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
        TokenAttributes {
            audience: "registry".to_owned(),
            cache: TokenCacheType::ServiceAccount,
            is_required: true,
            required_annotations: own(required),
            optional_annotations: own(optional),
        }
    }

    fn account() -> Value {
        json!({"metadata": {"uid": "7", "annotations": {"a/role": "reader", "a/host": "h", "other": "x"}}})
    }

    fn pod(name: &str) -> Pod {
        let meta = json!({"name": name, "namespace": "ns", "uid": format!("uid-{name}")});
        decode(json!({"metadata": meta, "spec": {"serviceAccountName": "robot"}})).unwrap().value
    }

    #[test]
    fn only_annotations_that_are_asked_for_are_passed() {
        let found = PodAccount::of(&account(), &attributes(&["a/role"], &["a/host", "a/none"])).unwrap();
        assert_eq!(found.uid, "7");
        assert_eq!(Value::Object(found.annotations), json!({"a/role": "reader", "a/host": "h"}));
    }

    #[test]
    fn account_without_a_required_annotation_has_not_opted_in() {
        assert_eq!(PodAccount::of(&account(), &attributes(&["a/role", "a/none"], &[])), None);
        assert_eq!(PodAccount::of(&json!({}), &attributes(&["a/role"], &[])), None);
        assert!(PodAccount::of(&json!({}), &attributes(&[], &[])).is_some());
    }

    #[test]
    fn answers_of_a_service_account_are_those_of_all_its_pods_and_of_a_token_those_of_one() {
        use TokenCacheType::{ServiceAccount, Token};
        let key = |object: &Value, pod: &Pod, cache, token| {
            PodAccount::of(object, &attributes(&[], &["a/role"])).unwrap().cache_key(pod, cache, token)
        };
        let (one, other) = (pod("one"), pod("other"));
        let mut changed = account();
        changed["metadata"]["annotations"]["a/role"] = json!("writer");
        let mut anew = account();
        anew["metadata"]["uid"] = json!("8");
        let first = key(&account(), &one, ServiceAccount, "t");
        assert_eq!(first, key(&account(), &other, ServiceAccount, "u"));
        assert_ne!(first, key(&changed, &one, ServiceAccount, "t"));
        assert_ne!(first, key(&anew, &one, ServiceAccount, "t"));
        let first = key(&account(), &one, Token, "t");
        assert_eq!(first, key(&account(), &one, Token, "t"));
        assert_ne!(first, key(&account(), &one, Token, "u"));
        assert_ne!(first, key(&account(), &other, Token, "t"));
        assert!(!first.contains("\"t\""), "the token itself is not kept");
    }

    #[test]
    fn token_is_bound_to_the_pod_and_its_audience() {
        let request = token_request(&pod("web"), "7", "registry");
        assert_eq!(request["metadata"]["uid"], "7");
        let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": "web", "uid": "uid-web"});
        assert_eq!(request["spec"], json!({"audiences": ["registry"], "boundObjectRef": bound}));
    }
}
