//! Resource usage of a pod. Pure.

use crate::types::api::Pod;

/// `None`: not measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodUsage {
    /// Working set in bytes.
    pub(crate) memory: Option<u64>,
    pub(crate) pids: Option<u64>,
    pub(crate) containers: Vec<ContainerUsage>,
    pub(crate) volumes: Vec<VolumeUsage>,
    pub(crate) claims: Vec<ClaimUsage>,
    /// The pod's own files beside logs and volumes: its hosts file and termination messages.
    pub(crate) pod_files: Disk,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContainerUsage {
    pub(crate) name: String,
    pub(crate) memory: Option<u64>,
    /// The writable layer, as reported by the runtime.
    pub(crate) layer: Option<Disk>,
    pub(crate) logs: Option<Disk>,
}

/// A volume stored on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeUsage {
    pub(crate) name: String,
    pub(crate) disk: Disk,
    /// A tmpfs: it uses memory instead of disk.
    pub(crate) in_memory: bool,
}

/// A claim from a manifest: its data outlives the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimUsage {
    pub(crate) name: String,
    pub(crate) disk: Disk,
    /// Bytes that it may hold.
    pub(crate) limit: u64,
    /// It is on the file system of the pods' volumes.
    pub(crate) on_node_disk: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
}

/// A pod, and its usage if it was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeasuredPod<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) usage: Option<&'a PodUsage>,
}

impl Disk {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), inodes: self.inodes.saturating_add(other.inodes) }
    }
}

impl PodUsage {
    /// Total of the containers' writable layers.
    pub(crate) fn layers(&self) -> Disk {
        self.containers.iter().filter_map(|container| container.layer).fold(Disk::default(), Disk::plus)
    }

    /// What the pod keeps on the node's disk in claims, beyond what they may hold.
    pub(crate) fn beyond_claims(&self) -> u64 {
        let here = self.claims.iter().filter(|claim| claim.on_node_disk);
        here.map(|claim| claim.disk.bytes.saturating_sub(claim.limit)).fold(0, u64::saturating_add)
    }

    /// Total of container logs, disk-backed volumes and the pod's own files.
    pub(crate) fn local(&self) -> Disk {
        let logs = self.containers.iter().filter_map(|container| container.logs);
        let volumes = self.volumes.iter().filter(|volume| !volume.in_memory).map(|volume| volume.disk);
        logs.chain(volumes).fold(self.pod_files, Disk::plus)
    }
}
