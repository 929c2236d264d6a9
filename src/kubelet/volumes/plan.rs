//! The directories and volumes that a pod's containers need before they start. Pure.

use std::path::{Component, PathBuf};

use super::SetUpInputs;
use super::csi::{self, Csi};
use super::error::{Error, FilesProblem, Problem};
use super::fs_group::{changes_on_root_mismatch, fs_group};
use super::payload::{Payload, PodFiles, payload};
use super::selinux_mount::mount_label;
use super::volume_uses::VolumeUses;
use crate::kubelet::csi::MountLabel;
use crate::state::objects::{Lookup, ObjectKind, Objects, PersistentSource, PersistentVolume, Topic, claim_directory};
use crate::state::pods::volume_paths::{
    CONFIG_MAP, DOWNWARD_API, EMPTY_DIR, LOCAL_VOLUME_PLUGIN, NFS, PROJECTED, SECRET,
};
use crate::types::api::{
    EmptyDirVolumeSource, HostPathType, NfsVolumeSource, PersistentVolumeClaimVolumeSource, Pod, Quantity,
    StorageMedium, Volume, VolumeSource,
};
use crate::types::sorted::SortOnce;

/// The directories of a pod and its volumes, in the order of their creation.
#[derive(Debug)]
pub(super) struct Plan {
    /// Directories that only the node's services may access.
    pub(super) private: Vec<PathBuf>,
    pub(super) logs: Vec<PathBuf>,
    pub(super) volumes: Vec<PlannedVolume>,
    /// Groups of PersistentVolumes that the pod does not have itself.
    pub(super) groups: Vec<i64>,
}

#[derive(Debug)]
pub(super) struct PlannedVolume {
    pub(super) name: String,
    pub(super) source: Source,
}

#[derive(Debug)]
pub(super) enum Source {
    /// The directory of a claim from a manifest, which is made if there is room for it.
    Claim {
        path: PathBuf,
        bytes: u64,
        read_only: bool,
    },
    Csi(Box<Csi>),
    /// A block device of this node.
    Device {
        path: PathBuf,
        read_only: bool,
    },
    EmptyDir(EmptyDir),
    Files(Files),
    HostPath {
        path: PathBuf,
        kind: HostPathType,
        read_only: bool,
    },
    /// Mounted by the runtime.
    Image,
    Local(Local),
    Nfs(Nfs),
}

/// A volume with files written by the kubelet and only read by the pod.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) directory: EmptyDir,
    /// The files, or why their content is unknown.
    pub(super) payload: Result<Payload, FilesProblem>,
    /// Mount points of the pod's other mounts: nothing else can create them in a read-only volume.
    pub(super) mount_points: Vec<PathBuf>,
}

/// A local volume of one pod.
#[derive(Clone, Debug)]
pub(super) struct Local {
    pub(super) from: PathBuf,
    /// The mount point.
    pub(super) path: PathBuf,
    /// Has a file `ready` after the set-up.
    pub(super) marker: PathBuf,
    /// The directory of all pods, for finding other mounts of the volume.
    pub(super) pods: PathBuf,
    pub(super) fs_type: String,
    pub(super) options: Vec<String>,
    pub(super) read_only: bool,
    /// Group to set on all files; with `on_mismatch` only if the root differs.
    pub(super) group: Option<u32>,
    pub(super) on_mismatch: bool,
}

#[derive(Debug)]
pub(super) struct Nfs {
    /// `server:path`
    pub(super) device: String,
    pub(super) path: PathBuf,
    /// Options of the mount, sorted.
    pub(super) options: Vec<String>,
    pub(super) read_only: bool,
}

#[derive(Debug, PartialEq)]
pub(super) struct EmptyDir {
    pub(super) path: PathBuf,
    /// Has a file `ready` after the set-up.
    pub(super) marker: PathBuf,
    pub(super) medium: Medium,
    /// The group that owns the directory.
    pub(super) group: Option<u32>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Medium {
    Disk,
    /// Sizes are in bytes.
    HugePages {
        page_size: u64,
    },
    Memory {
        size: Option<u64>,
    },
}

impl PlannedVolume {
    /// Path on the host, if the volume has one.
    pub(super) fn host_path(&self) -> Option<PathBuf> {
        match &self.source {
            Source::Csi(csi) if csi.volume.is_block => Some(csi.volume.host_path.clone()),
            Source::Csi(csi) => Some(csi.volume.target()),
            Source::EmptyDir(directory) | Source::Files(Files { directory, .. }) => Some(directory.path.clone()),
            Source::Claim { path, .. } | Source::Device { path, .. } | Source::HostPath { path, .. } => {
                Some(path.clone())
            }
            Source::Image => None,
            Source::Local(local) => Some(local.path.clone()),
            Source::Nfs(nfs) => Some(nfs.path.clone()),
        }
    }

    /// A block device instead of a directory.
    pub(super) fn is_device(&self) -> bool {
        match &self.source {
            Source::Csi(csi) => csi.volume.is_block,
            Source::Device { .. } => true,
            Source::Claim { .. }
            | Source::EmptyDir(_)
            | Source::Files(_)
            | Source::HostPath { .. }
            | Source::Image
            | Source::Local(_)
            | Source::Nfs(_) => false,
        }
    }

    /// Whether it is read-only regardless of the mounts.
    pub(super) fn read_only(&self) -> bool {
        match &self.source {
            Source::Csi(csi) => csi.volume.read_only,
            Source::EmptyDir(_) => false,
            Source::Claim { read_only, .. } | Source::Device { read_only, .. } | Source::HostPath { read_only, .. } => {
                *read_only
            }
            // Files: since CVE-2017-1002102 no pod may write where the kubelet writes and removes files.
            Source::Files(_) | Source::Image => true,
            Source::Local(local) => local.read_only,
            Source::Nfs(nfs) => nfs.read_only,
        }
    }
}

impl Plan {
    pub(super) fn new(pod: &Pod, inputs: SetUpInputs<'_>) -> Result<Self, Error> {
        let (meta, dirs) = (&pod.metadata, inputs.dirs);
        let logs = dirs.logs(&meta.namespace, &meta.name, &meta.uid);
        let uses = VolumeUses::of(&pod.spec);
        Ok(Self {
            private: vec![
                dirs.pods().to_owned(),
                dirs.pod(&meta.uid),
                dirs.volumes(&meta.uid),
                dirs.plugins(&meta.uid),
            ],
            logs: pod.spec.all_containers().map(|container| logs.join(&container.name)).collect(),
            volumes: planned_volumes(pod, &uses, inputs).collect::<Result<_, _>>()?,
            groups: groups(pod, &uses, inputs.objects),
        })
    }
}

/// The volumes that the pod's containers use, each planned on its own.
pub(super) fn planned_volumes<'a>(
    pod: &'a Pod,
    uses: &'a VolumeUses<'_>,
    inputs: SetUpInputs<'a>,
) -> impl Iterator<Item = Result<PlannedVolume, Error>> {
    let used = pod.spec.volumes.iter().filter(|volume| uses.is_used(&volume.name));
    let shared = PodFiles::new(pod, inputs);
    used.map(move |volume| match source(pod, volume, uses, &shared, inputs) {
        Ok(source) => Ok(PlannedVolume { name: volume.name.clone(), source }),
        Err(problem) => Err(Error::SetUp { volume: volume.name.clone(), problem }),
    })
}

/// Fails for a PersistentVolume whose node affinity does not match the node's labels.
pub(super) fn check_node_affinity(pod: &Pod, objects: &Objects) -> Result<(), Error> {
    let uses = VolumeUses::of(&pod.spec);
    match bound_volumes(pod, &uses, objects).find(|(_, bound)| !objects.is_on_its_node(bound)) {
        Some((volume, bound)) => Err(Error::SetUp {
            volume: volume.name.clone(),
            problem: Problem::NodeAffinity { is_block: bound.is_block },
        }),
        None => Ok(()),
    }
}

/// The groups from the annotations of the pod's PersistentVolumes (`GetExtraSupplementalGroupsForPod`).
fn groups(pod: &Pod, uses: &VolumeUses<'_>, objects: &Objects) -> Vec<i64> {
    let pod_groups =
        pod.spec.security_context.as_ref().map(|context| context.supplemental_groups.as_slice()).unwrap_or_default();
    let mut groups: Vec<i64> = bound_volumes(pod, uses, objects).filter_map(|(_, bound)| bound.group).collect();
    groups.retain(|group| !pod_groups.contains(group));
    groups.sort_once();
    groups.dedup();
    groups
}

/// The PersistentVolumes that the pod's containers use, as far as they are known.
fn bound_volumes<'a>(
    pod: &'a Pod,
    uses: &'a VolumeUses<'_>,
    objects: &'a Objects,
) -> impl Iterator<Item = (&'a Volume, &'a PersistentVolume)> {
    let used = pod.spec.volumes.iter().filter(|volume| uses.is_used(&volume.name));
    used.filter_map(|volume| match objects.claimed(&Topic::claim(pod, volume)?) {
        Lookup::Found(bound) => Some((volume, bound)),
        Lookup::Missing | Lookup::Unknown(_) => None,
    })
}

/// The directory on the host of a volume that the pod can write; `None` if it has no such volume.
pub(super) fn writable_directory(pod: &Pod, name: &str, inputs: SetUpInputs<'_>) -> Option<PathBuf> {
    let volume = pod.spec.volumes.iter().find(|volume| volume.name == name)?;
    let has_files = matches!(
        volume.source,
        VolumeSource::ConfigMap(_)
            | VolumeSource::DownwardApi(_)
            | VolumeSource::Projected(_)
            | VolumeSource::Secret(_)
            | VolumeSource::Image(_)
    );
    if has_files {
        return None;
    }
    let source = source(pod, volume, &VolumeUses::of(&pod.spec), &PodFiles::new(pod, inputs), inputs).ok()?;
    let planned = PlannedVolume { name: name.to_owned(), source };
    planned.host_path().filter(|_| !planned.is_device() && !planned.read_only())
}

/// The pod's persistent CSI volumes that `is_driver_wanted` names. Other volumes are not planned, because their content
/// may be large.
pub(super) fn of_drivers(pod: &Pod, inputs: SetUpInputs<'_>, is_driver_wanted: &dyn Fn(&str) -> bool) -> Vec<Csi> {
    let is_wanted = |volume: &&Volume| {
        let source = inputs.objects.claimed_of_driver(pod, volume);
        source.is_some_and(|source| is_driver_wanted(&source.driver))
    };
    let volumes: Vec<&Volume> = pod.spec.volumes.iter().filter(is_wanted).collect();
    if volumes.is_empty() {
        return Vec::new();
    }
    let uses = VolumeUses::of(&pod.spec);
    let used = volumes.into_iter().filter(|volume| uses.is_used(&volume.name));
    let planned = used.filter_map(|volume| match claimed(pod, volume, &uses, inputs) {
        Ok(Source::Csi(csi)) => Some(*csi),
        _ => None,
    });
    planned.collect()
}

fn source<'a>(
    pod: &Pod,
    volume: &'a Volume,
    uses: &VolumeUses<'_>,
    shared: &PodFiles<'a>,
    inputs: SetUpInputs<'_>,
) -> Result<Source, Problem> {
    let unsupported = |kind| Err(Problem::Unsupported { kind });
    let memory = inputs.node.allocatable_memory();
    // Files with possibly secret content are kept in memory; ConfigMaps are not.
    let files = |plugin: &str, medium| {
        let directory = directory(pod, &volume.name, plugin, &["wrapped_", &volume.name].concat(), medium, inputs);
        let mount_points = uses.mount_points(&volume.name).to_owned();
        Ok(Source::Files(Files { directory, payload: payload(shared, &volume.source), mount_points }))
    };
    let in_memory = || Medium::Memory { size: memory_size(uses, None, memory) };
    match &volume.source {
        VolumeSource::ConfigMap(_) => files(CONFIG_MAP, Medium::Disk),
        VolumeSource::Csi(source) => Ok(Source::Csi(Box::new(csi::inline(pod, source, &volume.name, inputs)))),
        VolumeSource::DownwardApi(_) => files(DOWNWARD_API, in_memory()),
        VolumeSource::EmptyDir(source) => {
            let medium = medium(uses, source, memory)?;
            Ok(Source::EmptyDir(directory(pod, &volume.name, EMPTY_DIR, &volume.name, medium, inputs)))
        }
        VolumeSource::HostPath(source) => host_path(&source.path, source.kind, false),
        VolumeSource::Image(_) => Ok(Source::Image),
        VolumeSource::Nfs(source) => Ok(nfs(pod, source, &volume.name, (source.read_only, &[]), inputs)),
        VolumeSource::Projected(_) => files(PROJECTED, in_memory()),
        VolumeSource::Secret(_) => files(SECRET, in_memory()),
        VolumeSource::AwsElasticBlockStore(_) => unsupported("awsElasticBlockStore"),
        VolumeSource::AzureDisk(_) => unsupported("azureDisk"),
        VolumeSource::AzureFile(_) => unsupported("azureFile"),
        VolumeSource::CephFs(_) => unsupported("cephfs"),
        VolumeSource::Cinder(_) => unsupported("cinder"),
        VolumeSource::Fc(_) => unsupported("fc"),
        VolumeSource::FlexVolume(_) => unsupported("flexVolume"),
        VolumeSource::Flocker(_) => unsupported("flocker"),
        VolumeSource::GcePersistentDisk(_) => unsupported("gcePersistentDisk"),
        VolumeSource::GitRepo(_) => unsupported("gitRepo"),
        VolumeSource::Glusterfs(_) => unsupported("glusterfs"),
        VolumeSource::Iscsi(_) => unsupported("iscsi"),
        VolumeSource::PersistentVolumeClaim(source) if pod.is_static() => own_claim(pod, source, inputs),
        VolumeSource::Ephemeral(_) | VolumeSource::PersistentVolumeClaim(_) => claimed(pod, volume, uses, inputs),
        VolumeSource::PhotonPersistentDisk(_) => unsupported("photonPersistentDisk"),
        VolumeSource::PortworxVolume(_) => unsupported("portworxVolume"),
        VolumeSource::Quobyte(_) => unsupported("quobyte"),
        VolumeSource::Rbd(_) => unsupported("rbd"),
        VolumeSource::ScaleIo(_) => unsupported("scaleIO"),
        VolumeSource::StorageOs(_) => unsupported("storageos"),
        VolumeSource::Unknown => Err(Problem::NoPlugin),
        VolumeSource::VsphereVolume(_) => unsupported("vsphereVolume"),
    }
}

/// The directory of a claim from a manifest.
fn own_claim(
    pod: &Pod,
    source: &PersistentVolumeClaimVolumeSource,
    inputs: SetUpInputs<'_>,
) -> Result<Source, Problem> {
    let name = &source.claim_name;
    match inputs.objects.get(pod, ObjectKind::VolumeClaim, name) {
        Lookup::Found(claim) => Ok(Source::Claim {
            path: claim_directory(&inputs.node.claims_dir, claim),
            bytes: claim.storage.unwrap_or_default(),
            read_only: source.read_only,
        }),
        Lookup::Missing => {
            let why = format!("persistentvolumeclaim {name:?} not found");
            Err(Problem::Claim { name: name.clone(), why })
        }
        Lookup::Unknown(why) => Err(Problem::Claim { name: name.clone(), why }),
    }
}

/// The volume bound to the claim.
fn claimed(pod: &Pod, volume: &Volume, uses: &VolumeUses<'_>, inputs: SetUpInputs<'_>) -> Result<Source, Problem> {
    let Some(claim @ Topic::Claim { name, .. }) = &Topic::claim(pod, volume) else {
        return Err(Problem::Unsupported { kind: "unknown" });
    };
    let failed = |why: String| Problem::Claim { name: name.clone(), why };
    let bound = match inputs.objects.claimed(claim) {
        Lookup::Found(bound) => bound,
        Lookup::Missing => return Err(failed(format!("persistentvolumeclaim {name:?} not found"))),
        Lookup::Unknown(why) => return Err(failed(why)),
    };
    let read_only = match &volume.source {
        VolumeSource::PersistentVolumeClaim(source) => source.read_only,
        _ => false,
    };
    let wrong = |mode: &str, list: &str| {
        failed(format!("volume {} has volumeMode {mode}, but is specified in {list}", volume.name))
    };
    if bound.is_block && uses.is_mounted(&volume.name) {
        return Err(wrong("Block", "volumeMounts"));
    }
    if !bound.is_block && uses.is_passed(&volume.name) {
        return Err(wrong("Filesystem", "volumeDevices"));
    }
    let no_device = |kind: &str| failed(format!("volumes of the kind {kind} are no devices"));
    match &bound.source {
        PersistentSource::Csi(source) => {
            let driver = match inputs.objects.csi_driver(&source.driver) {
                Lookup::Found(driver) => Some(driver),
                // An unknown driver keeps the volume from being set up.
                Lookup::Missing | Lookup::Unknown(_) => None,
            };
            let mounting = uses.mounting(&volume.name);
            let file_label = inputs.node.container_file_label.as_deref();
            let mount_label = mount_label(pod, (&volume.name, mounting), bound, driver, file_label)?;
            let is_for_all = file_label.is_some() && driver.is_some_and(|driver| driver.selinux_mount);
            let label = MountLabel { label: mount_label, is_for_all: is_for_all && !bound.is_block };
            Ok(Source::Csi(Box::new(csi::claimed(pod, bound, source, read_only, label, inputs))))
        }
        PersistentSource::Local { path, .. } if bound.is_block => {
            Ok(Source::Device { path: without_backsteps(path)?, read_only })
        }
        PersistentSource::Local { path, fs_type } => {
            let fs_type = if fs_type.is_empty() { "ext4" } else { fs_type };
            Ok(Source::Local(local(pod, bound, without_backsteps(path)?, fs_type, read_only, inputs)))
        }
        PersistentSource::HostPath(_) if bound.is_block => Err(no_device("hostPath")),
        PersistentSource::HostPath(_) if !bound.mount_options.is_empty() => Err(Problem::MountOptions),
        PersistentSource::HostPath(source) => host_path(&source.path, source.kind, read_only),
        PersistentSource::Nfs(_) if bound.is_block => Err(no_device("nfs")),
        // As upstream, the volume's own `readOnly` has no effect.
        PersistentSource::Nfs(source) => Ok(nfs(pod, source, &bound.name, (read_only, &bound.mount_options), inputs)),
        PersistentSource::Other(kind) => Err(failed(format!("volumes of the kind {kind} are not supported"))),
    }
}

fn host_path(path: &str, kind: HostPathType, read_only: bool) -> Result<Source, Problem> {
    Ok(Source::HostPath { path: without_backsteps(path)?, kind, read_only })
}

fn without_backsteps(path: &str) -> Result<PathBuf, Problem> {
    let cleaned = PathBuf::from(path);
    if cleaned.components().any(|part| part == Component::ParentDir) {
        return Err(Problem::BackSteps { path: path.to_owned() });
    }
    Ok(cleaned)
}

fn local(
    pod: &Pod,
    bound: &PersistentVolume,
    from: PathBuf,
    fs_type: &str,
    read_only: bool,
    inputs: SetUpInputs<'_>,
) -> Local {
    let (dirs, uid) = (inputs.dirs, &pod.metadata.uid);
    Local {
        from,
        path: dirs.volume(uid, LOCAL_VOLUME_PLUGIN, &bound.name),
        marker: dirs.plugin(uid, LOCAL_VOLUME_PLUGIN, &bound.name),
        pods: dirs.pods().to_owned(),
        fs_type: fs_type.to_owned(),
        options: bound.mount_options.clone(),
        read_only,
        group: fs_group(&pod.spec),
        on_mismatch: changes_on_root_mismatch(&pod.spec),
    }
}

fn nfs(
    pod: &Pod,
    source: &NfsVolumeSource,
    name: &str,
    (read_only, options): (bool, &[String]),
    inputs: SetUpInputs<'_>,
) -> Source {
    let path = inputs.dirs.volume(&pod.metadata.uid, NFS, name);
    let mut options = options.to_vec();
    options.extend(read_only.then(|| "ro".to_owned()));
    options.sort_once();
    options.dedup();
    Source::Nfs(Nfs { device: nfs_device(source), path, options, read_only })
}

/// A directory of the pod for a volume; `marker` names the directory with its ready file.
fn directory(pod: &Pod, volume: &str, plugin: &str, marker: &str, medium: Medium, inputs: SetUpInputs<'_>) -> EmptyDir {
    let uid = &pod.metadata.uid;
    EmptyDir {
        path: inputs.dirs.volume(uid, plugin, volume),
        marker: inputs.dirs.plugin(uid, EMPTY_DIR, marker),
        medium,
        group: fs_group(&pod.spec),
    }
}

/// IPv6 addresses need brackets because of their colons.
fn nfs_device(source: &NfsVolumeSource) -> String {
    let NfsVolumeSource { server, path, .. } = source;
    if server.parse::<std::net::Ipv6Addr>().is_ok() { format!("[{server}]:{path}") } else { format!("{server}:{path}") }
}

fn medium(uses: &VolumeUses<'_>, source: &EmptyDirVolumeSource, memory: u64) -> Result<Medium, Problem> {
    match &source.medium {
        StorageMedium::Disk => Ok(Medium::Disk),
        StorageMedium::Memory => Ok(Medium::Memory { size: memory_size(uses, source.size_limit, memory) }),
        StorageMedium::HugePages { page_size: Some(size) } => Ok(Medium::HugePages { page_size: bytes(*size) }),
        StorageMedium::HugePages { page_size: None } => {
            Ok(Medium::HugePages { page_size: uses.page_size.map(bytes).ok_or(Problem::HugePageSize)? })
        }
        StorageMedium::Unknown(medium) => Err(Problem::UnknownMedium { medium: medium.clone() }),
    }
}

/// The minimum of the volume's size limit, the pod's memory limit and allocatable memory.
fn memory_size(uses: &VolumeUses<'_>, size_limit: Option<Quantity>, memory: u64) -> Option<u64> {
    let bounds = [memory, uses.memory_limit.map_or(0, bytes), size_limit.map_or(0, bytes)];
    bounds.into_iter().filter(|bound| *bound > 0).min()
}

fn bytes(quantity: Quantity) -> u64 {
    u64::try_from(quantity.value()).unwrap_or(0)
}

#[cfg(test)]
mod tests;
