//! Names of records, and the stored part of objects. Pure.

use serde_json::{Value, json};

use super::record::name;
use crate::protocol::sha256::sha256;
use crate::state::objects::{BundleKey, TokenKey, Topic, VOLUME_ANNOTATIONS};
use crate::state::pods::NodeFields;
use crate::types::api::{ObjectText, Pod, decode, encode};

/// Prefix of pod records.
pub(super) const POD_RECORD_PREFIX: &str = "pod/";
/// Prefix of what a component has read.
pub(super) const READ_RECORD_PREFIX: &str = "read/";
/// The fields of the Node object.
pub(super) const NODE_RECORD: &str = "node";

/// The cluster that the store belongs to.
pub(super) const CLUSTER: &str = "cluster";

/// Includes the uid: two pods with the same name may exist while the first is terminating.
pub(super) fn of_pod(pod: &Pod) -> String {
    let metadata = &pod.metadata;
    name(&["pod", &metadata.namespace, &metadata.name, metadata.uid.as_str()])
}

/// `account` counts as the namespace: each has at most half of the store.
pub(super) fn of_read(account: &str, rest: &str) -> String {
    name(&["read", account, rest])
}

/// Whether the record is a token for the API server itself.
pub(super) fn is_token_for_api_server(record: &str) -> bool {
    let mut parts = record.split('/');
    parts.next() == Some("token") && parts.nth(3) == Some("")
}

/// Includes the kind and the object's name.
pub(super) fn of_topic(topic: &Topic) -> String {
    match topic {
        Topic::Object(key) => name(&[key.kind.resource(), &key.namespace, &key.name]),
        Topic::Services(namespace) => name(&["services", namespace]),
        Topic::ApiServerService => name(&["service", "default", "kubernetes"]),
        Topic::Token(TokenKey { pod, namespace, service_account, audience, seconds, .. }) => {
            name(&["token", namespace, service_account, pod.as_str(), audience, &seconds.to_string()])
        }
        // Never stored.
        Topic::PodCertificate(key) => {
            let digest = sha256([&*key.key_type, &*key.spec].concat().as_bytes());
            name(&["podcertificate", &key.namespace, key.pod.as_str(), &digest])
        }
        Topic::Claim { namespace, name: claim, owner: None } => name(&["claim", namespace, claim]),
        Topic::Claim { namespace, name: claim, owner: Some(owner) } => {
            name(&["claim", namespace, claim, owner.pod.as_str()])
        }
        Topic::RuntimeClass(class) => name(&["runtimeclass", class]),
        Topic::Attachment(attachment) => name(&["attachment", attachment]),
        Topic::ResourceClaim(key) => name(&["resourceclaim", &key.namespace, &key.name, key.pod.as_str()]),
        Topic::CsiDriver(driver) => name(&["csidriver", driver]),
        Topic::TrustBundles(BundleKey::Named(bundle)) => name(&["trustbundle", bundle]),
        Topic::TrustBundles(BundleKey::Signed(signer)) => name(&["trustbundles", signer]),
    }
}

/// The namespace of a record's object; empty for the node's own and for objects without a namespace.
pub(super) fn namespace(record: &str) -> &str {
    let mut parts = record.split('/');
    match parts.next() {
        Some(
            "pod" | "configmap" | "secret" | "services" | "token" | "podcertificate" | "read" | "claim"
            | "resourceclaim",
        ) => parts.next().unwrap_or_default(),
        _ => "",
    }
}

/// Whether the content of the record may be revoked: an old one is not used in place of a new one that does not fit.
pub(super) fn may_be_revoked(record: &str) -> bool {
    let kind = record.split('/').next();
    matches!(kind, Some("configmap" | "secret" | "token" | "trustbundle" | "trustbundles"))
}

/// Without `managedFields`, which only the API server needs and which is half of the object.
pub(crate) fn without_managed_fields(object: &ObjectText) -> ObjectText {
    object.without(&["metadata.managedFields"])
}

/// The part of an object other than a pod that pods use.
pub(crate) fn used_part(object: &ObjectText) -> ObjectText {
    object.without(&["status", "metadata.managedFields", "metadata.annotations", "metadata.ownerReferences"])
}

/// The part of a persistent volume that pods use. Some of its annotations count.
pub(crate) fn used_part_of_volume(volume: &Value) -> Value {
    let server_only = ["status", "metadata.managedFields", "metadata.ownerReferences"];
    let mut kept = ObjectText::of(volume).without(&server_only).value().unwrap_or_default();
    if let Some(metadata) = kept.get_mut("metadata").and_then(Value::as_object_mut) {
        let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
        let is_used = annotations.is_some_and(|annotations| {
            annotations.retain(|name, _| VOLUME_ANNOTATIONS.contains(&name.as_str()));
            !annotations.is_empty()
        });
        if !is_used {
            metadata.remove("annotations");
        }
    }
    kept
}

/// Identity of the cluster that the store belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cluster {
    /// Digests of the CA certificates trusted for its server.
    pub(super) authorities: Vec<String>,
    /// Uid of the node in it.
    pub(super) node: String,
}

impl Cluster {
    /// Whether a server with these CAs belongs to the same cluster. Without CAs, servers cannot be distinguished.
    pub(super) fn has_authority_of(&self, authorities: &[String]) -> bool {
        let is_unsure = self.authorities.is_empty() || authorities.is_empty();
        is_unsure || self.authorities.iter().any(|authority| authorities.contains(authority))
    }

    pub(super) fn write(&self) -> Value {
        json!({"authorities": self.authorities, "node": self.node})
    }

    /// `None` if it is malformed.
    pub(super) fn read(content: &Value) -> Option<Self> {
        let authorities = content.get("authorities")?.as_array()?;
        Some(Self {
            authorities: authorities.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            node: content.get("node")?.as_str()?.to_owned(),
        })
    }
}

pub(super) fn write_node_fields(fields: &NodeFields) -> Value {
    let taints: Vec<Value> = fields.taints.iter().map(|taint| encode(taint)).collect();
    json!({"uid": fields.uid, "labels": encode(&fields.labels), "taints": taints, "attached": fields.attached})
}

/// `None` if it is malformed.
pub(super) fn read_node_fields(content: Value) -> Option<NodeFields> {
    let mut content = content;
    let mut field = |name: &str| content.get_mut(name).map(Value::take);
    let Some(Value::String(uid)) = field("uid") else { return None };
    let labels = decode(field("labels")?).ok()?.value;
    let taints = decode(field("taints")?).ok()?.value;
    let attached = content.get("attached").and_then(Value::as_array).into_iter().flatten();
    let attached = attached.filter_map(Value::as_str).map(str::to_owned).collect();
    Some(NodeFields { uid, labels, taints, attached, ..NodeFields::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::objects::{ClaimOwner, ObjectKey, ObjectKind, ResourceClaimKey};

    #[test]
    fn each_topic_has_its_own_name() {
        let owner = ClaimOwner { pod: "u".into(), pod_name: "p".into() };
        let token = |audience: &str| TokenKey {
            pod: "u".into(),
            pod_name: "p".into(),
            namespace: "ns".into(),
            service_account: "sa".into(),
            audience: audience.into(),
            seconds: 3607,
        };
        let claim = ResourceClaimKey {
            namespace: "ns".into(),
            name: "c".into(),
            pod: "u".into(),
            pod_name: "p".into(),
            is_generated: true,
        };
        let object = |kind| Topic::Object(ObjectKey { kind, namespace: "ns".into(), name: "a".into() });
        for (topic, expected) in [
            (object(ObjectKind::ConfigMap), "configmap/ns/a"),
            (object(ObjectKind::Secret), "secret/ns/a"),
            (Topic::Services("ns".into()), "services/ns"),
            (Topic::ApiServerService, "service/default/kubernetes"),
            (Topic::Token(token("")), "token/ns/sa/u//3607"),
            (Topic::Token(token("a/b")), "token/ns/sa/u/a%2Fb/3607"),
            (Topic::Claim { namespace: "ns".into(), name: "a".into(), owner: None }, "claim/ns/a"),
            (Topic::Claim { namespace: "ns".into(), name: "p-v".into(), owner: Some(owner) }, "claim/ns/p-v/u"),
            (Topic::RuntimeClass("a".into()), "runtimeclass/a"),
            (Topic::CsiDriver("a".into()), "csidriver/a"),
            (Topic::Attachment("csi-1".into()), "attachment/csi-1"),
            (Topic::ResourceClaim(claim), "resourceclaim/ns/c/u"),
            (Topic::TrustBundles(BundleKey::Named("a".into())), "trustbundle/a"),
            (Topic::TrustBundles(BundleKey::Signed("x.io/a".into())), "trustbundles/x.io%2Fa"),
        ] {
            assert_eq!(of_topic(&topic), expected);
        }
    }

    #[test]
    fn server_only_fields_are_not_stored() {
        let object = json!({
            "metadata": {"name": "a", "resourceVersion": "7", "managedFields": [{}], "annotations": {"k": "v"}},
            "data": {"k": "v"}, "status": {}
        });
        let metadata = json!({"name": "a", "resourceVersion": "7"});
        let text = ObjectText::of(&object);
        assert_eq!(used_part(&text).value().unwrap(), json!({"metadata": metadata, "data": {"k": "v"}}));
        assert_eq!(used_part_of_volume(&object), json!({"metadata": metadata, "data": {"k": "v"}}));
        let group = json!({"metadata": {"annotations": {"k": "v", "pv.beta.kubernetes.io/gid": "7"}}});
        let kept = used_part_of_volume(&group);
        assert_eq!(kept["metadata"]["annotations"], json!({"pv.beta.kubernetes.io/gid": "7"}));
        let pod = without_managed_fields(&text).value().unwrap();
        assert_eq!((&pod["metadata"]["annotations"], &pod["status"]), (&json!({"k": "v"}), &json!({})));
    }

    #[test]
    fn cluster_with_one_common_ca_is_the_same() {
        let cluster = |authorities: &[&str]| Cluster {
            authorities: authorities.iter().map(|one| (*one).to_owned()).collect(),
            node: "n".to_owned(),
        };
        for (known, now, expected) in [
            (&["a"][..], &["a"][..], true),
            (&["a"], &["b", "a"], true),
            (&["a"], &["b"], false),
            (&["a"], &[], true),
            (&[], &["b"], true),
        ] {
            assert_eq!(cluster(known).has_authority_of(&cluster(now).authorities), expected, "{known:?} {now:?}");
        }
        assert_eq!(Cluster::read(&cluster(&["a"]).write()), Some(cluster(&["a"])));
        assert_eq!(Cluster::read(&json!({"authorities": []})), None);
    }

    #[test]
    fn node_terms_survive_a_round_trip() {
        let taint = json!({"key": "k", "value": "v", "effect": "NoSchedule"});
        let content =
            json!({"uid": "n", "labels": {"a": "b"}, "taints": [taint], "attached": ["kubernetes.io/csi/d^h"]});
        let terms = read_node_fields(content.clone()).unwrap();
        assert_eq!((terms.uid.as_str(), terms.labels.get("a").map(String::as_str)), ("n", Some("b")));
        assert_eq!(write_node_fields(&terms), content);
        for bad in [json!(null), json!({"uid": "n"}), json!({"uid": "n", "labels": [], "taints": []})] {
            assert_eq!(read_node_fields(bad), None);
        }
    }
}
