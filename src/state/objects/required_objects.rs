//! What pods of the cluster need from the API server. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{CsiSource, ObjectKey, ObjectKind, ResourceClaimKey, attachment_name, pod_claims, references};
use crate::types::api::{
    ClusterTrustBundleProjection, Pod, PodUid, ProjectionSource, ServiceAccountTokenProjection, Volume, VolumeSource,
};
use crate::types::sorted::SortedSet;

/// Something at the API server that is watched while a pod needs it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    Object(ObjectKey),
    /// All services of a namespace.
    Services(String),
    /// The service `kubernetes`, whose variables every pod gets.
    ApiServerService,
    Token(TokenKey),
    Claim {
        namespace: String,
        name: String,
        /// The pod that must own the claim.
        owner: Option<ClaimOwner>,
    },
    /// By name.
    RuntimeClass(String),
    /// By name.
    CsiDriver(String),
    /// By name.
    Attachment(String),
    ResourceClaim(ResourceClaimKey),
    TrustBundles(BundleKey),
    PodCertificate(Box<PodCertificateKey>),
}

impl Topic {
    /// No topic is before this one.
    pub(crate) fn first() -> Self {
        Self::Object(ObjectKey { kind: ObjectKind::ConfigMap, namespace: String::new(), name: String::new() })
    }
}

/// A pod with ephemeral volumes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClaimOwner {
    pub(crate) pod: PodUid,
    pub(crate) pod_name: String,
}

/// A selection of ClusterTrustBundles.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BundleKey {
    Named(String),
    /// All bundles of a signer.
    Signed(String),
}

impl BundleKey {
    /// `None` for a projection with neither name nor signer, which the API server rejects.
    pub(crate) fn of(projection: &ClusterTrustBundleProjection) -> Option<Self> {
        let signed = || projection.signer_name.clone().map(Self::Signed);
        projection.name.clone().map(Self::Named).or_else(signed)
    }
}

/// A certificate of a pod. Projections that ask for the same one share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodCertificateKey {
    pub(crate) pod: PodUid,
    pub(crate) namespace: String,
    pub(crate) key_type: String,
    /// The request's `spec` as JSON, without its proof and the UIDs of service account and node.
    pub(crate) spec: String,
}

/// Certificates of one pod; each takes a request and up to 100 KiB.
pub(crate) const MAX_POD_CERTIFICATES: usize = 64;

/// Different tokens of one pod; each takes a request at least once an hour or so, memory, and a record of the offline
/// store.
pub(crate) const MAX_POD_TOKENS: usize = 64;

impl PodCertificateKey {
    pub(crate) fn of(pod: &Pod, projection: &Value) -> Self {
        let field = |name: &str| projection.get(name).cloned().unwrap_or_default();
        let spec = json!({
            "signerName": field("signerName"), "podName": pod.metadata.name, "podUID": pod.metadata.uid.as_str(),
            "serviceAccountName": pod.spec.service_account_name, "nodeName": pod.spec.node_name,
            "maxExpirationSeconds": field("maxExpirationSeconds"),
            "unverifiedUserAnnotations": field("userAnnotations"),
        });
        Self {
            pod: pod.metadata.uid.clone(),
            namespace: pod.metadata.namespace.clone(),
            key_type: field("keyType").as_str().unwrap_or_default().to_owned(),
            spec: spec.to_string(),
        }
    }
}

/// A service account token of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TokenKey {
    pub(crate) pod: PodUid,
    pub(crate) pod_name: String,
    pub(crate) namespace: String,
    pub(crate) service_account: String,
    /// Empty: the API server.
    pub(crate) audience: String,
    pub(crate) seconds: i64,
}

/// Default token lifetime of the API.
const DEFAULT_TOKEN_SECONDS: i64 = 3600;

impl Topic {
    /// What a pod refers to directly and needs before its containers can be created.
    pub(crate) fn of(pod: &Pod) -> SortedSet<Self> {
        let namespace = &pod.metadata.namespace;
        let mut topics: SortedSet<Self> = references(pod).into_iter().map(Self::Object).collect();
        topics.insert(Self::ApiServerService);
        if pod.spec.enable_service_links.unwrap_or(true) {
            topics.insert(Self::Services(namespace.clone()));
        }
        let mut tokens = SortedSet::new();
        topics.extend(projections(pod).filter_map(|projection| match projection {
            ProjectionSource::ServiceAccountToken(token) if tokens.len() < MAX_POD_TOKENS => {
                tokens.insert(Self::Token(TokenKey::of(pod, token)));
                None
            }
            ProjectionSource::ClusterTrustBundle(bundle) => BundleKey::of(bundle).map(Self::TrustBundles),
            _ => None,
        }));
        topics.extend(tokens);
        let certificates = projections(pod).filter_map(|projection| match projection {
            ProjectionSource::PodCertificate(certificate) => Some(PodCertificateKey::of(pod, certificate)),
            _ => None,
        });
        topics.extend(certificates.take(MAX_POD_CERTIFICATES).map(|key| Self::PodCertificate(Box::new(key))));
        topics.extend(pod.spec.volumes.iter().filter_map(|volume| Self::claim(pod, volume)));
        topics.extend(pod.spec.runtime_class_name.clone().map(Self::RuntimeClass));
        topics.extend(pod_claims(pod).flatten().filter_map(|claim| {
            Some(Self::ResourceClaim(ResourceClaimKey::new(pod, claim.claim?, claim.is_generated)))
        }));
        topics
    }

    pub(crate) fn attachment(pod: &Pod, source: &CsiSource) -> Self {
        Self::Attachment(attachment_name(&source.driver, &source.handle, &pod.spec.node_name))
    }

    /// The claim of a volume. An ephemeral volume has a claim owned by the pod.
    pub(crate) fn claim(pod: &Pod, volume: &Volume) -> Option<Self> {
        let namespace = pod.metadata.namespace.clone();
        match &volume.source {
            VolumeSource::PersistentVolumeClaim(claim) => {
                Some(Self::Claim { namespace, name: claim.claim_name.clone(), owner: None })
            }
            VolumeSource::Ephemeral(_) => {
                let owner = ClaimOwner { pod: pod.metadata.uid.clone(), pod_name: pod.metadata.name.clone() };
                Some(Self::Claim { namespace, name: [&owner.pod_name, "-", &volume.name].concat(), owner: Some(owner) })
            }
            _ => None,
        }
    }
}

fn projections(pod: &Pod) -> impl Iterator<Item = &ProjectionSource> {
    let projected = pod.spec.volumes.iter().filter_map(|volume| match &volume.source {
        VolumeSource::Projected(projected) => Some(projected),
        _ => None,
    });
    projected.flat_map(|projected| &projected.sources).filter_map(|projection| projection.source.as_ref())
}

impl TokenKey {
    pub(crate) fn of(pod: &Pod, token: &ServiceAccountTokenProjection) -> Self {
        Self::for_driver(pod, &(token.audience.clone(), token.expiration_seconds.unwrap_or(DEFAULT_TOKEN_SECONDS)))
    }

    /// A token for a CSI driver, with audience and lifetime in seconds.
    pub(crate) fn for_driver(pod: &Pod, (audience, seconds): &(String, i64)) -> Self {
        Self {
            pod: pod.metadata.uid.clone(),
            pod_name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            service_account: pod.spec.service_account_name.clone(),
            audience: audience.clone(),
            seconds: *seconds,
        }
    }
}

/// What is known about the watched topics.
#[derive(Debug)]
pub(crate) struct TopicStates<T>(BTreeMap<Arc<Topic>, TopicState<T>>);

#[derive(Debug)]
enum TopicState<T> {
    /// `None`: it does not exist.
    Received(Option<T>),
    /// Not read yet, and why.
    Unread(String),
}

impl<T> Default for TopicStates<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lookup<T> {
    Found(T),
    Missing,
    /// It could not be read; one line.
    Unknown(String),
}

impl<T: PartialEq> TopicStates<T> {
    pub(crate) fn get(&self, topic: &Topic) -> Lookup<&T> {
        match self.0.get(topic) {
            Some(TopicState::Received(Some(value))) => Lookup::Found(value),
            Some(TopicState::Received(None)) => Lookup::Missing,
            Some(TopicState::Unread(why)) => Lookup::Unknown(why.clone()),
            None => Lookup::Unknown("not read from the API server yet".to_owned()),
        }
    }

    /// True if it changed.
    pub(crate) fn set(&mut self, topic: Arc<Topic>, value: Option<T>) -> bool {
        let has_changed = !matches!(self.0.get(&topic), Some(TopicState::Received(former)) if *former == value);
        self.0.insert(topic, TopicState::Received(value));
        has_changed
    }

    /// Records a failure. A known value stays. True if anything changed: of a certificate, which many wait for longer,
    /// also the reason.
    pub(crate) fn fail(&mut self, topic: Arc<Topic>, why: String) -> bool {
        let is_news = match self.0.get(&topic) {
            None => true,
            Some(TopicState::Unread(former)) => matches!(*topic, Topic::PodCertificate(_)) && *former != why,
            Some(TopicState::Received(_)) => false,
        };
        if !is_news {
            return false;
        }
        self.0.insert(topic, TopicState::Unread(why));
        true
    }

    /// The known values.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&Topic, &T)> {
        self.0.iter().filter_map(|(topic, state)| match state {
            TopicState::Received(Some(value)) => Some((&**topic, value)),
            TopicState::Received(None) | TopicState::Unread(_) => None,
        })
    }

    /// There is neither a value nor a failure.
    pub(crate) fn is_pending(&self, topic: &Topic) -> bool {
        !self.0.contains_key(topic)
    }

    pub(crate) fn forget(&mut self, topic: &Topic) {
        self.0.remove(topic);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::objects::ObjectKind;
    use crate::types::api::decode;

    fn pod(spec: Value) -> Pod {
        decode(json!({"metadata": {"namespace": "ns", "name": "p", "uid": "u"}, "spec": spec})).unwrap().value
    }

    fn object(name: &str) -> Topic {
        Topic::Object(ObjectKey { kind: ObjectKind::ConfigMap, namespace: "ns".into(), name: name.into() })
    }

    #[test]
    fn pod_needs_its_references_services_and_tokens() {
        let token = json!({"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}});
        let sources = json!([token, {"configMap": {"name": "kube-root-ca.crt"}}]);
        let volumes = json!([{"name": "v", "projected": {"sources": sources}}]);
        let topics = Topic::of(&pod(json!({"serviceAccountName": "sa", "volumes": volumes})));
        let key = TokenKey {
            pod: "u".into(),
            pod_name: "p".into(),
            namespace: "ns".into(),
            service_account: "sa".into(),
            audience: String::new(),
            seconds: 3607,
        };
        let wanted =
            [object("kube-root-ca.crt"), Topic::Services("ns".into()), Topic::ApiServerService, Topic::Token(key)];
        assert_eq!(topics, wanted.into_iter().collect());
    }

    #[test]
    fn ephemeral_volume_has_a_claim_owned_by_the_pod() {
        let volumes = json!([{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]);
        let topics = Topic::of(&pod(json!({"enableServiceLinks": false, "volumes": volumes})));
        let owner = Some(ClaimOwner { pod: "u".into(), pod_name: "p".into() });
        let claim = Topic::Claim { namespace: "ns".into(), name: "p-v".into(), owner };
        assert_eq!(topics, [claim, Topic::ApiServerService].into_iter().collect());
    }

    #[test]
    fn bundles_are_selected_by_name_or_signer() {
        let bundle = |more: Value| json!({"clusterTrustBundle": more});
        let named = bundle(json!({"name": "a", "path": "a.pem"}));
        let signed = bundle(json!({"signerName": "example.com/s", "labelSelector": {}, "path": "s.pem"}));
        let volumes = json!([{"name": "v", "projected": {"sources": [named, signed]}}]);
        let topics = Topic::of(&pod(json!({"enableServiceLinks": false, "volumes": volumes})));
        let keys = [BundleKey::Named("a".into()), BundleKey::Signed("example.com/s".into())];
        let wanted = keys.map(Topic::TrustBundles).into_iter().chain([Topic::ApiServerService]);
        assert_eq!(topics, wanted.collect());
    }

    #[test]
    fn pod_without_service_links_needs_only_the_kubernetes_service() {
        let topics = Topic::of(&pod(json!({"enableServiceLinks": false})));
        assert_eq!(topics, [Topic::ApiServerService].into_iter().collect());
    }

    #[test]
    fn known_value_stays_after_a_failure() {
        let mut states = TopicStates::default();
        assert!(states.is_pending(&object("a")));
        let shared = || Arc::new(object("a"));
        assert!(states.fail(shared(), "away".into()));
        assert_eq!(states.get(&object("a")), Lookup::Unknown("away".into()));
        assert!(states.set(shared(), Some(1)) && !states.set(shared(), Some(1)));
        assert!(!states.fail(shared(), "away".into()));
        assert_eq!(states.get(&object("a")), Lookup::Found(&1));
        assert!(states.set(shared(), None));
        assert_eq!(states.get(&object("a")), Lookup::Missing);
    }
}
