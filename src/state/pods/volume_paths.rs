//! Directories of a pod's volumes on the node. Pure.

use std::path::PathBuf;

use super::PodDirs;
use crate::types::api::{Pod, PodUid, StorageMedium, VolumeSource};

/// Plugin names, which are directory names.
pub(crate) const CONFIG_MAP: &str = "kubernetes.io/configmap";
pub(crate) const CSI: &str = "kubernetes.io/csi";
pub(crate) const DOWNWARD_API: &str = "kubernetes.io/downward-api";
pub(crate) const EMPTY_DIR: &str = "kubernetes.io/empty-dir";
pub(crate) const LOCAL_VOLUME_PLUGIN: &str = "kubernetes.io/local-volume";
pub(crate) const NFS: &str = "kubernetes.io/nfs";
pub(crate) const PROJECTED: &str = "kubernetes.io/projected";
pub(crate) const SECRET: &str = "kubernetes.io/secret";

/// A volume directory that belongs to the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeDir {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) kind: &'static str,
    /// A tmpfs, which uses no disk.
    pub(crate) in_memory: bool,
}

/// The volumes of `pod`, whose uid on the node is `uid`. Huge page volumes are left out: they use no disk, and their
/// files do not show their usage.
pub(crate) fn volume_dirs(pod: &Pod, uid: &PodUid, dirs: &PodDirs) -> Vec<VolumeDir> {
    let place = |name: &String, source: &VolumeSource| {
        let (kind, in_memory) = match source {
            VolumeSource::EmptyDir(source) => match &source.medium {
                StorageMedium::Disk => (EMPTY_DIR, false),
                StorageMedium::Memory => (EMPTY_DIR, true),
                StorageMedium::HugePages { .. } | StorageMedium::Unknown(_) => return None,
            },
            VolumeSource::ConfigMap(_) => (CONFIG_MAP, false),
            VolumeSource::DownwardApi(_) => (DOWNWARD_API, true),
            VolumeSource::Projected(_) => (PROJECTED, true),
            VolumeSource::Secret(_) => (SECRET, true),
            _ => return None,
        };
        Some(VolumeDir { name: name.clone(), path: dirs.volume(uid, kind, name), kind, in_memory })
    };
    pod.spec.volumes.iter().filter_map(|volume| place(&volume.name, &volume.source)).collect()
}
