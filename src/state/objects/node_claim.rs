//! Claims from manifests: directories of the node. Pure.

use std::path::{Path, PathBuf};

use super::{ConfigObject, Lookup, ObjectKey, ObjectKind, Objects};
use crate::types::api::{Pod, Volume, VolumeSource};
use crate::types::sorted::SortedSet;

/// A claim from a manifest that a pod can write to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WritableClaim {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// Bytes, as [`claim_limit`] has them.
    pub(crate) limit: u64,
}

/// The directory of a claim below `root`, in the layout of local-path-provisioner.
pub(crate) fn claim_directory(root: &Path, claim: &ConfigObject) -> PathBuf {
    let ObjectKey { namespace, name, .. } = &claim.key;
    root.join(format!("pvc-{}_{namespace}_{name}", claim.uid))
}

/// What a claim that requests `bytes` may hold: in whole steps, which every file system has as whole blocks.
pub(crate) fn claim_limit(bytes: u64) -> u64 {
    const CLAIM_STEP_BYTES: u64 = 64 << 10;
    bytes.div_ceil(CLAIM_STEP_BYTES).saturating_mul(CLAIM_STEP_BYTES)
}

/// The claims from manifests that the pod can write to. Their directories are below `root`.
pub(crate) fn writable_claims(pod: &Pod, root: &Path, objects: &Objects) -> Vec<WritableClaim> {
    if !pod.is_static() {
        return Vec::new();
    }
    let mounts = pod.spec.all_containers().flat_map(|container| &container.volume_mounts);
    let written: SortedSet<&str> = mounts.filter(|mount| !mount.read_only).map(|mount| mount.name.as_str()).collect();
    let writable = |volume: &Volume| {
        let VolumeSource::PersistentVolumeClaim(source) = &volume.source else { return None };
        let Lookup::Found(claim) = objects.get(pod, ObjectKind::VolumeClaim, &source.claim_name) else { return None };
        (!source.read_only && written.contains(volume.name.as_str())).then(|| WritableClaim {
            name: source.claim_name.clone(),
            path: claim_directory(root, claim),
            limit: claim_limit(claim.storage.unwrap_or_default()),
        })
    };
    pod.spec.volumes.iter().filter_map(writable).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::super::SourceObject;
    use super::*;
    use crate::types::api::{Time, VolumeClaim, decode};
    use crate::types::timestamp::Timestamp;

    #[test]
    fn limit_is_the_request_in_whole_steps() {
        assert_eq!([0, 1, 65536, 65537, u64::MAX].map(claim_limit), [0, 65536, 65536, 131_072, u64::MAX]);
    }

    #[test]
    fn claims_that_some_container_writes_to_are_listed() {
        let names = ["data", "shown", "read", "missing", "idle"];
        let volume = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": name, "readOnly": name == "read"}});
        let mounts = json!([
            {"name": "data", "mountPath": "/a", "readOnly": true}, {"name": "shown", "mountPath": "/b", "readOnly": true},
            {"name": "read", "mountPath": "/c"}, {"name": "missing", "mountPath": "/d"},
        ]);
        let spec = json!({
            "volumes": names.map(volume),
            "containers": [{"name": "c", "image": "i", "volumeMounts": mounts}],
            "initContainers": [{"name": "i", "image": "i", "volumeMounts": [{"name": "data", "mountPath": "/a"}]}],
        });
        let metadata = json!({"name": "p", "namespace": "ns", "annotations": {"kubernetes.io/config.source": "file"}});
        let pod: Pod = decode(json!({"metadata": metadata, "spec": spec})).unwrap().value;
        let claims = ["data", "shown", "read", "idle"].map(|name| {
            let claim = json!({
                "metadata": {"name": name, "namespace": "ns", "uid": "u"},
                "spec": {"resources": {"requests": {"storage": "1Mi"}}},
            });
            let claim: VolumeClaim = decode(claim).unwrap().value;
            SourceObject {
                object: Arc::new(claim.into()),
                origin: "data.yaml".into(),
                since: Time::from_timestamp(Timestamp::UNIX_EPOCH),
            }
        });
        let mut objects = Objects::default();
        objects.replace(&claims);
        let path = "/claims/pvc-u_ns_data".into();
        let expected = [WritableClaim { name: "data".to_owned(), path, limit: 1 << 20 }];
        assert_eq!(writable_claims(&pod, Path::new("/claims"), &objects), expected);
    }
}
