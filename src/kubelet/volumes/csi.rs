//! Requests to CSI drivers for a pod's volumes. Pure.

use serde_json::{Map, Value, json};

use super::SetUpInputs;
use super::fs_group::{changes_on_root_mismatch, fs_group};
use super::selinux_mount::mount_option;
use crate::kubelet::csi::{CsiVolume, MissingObject, MountLabel, handle_of_inline};
use crate::state::objects::{
    CsiDriver, CsiSource, FsGroupPolicy, Lookup, ObjectKey, ObjectKind, PersistentVolume, TokenKey,
};
use crate::state::pods::PodDirs;
use crate::state::pods::volume_paths::CSI;
use crate::types::api::{CsiVolumeSource, Pod, Time};
use crate::types::sorted::SortedMap;

/// A CSI volume, and the parts of its set-up that the kubelet does itself.
#[derive(Debug)]
pub(super) struct Csi {
    pub(super) volume: CsiVolume,
    /// The kubelet sets the group of the files; false if the driver does.
    pub(super) gives_to_group: bool,
    /// Only if the volume's root has another group or mode.
    pub(super) on_mismatch: bool,
    /// `requiresRepublish`.
    pub(super) is_republished: bool,
    /// The pod is rejected if the node has no room for the volume.
    pub(super) may_be_refused: bool,
}

const EPHEMERAL_LIFECYCLE_MODE: &str = "Ephemeral";
const ONE_NODE_WRITES: [&str; 2] = ["ReadWriteOnce", "ReadWriteOncePod"];

/// An ephemeral inline volume in the pod's spec.
pub(super) fn inline(pod: &Pod, source: &CsiVolumeSource, name: &str, inputs: SetUpInputs<'_>) -> Csi {
    let secret = source.node_publish_secret_ref.as_ref().map(|secret| ObjectKey {
        kind: ObjectKind::Secret,
        namespace: pod.metadata.namespace.clone(),
        name: secret.name.clone(),
    });
    let volume = CsiVolume {
        name: name.to_owned(),
        driver: source.driver.clone(),
        handle: handle_of_inline(pod.metadata.uid.as_str(), name),
        is_ephemeral: true,
        fs_type: source.fs_type.clone().unwrap_or_default(),
        access_mode: "ReadWriteOnce".to_owned(),
        read_only: source.read_only.unwrap_or(false),
        attributes: source.volume_attributes.iter().map(|(key, value)| (key.to_owned(), value.clone())).collect(),
        ..CsiVolume::default()
    };
    finished(pod, volume, CsiReferences { publish_secret: secret.as_ref(), ..CsiReferences::default() }, true, inputs)
}

/// A persistent volume.
pub(super) fn claimed(
    pod: &Pod,
    volume: &PersistentVolume,
    source: &CsiSource,
    read_only: bool,
    label: MountLabel,
    inputs: SetUpInputs<'_>,
) -> Csi {
    let writes = volume.access_modes.iter().any(|mode| ONE_NODE_WRITES.contains(&&**mode));
    let made = CsiVolume {
        name: volume.name.clone(),
        driver: source.driver.clone(),
        handle: source.handle.clone(),
        fs_type: source.fs_type.clone(),
        mount_options: volume.mount_options.iter().cloned().chain(label.label.as_deref().map(mount_option)).collect(),
        label,
        access_mode: volume.access_modes.first().cloned().unwrap_or_else(|| "ReadWriteOnce".to_owned()),
        is_block: volume.is_block,
        claim: volume.claim.clone(),
        expand_secret: source.expand_secret.clone(),
        read_only,
        attributes: source.attributes.clone(),
        ..CsiVolume::default()
    };
    let (stage_secret, publish_secret) = (source.stage_secret.as_ref(), source.publish_secret.as_ref());
    finished(pod, made, CsiReferences { source: Some(source), stage_secret, publish_secret }, writes, inputs)
}

/// Objects in the cluster that a volume refers to.
#[derive(Clone, Copy, Default)]
struct CsiReferences<'a> {
    /// The source of a persistent volume.
    source: Option<&'a CsiSource>,
    stage_secret: Option<&'a ObjectKey>,
    publish_secret: Option<&'a ObjectKey>,
}

fn finished(
    pod: &Pod,
    mut volume: CsiVolume,
    named: CsiReferences<'_>,
    one_node_writes: bool,
    inputs: SetUpInputs<'_>,
) -> Csi {
    let driver = inputs.objects.csi_driver(&volume.driver);
    volume.missing = fill(pod, &mut volume, named, &driver, inputs).err();
    let driver = if let Lookup::Found(driver) = driver { Some(driver) } else { None };
    volume.group = fs_group(&pod.spec);
    let place = if volume.is_block { PodDirs::volume_device } else { PodDirs::volume };
    volume.host_path = place(inputs.dirs, &pod.metadata.uid, CSI, &volume.name);
    let policy = driver.map_or(FsGroupPolicy::ReadWriteOnceWithFsType, |driver| driver.group_policy);
    let gives_to_group = match policy {
        FsGroupPolicy::File => true,
        FsGroupPolicy::None => false,
        FsGroupPolicy::ReadWriteOnceWithFsType => !volume.fs_type.is_empty() && one_node_writes,
    };
    let gives_to_group = gives_to_group && volume.group.is_some() && !volume.read_only && !volume.is_block;
    let on_mismatch = changes_on_root_mismatch(&pod.spec);
    let is = |claim: fn(&CsiDriver) -> bool| driver.is_some_and(claim);
    let is_republished = is(|driver| driver.requires_republish);
    let may_be_refused = is(|driver| driver.allocatable_period.is_some());
    Csi { volume, gives_to_group, on_mismatch, is_republished, may_be_refused }
}

/// Completes the request with data from the cluster and the pod.
fn fill(
    pod: &Pod,
    volume: &mut CsiVolume,
    named: CsiReferences<'_>,
    driver: &Lookup<&CsiDriver>,
    inputs: SetUpInputs<'_>,
) -> Result<(), MissingObject> {
    let driver = match driver {
        Lookup::Found(driver) => Some(*driver),
        Lookup::Missing => None,
        Lookup::Unknown(why) => {
            return Err(MissingObject::DriverUnknown { driver: volume.driver.clone(), why: why.clone() });
        }
    };
    check_mode(volume, driver)?;
    if let Some(source) = named.source.filter(|_| driver.is_none_or(|driver| driver.attach_required)) {
        volume.attachment = Some(attached(pod, source, inputs)?);
    }
    volume.stage_secrets = secrets("NodeStageSecretRef", named.stage_secret, inputs)?;
    volume.publish_secrets = secrets("NodePublishSecretRef", named.publish_secret, inputs)?;
    let Some(driver) = driver else { return Ok(()) };
    if driver.pod_info_on_mount {
        volume.pod_attributes = pod_info(pod, volume.is_ephemeral);
    }
    if let Some(tokens) = tokens(pod, driver, inputs)? {
        let attributes =
            if driver.tokens_in_secrets { &mut volume.publish_secrets } else { &mut volume.pod_attributes };
        attributes.insert("csi.storage.k8s.io/serviceAccount.tokens".to_owned(), tokens);
    }
    Ok(())
}

/// The publish context of the attachment. Fails for a volume that a controller may be detaching.
fn attached(
    pod: &Pod,
    source: &CsiSource,
    inputs: SetUpInputs<'_>,
) -> Result<SortedMap<String, String>, MissingObject> {
    if !inputs.objects.is_attached(source) {
        return Err(MissingObject::NotAttached);
    }
    match inputs.objects.attachment(pod, source) {
        Lookup::Found(attachment) => Ok(attachment.context.clone()),
        Lookup::Missing => Err(MissingObject::NoAttachment),
        Lookup::Unknown(why) => Err(MissingObject::AttachmentUnknown { why }),
    }
}

/// Whether the driver supports this volume lifecycle mode.
fn check_mode(volume: &CsiVolume, driver: Option<&CsiDriver>) -> Result<(), MissingObject> {
    let mode = if volume.is_ephemeral { EPHEMERAL_LIFECYCLE_MODE } else { "Persistent" };
    let supported = match driver {
        None if !volume.is_ephemeral => return Ok(()),
        None => None,
        Some(driver) if driver.lifecycle_modes.iter().any(|supported_mode| supported_mode == mode) => return Ok(()),
        Some(driver) => Some(driver.lifecycle_modes.clone()),
    };
    Err(MissingObject::Mode { mode, driver: volume.driver.clone(), supported })
}

fn secrets(
    field: &'static str,
    key: Option<&ObjectKey>,
    inputs: SetUpInputs<'_>,
) -> Result<SortedMap<String, String>, MissingObject> {
    let Some(key) = key else { return Ok(SortedMap::new()) };
    let failed = |unknown| {
        let (namespace, name) = (key.namespace.clone(), key.name.clone());
        Err(MissingObject::Secret { field, namespace, name, unknown })
    };
    match inputs.objects.secret(key) {
        Lookup::Found(secret) => Ok(secret.texts()),
        Lookup::Missing => failed(None),
        Lookup::Unknown(why) => failed(Some(why)),
    }
}

fn pod_info(pod: &Pod, is_ephemeral: bool) -> SortedMap<String, String> {
    let attributes = [
        ("pod.name", pod.metadata.name.as_str()),
        ("pod.namespace", &pod.metadata.namespace),
        ("pod.uid", pod.metadata.uid.as_str()),
        ("serviceAccount.name", &pod.spec.service_account_name),
        ("ephemeral", if is_ephemeral { "true" } else { "false" }),
    ];
    attributes.into_iter().map(|(key, value)| (["csi.storage.k8s.io/", key].concat(), value.to_owned())).collect()
}

/// By audience, as `TokenRequestStatus`.
fn tokens(pod: &Pod, driver: &CsiDriver, inputs: SetUpInputs<'_>) -> Result<Option<String>, MissingObject> {
    let mut tokens = Map::new();
    for request in &driver.token_requests {
        let key = TokenKey::for_driver(pod, request);
        let expires = Time::from_unix_nanos(inputs.objects.token_end(key.clone()).saturating_mul(1_000_000_000));
        let token = match inputs.objects.token(key) {
            Lookup::Found(token) => token,
            Lookup::Missing => return Err(MissingObject::NoToken),
            Lookup::Unknown(why) => return Err(MissingObject::TokenUnknown { why }),
        };
        tokens.insert(request.0.clone(), json!({"expirationTimestamp": expires.to_string(), "token": token}));
    }
    Ok((!tokens.is_empty()).then(|| Value::Object(tokens).to_string()))
}
