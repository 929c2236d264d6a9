//! Rejects static pods that refer to objects which only the API server has, or whose names or uid cannot be those of
//! directories. Pure.
//!
//! ConfigMaps and Secrets may come from manifests too, so volumes, variables and image pulls may refer to them.

use std::fmt;

use serde_json::Value;

use super::faults::{Faults, FieldError};
use super::names::{MAX_MANIFEST_UID_BYTES, UID};
use crate::types::api::annotations::{UPDATE_LOCK, update_lock};
use crate::types::api::decode::Path;
use crate::types::api::{ObjectMeta, Pod, ProjectionSource, VolumeSource};

/// Reports each reference of a static pod to an API object, in the words of upstream's
/// `PreventStaticPodAPIReferences`.
pub fn static_pod_api_references(pod: &Pod) -> Vec<FieldError> {
    let mut faults = Faults::default();
    let spec = &pod.spec;
    let path = Path::Root.key("spec");
    for (field, name) in [("serviceAccountName", &spec.service_account_name), ("serviceAccount", &spec.service_account)]
    {
        if !name.is_empty() {
            refuse("serviceaccounts", &path.key(field), &mut faults);
        }
    }
    if !spec.resource_claims.is_empty() {
        refuse("resourceclaims", &path.key("resourceClaims"), &mut faults);
    }
    for (index, volume) in spec.volumes.iter().enumerate() {
        let list = path.key("volumes");
        let path = list.index(index);
        check_volume(&volume.source, &path.key(volume.source.key()), &mut faults);
    }
    faults.into_list()
}

/// Why the pod cannot have a log directory, `NAMESPACE_NAME_UID` (`BuildPodLogsDirectory` in pkg/kubelet/kuberuntime).
/// Upstream accepts a name that is too long, and the pod never starts.
pub fn log_directory_fault(meta: &ObjectMeta) -> Option<String> {
    let ObjectMeta { namespace, name, uid, .. } = meta;
    let length = namespace.len() + name.len() + uid.as_str().len() + 2;
    too_long(format_args!("the log directory {namespace}_NAME_UID of pod {name:?}"), length)
}

/// Why a directory whose name has this many bytes cannot be made.
pub(super) fn too_long(directory: fmt::Arguments<'_>, length: usize) -> Option<String> {
    let is_too_long = length > NAME_MAX;
    is_too_long.then(|| format!("too long: {directory} has {length} bytes, and a file name may have {NAME_MAX}"))
}

/// The uid that a manifest gives. Upstream accepts any text, and uses it as a path.
pub(super) fn check_uid(meta: &ObjectMeta, faults: &mut Faults) {
    faults.optional_name(&Path::Root.key("metadata").key("uid"), meta.uid.as_str(), &UID);
}

/// The volume of an update lock.
pub(super) fn check_update_lock(pod: &Pod, faults: &mut Faults) {
    let Some((volume, _)) = pod.annotation(UPDATE_LOCK).and_then(update_lock) else { return };
    if pod.spec.volumes.iter().all(|pod_volume| pod_volume.name != volume) {
        let path = Path::Root.key("metadata");
        faults.other(&path.key("annotations").key(UPDATE_LOCK), format_args!("the pod has no volume {volume:?}"));
    }
}

pub(super) fn check_log_directory(meta: &ObjectMeta, faults: &mut Faults) {
    // What is too long by itself has an error already.
    let has_error =
        meta.name.len() > 253 || meta.namespace.len() > 63 || meta.uid.as_str().len() > MAX_MANIFEST_UID_BYTES;
    if let Some(wrong) = log_directory_fault(meta).filter(|_| !has_error) {
        faults.other(&Path::Root.key("metadata").key("name"), wrong);
    }
}

/// The longest name of a file or directory, in bytes.
const NAME_MAX: usize = 255;

fn refuse(resource: &str, path: &Path<'_>, faults: &mut Faults) {
    faults.other(path, format_args!("static pods may not reference {resource}"));
}

fn check_volume(source: &VolumeSource, path: &Path<'_>, faults: &mut Faults) {
    match source {
        VolumeSource::AzureFile(_) => refuse("secrets", path, faults),
        VolumeSource::Csi(_) => refuse("csidrivers (via CSI volumes)", path, faults),
        VolumeSource::Ephemeral(_) => refuse("persistentvolumeclaims (via ephemeral volumes)", path, faults),
        VolumeSource::Glusterfs(_) => refuse("endpoints (via glusterFS volumes)", path, faults),
        VolumeSource::Projected(volume) => {
            for (index, projection) in volume.sources.iter().enumerate() {
                let list = path.key("sources");
                let path = list.index(index);
                if let Some(source) = &projection.source {
                    check_projection(source, &path.key(source.key()), faults);
                }
            }
        }
        VolumeSource::CephFs(fields)
        | VolumeSource::Cinder(fields)
        | VolumeSource::FlexVolume(fields)
        | VolumeSource::Iscsi(fields)
        | VolumeSource::Rbd(fields)
        | VolumeSource::ScaleIo(fields)
        | VolumeSource::StorageOs(fields) => {
            if !fields.get("secretRef").is_none_or(Value::is_null) {
                refuse("secrets", &path.key("secretRef"), faults);
            }
        }
        VolumeSource::AwsElasticBlockStore(_)
        | VolumeSource::AzureDisk(_)
        | VolumeSource::ConfigMap(_)
        | VolumeSource::DownwardApi(_)
        | VolumeSource::EmptyDir(_)
        | VolumeSource::Fc(_)
        | VolumeSource::Flocker(_)
        | VolumeSource::GcePersistentDisk(_)
        | VolumeSource::GitRepo(_)
        | VolumeSource::HostPath(_)
        | VolumeSource::Image(_)
        | VolumeSource::Nfs(_)
        | VolumeSource::PersistentVolumeClaim(_)
        | VolumeSource::PhotonPersistentDisk(_)
        | VolumeSource::PortworxVolume(_)
        | VolumeSource::Quobyte(_)
        | VolumeSource::Secret(_)
        | VolumeSource::Unknown
        | VolumeSource::VsphereVolume(_) => {}
    }
}

fn check_projection(source: &ProjectionSource, path: &Path<'_>, faults: &mut Faults) {
    let resource = match source {
        ProjectionSource::ClusterTrustBundle(_) => "clustertrustbundles",
        ProjectionSource::ConfigMap(_) | ProjectionSource::DownwardApi(_) | ProjectionSource::Secret(_) => return,
        ProjectionSource::PodCertificate(_) => "podcertificates",
        ProjectionSource::ServiceAccountToken(_) => "serviceaccounts (via projected volumes)",
    };
    refuse(resource, path, faults);
}
