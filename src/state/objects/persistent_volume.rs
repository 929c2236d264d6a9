//! PersistentVolumes as pods mount them. Pure.

use serde_json::Value;

use super::{ObjectKey, ObjectKind};
use crate::types::api::{DecodeError, HostPathVolumeSource, NfsVolumeSource, NodeSelector, PodUid, decode};
use crate::types::sorted::SortedMap;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PersistentVolume {
    pub(crate) name: String,
    /// Namespace and name of the claim it is bound to.
    pub(crate) claim: Option<(String, String)>,
    pub(crate) source: PersistentSource,
    /// `volumeMode: Block`.
    pub(crate) is_block: bool,
    pub(crate) access_modes: Vec<String>,
    pub(crate) mount_options: Vec<String>,
    /// Group of the pods that use it, beside their own groups.
    pub(crate) group: Option<i64>,
    /// The nodes on which it may be mounted.
    pub(crate) node_affinity: Option<NodeSelector>,
}

/// The annotations of PersistentVolumes that a node reads.
pub(crate) const VOLUME_ANNOTATIONS: [&str; 2] = [GROUP_ANNOTATION, MOUNT_OPTIONS_ANNOTATION];

const GROUP_ANNOTATION: &str = "pv.beta.kubernetes.io/gid";
/// Takes the place of `mountOptions`, except for CSI volumes.
const MOUNT_OPTIONS_ANNOTATION: &str = "volume.beta.kubernetes.io/mount-options";

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PersistentSource {
    Csi(Box<CsiSource>),
    HostPath(HostPathVolumeSource),
    /// A directory or disk of this node, which must exist.
    Local {
        path: String,
        fs_type: String,
    },
    Nfs(NfsVolumeSource),
    /// The unsupported source's key in the spec.
    Other(String),
}

/// The CSI source of a volume.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CsiSource {
    pub(crate) driver: String,
    pub(crate) handle: String,
    pub(crate) fs_type: String,
    pub(crate) attributes: SortedMap<String, String>,
    pub(crate) stage_secret: Option<ObjectKey>,
    pub(crate) publish_secret: Option<ObjectKey>,
    pub(crate) expand_secret: Option<ObjectKey>,
}

impl CsiSource {
    fn read(source: &Value) -> Self {
        let text = |key: &str| source.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let secret = |key: &str| {
            let of = |field: &str| source.get(key)?.get(field)?.as_str().map(str::to_owned);
            Some(ObjectKey { kind: ObjectKind::Secret, namespace: of("namespace")?, name: of("name")? })
        };
        let attributes = source.get("volumeAttributes").and_then(Value::as_object).into_iter().flatten();
        Self {
            driver: text("driver"),
            handle: text("volumeHandle"),
            fs_type: text("fsType"),
            attributes: attributes.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect(),
            stage_secret: secret("nodeStageSecretRef"),
            publish_secret: secret("nodePublishSecretRef"),
            expand_secret: secret("nodeExpandSecretRef"),
        }
    }
}

impl PersistentVolume {
    /// Reads a `v1.PersistentVolume`.
    pub(crate) fn read(object: &Value) -> Result<Self, DecodeError> {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let field = |key: &str| object.pointer("/spec").and_then(|spec| spec.get(key)).cloned();
        let source = if let Some(source) = field("hostPath") {
            PersistentSource::HostPath(decode(source)?.value)
        } else if let Some(source) = field("nfs") {
            PersistentSource::Nfs(decode(source)?.value)
        } else if let Some(source) = field("csi") {
            PersistentSource::Csi(Box::new(CsiSource::read(&source)))
        } else if field("local").is_some() {
            PersistentSource::Local { path: text("/spec/local/path"), fs_type: text("/spec/local/fsType") }
        } else {
            let keys = object.pointer("/spec").and_then(Value::as_object);
            let kind =
                keys.into_iter().flatten().find(|(key, value)| value.is_object() && !NO_SOURCE.contains(&key.as_str()));
            PersistentSource::Other(kind.map_or_else(|| "unknown".to_owned(), |(key, _)| key.clone()))
        };
        let claim = |field: &str| object.pointer("/spec/claimRef")?.get(field)?.as_str().map(str::to_owned);
        let texts = |path: &str| {
            let list = object.pointer(path).and_then(Value::as_array).into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let annotation = |name: &str| object.pointer("/metadata/annotations")?.get(name)?.as_str();
        let is_csi = matches!(source, PersistentSource::Csi(_));
        let mount_options = match annotation(MOUNT_OPTIONS_ANNOTATION).filter(|_| !is_csi) {
            Some(options) => options.split(',').filter(|option| !option.is_empty()).map(str::to_owned).collect(),
            None => texts("/spec/mountOptions"),
        };
        let required = object.pointer("/spec/nodeAffinity/required").filter(|required| !required.is_null());
        Ok(Self {
            name: text("/metadata/name"),
            claim: claim("namespace").zip(claim("name")),
            source,
            is_block: text("/spec/volumeMode") == "Block",
            access_modes: texts("/spec/accessModes"),
            mount_options,
            // As upstream, any other text is ignored.
            group: annotation(GROUP_ANNOTATION).and_then(|group| group.parse().ok()),
            node_affinity: required.map(|required| Ok(decode(required.clone())?.value)).transpose()?,
        })
    }
}

/// Objects in the spec that are not volume sources.
const NO_SOURCE: [&str; 3] = ["capacity", "claimRef", "nodeAffinity"];

/// Name of the volume that a `v1.PersistentVolumeClaim` is bound to.
pub(crate) fn bound_volume(claim: &Value) -> Option<&str> {
    let is_bound = claim.pointer("/status/phase").and_then(Value::as_str) == Some("Bound");
    let name = claim.pointer("/spec/volumeName").and_then(Value::as_str);
    name.filter(|name| is_bound && !name.is_empty())
}

/// Whether the claim is owned by the pod (ephemeral volumes).
pub(crate) fn is_controlled_by(claim: &Value, pod: &PodUid) -> bool {
    let owners = claim.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten();
    let mut controllers = owners.filter(|owner| owner.get("controller") == Some(&Value::Bool(true)));
    controllers.any(|owner| owner.get("uid").and_then(Value::as_str) == Some(pod.as_str()))
}

/// Whether the volume is bound to this claim, and not to another one with the same name.
pub(crate) fn is_bound_to(volume: &Value, claim: &Value) -> bool {
    let uid = volume.pointer("/spec/claimRef/uid");
    uid.is_some() && uid == claim.pointer("/metadata/uid")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn volume(spec: Value) -> PersistentVolume {
        PersistentVolume::read(&json!({"metadata": {"name": "pv"}, "spec": spec})).unwrap()
    }

    #[test]
    fn supported_sources_are_read_and_others_named() {
        let local = volume(json!({"capacity": {"storage": "1Gi"}, "local": {"path": "/mnt/d"}, "volumeMode": "Block"}));
        let directory = PersistentSource::Local { path: "/mnt/d".to_owned(), fs_type: String::new() };
        assert_eq!((local.source, local.is_block), (directory, true));
        let nfs = volume(json!({"nfs": {"server": "s", "path": "/p", "readOnly": true}}));
        assert!(matches!(nfs.source, PersistentSource::Nfs(nfs) if nfs.read_only));
        assert!(matches!(volume(json!({"hostPath": {"path": "/h"}})).source, PersistentSource::HostPath(_)));
        let other = volume(json!({"capacity": {}, "claimRef": {}, "iscsi": {"iqn": "i"}}));
        assert_eq!(other.source, PersistentSource::Other("iscsi".to_owned()));
    }

    #[test]
    fn csi_source_is_read_with_its_secrets() {
        let csi = json!({
            "driver": "d", "volumeHandle": "h", "fsType": "ext4", "volumeAttributes": {"a": "b"},
            "nodeStageSecretRef": {"namespace": "ns", "name": "s"},
        });
        let read = volume(json!({"csi": csi, "accessModes": ["ReadWriteOnce"], "mountOptions": ["noatime"]}));
        let secret = ObjectKey { kind: ObjectKind::Secret, namespace: "ns".into(), name: "s".into() };
        let source = CsiSource {
            driver: "d".into(),
            handle: "h".into(),
            fs_type: "ext4".into(),
            attributes: [("a".to_owned(), "b".to_owned())].into_iter().collect(),
            stage_secret: Some(secret),
            publish_secret: None,
            expand_secret: None,
        };
        assert_eq!(read.source, PersistentSource::Csi(Box::new(source)));
        assert_eq!((&*read.access_modes[0], &*read.mount_options[0]), ("ReadWriteOnce", "noatime"));
    }

    #[test]
    fn annotations_have_options_and_group() {
        let annotated = |spec: Value| {
            let annotations =
                json!({"volume.beta.kubernetes.io/mount-options": "ro,soft", "pv.beta.kubernetes.io/gid": "7"});
            let object = json!({"metadata": {"name": "pv", "annotations": annotations}, "spec": spec});
            PersistentVolume::read(&object).unwrap()
        };
        let nfs = annotated(json!({"nfs": {"server": "s", "path": "/p"}, "mountOptions": ["hard"]}));
        assert_eq!((nfs.mount_options, nfs.group), (vec!["ro".to_owned(), "soft".to_owned()], Some(7)));
        let csi = annotated(json!({"csi": {"driver": "d", "volumeHandle": "h"}, "mountOptions": ["hard"]}));
        assert_eq!(csi.mount_options, ["hard"], "upstream's CSI plugin reads only the field");
    }

    #[test]
    fn claim_is_owned_by_its_controlling_pod() {
        let claim = json!({"metadata": {"ownerReferences": [{"uid": "a"}, {"uid": "b", "controller": true}]}});
        assert!(is_controlled_by(&claim, &"b".into()));
        assert!(!is_controlled_by(&claim, &"a".into()));
        assert!(!is_controlled_by(&json!({}), &"a".into()));
    }

    #[test]
    fn binding_must_be_mutual() {
        let claim =
            |phase: &str| json!({"metadata": {"uid": "c"}, "spec": {"volumeName": "pv"}, "status": {"phase": phase}});
        assert_eq!(bound_volume(&claim("Bound")), Some("pv"));
        assert_eq!(bound_volume(&claim("Pending")), None);
        assert!(is_bound_to(&json!({"spec": {"claimRef": {"uid": "c"}}}), &claim("Bound")));
        assert!(!is_bound_to(&json!({"spec": {"claimRef": {"uid": "d"}}}), &claim("Bound")));
        assert!(!is_bound_to(&json!({}), &json!({})));
    }
}
