//! Validates volumes: unique names, and the required fields of their sources. Pure.

use serde_json::Value;

use super::faults::Faults;
use super::names::{DNS_LABEL, DNS_SUBDOMAIN};
use super::scope::Scope;
use super::{file_paths, projections, remote_volumes};
use crate::types::api::decode::Path;
use crate::types::api::{
    CsiVolumeSource, EmptyDirVolumeSource, HostPathVolumeSource, NfsVolumeSource, ObjectMeta, PodSpec, StorageMedium,
    Volume, VolumeSource,
};
use crate::types::sorted::Seen;

pub(super) fn check(spec: &PodSpec, meta: &ObjectMeta, scope: &Scope<'_>, path: &Path<'_>, faults: &mut Faults) {
    let list = path.key("volumes");
    let mut names = Seen::default();
    for (index, volume) in spec.volumes.iter().enumerate() {
        let path = list.index(index);
        faults.required_name(&path.key("name"), &volume.name, &DNS_LABEL);
        if !volume.name.is_empty() && !names.insert(volume.name.as_str()) {
            faults.duplicate(&path.key("name"), &volume.name);
        }
        check_source(volume, meta, scope, &path.key(volume.source.key()), faults);
    }
}

fn check_source(volume: &Volume, meta: &ObjectMeta, scope: &Scope<'_>, path: &Path<'_>, faults: &mut Faults) {
    match &volume.source {
        VolumeSource::ConfigMap(source) => projections::check_config_map(source, path, faults),
        VolumeSource::Csi(source) => check_csi(source, path, faults),
        VolumeSource::DownwardApi(source) => projections::check_downward_api(source, scope, path, faults),
        VolumeSource::EmptyDir(source) => check_empty_dir(source, path, faults),
        VolumeSource::Ephemeral(source) => check_ephemeral(source, volume, meta, path, faults),
        VolumeSource::HostPath(source) => check_host_path(source, path, faults),
        // The API server requires a reference of pods, the kubelet does not.
        VolumeSource::Image(_) => {}
        // The defaults have replaced it.
        VolumeSource::Unknown => {}
        VolumeSource::Nfs(source) => check_nfs(source, path, faults),
        VolumeSource::PersistentVolumeClaim(source) => require(&source.claim_name, "claimName", path, faults),
        VolumeSource::Projected(source) => projections::check_projected(source, scope, path, faults),
        VolumeSource::Secret(source) => projections::check_secret(source, path, faults),
        VolumeSource::AwsElasticBlockStore(source)
        | VolumeSource::AzureDisk(source)
        | VolumeSource::AzureFile(source)
        | VolumeSource::CephFs(source)
        | VolumeSource::Cinder(source)
        | VolumeSource::Fc(source)
        | VolumeSource::FlexVolume(source)
        | VolumeSource::Flocker(source)
        | VolumeSource::GcePersistentDisk(source)
        | VolumeSource::GitRepo(source)
        | VolumeSource::Glusterfs(source)
        | VolumeSource::Iscsi(source)
        | VolumeSource::PhotonPersistentDisk(source)
        | VolumeSource::PortworxVolume(source)
        | VolumeSource::Quobyte(source)
        | VolumeSource::Rbd(source)
        | VolumeSource::ScaleIo(source)
        | VolumeSource::StorageOs(source)
        | VolumeSource::VsphereVolume(source) => remote_volumes::check(&volume.source, source, path, faults),
    }
}

fn require(text: &str, field: &str, path: &Path<'_>, faults: &mut Faults) {
    if text.is_empty() {
        faults.required(&path.key(field));
    }
}

fn check_empty_dir(source: &EmptyDirVolumeSource, path: &Path<'_>, faults: &mut Faults) {
    if let Some(limit) = source.size_limit.filter(|limit| limit.is_negative()) {
        faults.invalid(&path.key("sizeLimit"), &limit.to_string(), "must not be negative");
    }
    if let StorageMedium::Unknown(medium) = &source.medium {
        faults.invalid(&path.key("medium"), medium, "must be \"\", \"Memory\", \"HugePages\" or \"HugePages-<size>\"");
    }
}

fn check_host_path(source: &HostPathVolumeSource, path: &Path<'_>, faults: &mut Faults) {
    require(&source.path, "path", path, faults);
    file_paths::without_backsteps(&source.path, &path.key("path"), faults);
}

fn check_nfs(source: &NfsVolumeSource, path: &Path<'_>, faults: &mut Faults) {
    require(&source.server, "server", path, faults);
    require(&source.path, "path", path, faults);
    if !source.path.is_empty() && !source.path.starts_with('/') {
        faults.invalid(&path.key("path"), &source.path, "must be an absolute path");
    }
}

fn check_csi(source: &CsiVolumeSource, path: &Path<'_>, faults: &mut Faults) {
    const MAX_VOLUME_NAME_CHARS: usize = 63;
    let driver = source.driver.as_str();
    let path_of_driver = path.key("driver");
    if driver.len() > MAX_VOLUME_NAME_CHARS {
        faults.invalid(&path_of_driver, driver, format_args!("must be at most {MAX_VOLUME_NAME_CHARS} characters"));
    } else if driver.is_empty() {
        faults.required(&path_of_driver);
    } else if !super::names::is_dns_subdomain(&driver.to_ascii_lowercase()) {
        faults.invalid(&path_of_driver, driver, "must be a DNS subdomain, which may have upper case letters");
    }
    if let Some(secret) = &source.node_publish_secret_ref {
        faults.required_name(&path.key("nodePublishSecretRef").key("name"), &secret.name, &DNS_SUBDOMAIN);
    }
}

/// The claim of an ephemeral volume is named after the pod and the volume.
fn check_ephemeral(source: &Value, volume: &Volume, meta: &ObjectMeta, path: &Path<'_>, faults: &mut Faults) {
    if source.get("volumeClaimTemplate").is_none_or(Value::is_null) {
        faults.required(&path.key("volumeClaimTemplate"));
    }
    if !meta.name.is_empty() && !volume.name.is_empty() {
        let claim = [&meta.name, "-", &volume.name].concat();
        faults.name(path, &claim, &DNS_SUBDOMAIN);
    }
}
