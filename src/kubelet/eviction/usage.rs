//! What a pod uses of the node. Pure.

use crate::types::api::Pod;

/// What was measured; `None` is what nobody could tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodUsage {
    /// Bytes that cannot be taken back at once.
    pub(crate) memory: Option<u64>,
    pub(crate) pids: Option<u64>,
    pub(crate) containers: Vec<ContainerUsage>,
    pub(crate) volumes: Vec<VolumeUsage>,
    /// The pod's own files beside those.
    pub(crate) own: Disk,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContainerUsage {
    pub(crate) name: String,
    pub(crate) memory: Option<u64>,
    /// Its writable layer, as the runtime has it.
    pub(crate) layer: Option<Disk>,
    pub(crate) logs: Option<Disk>,
}

/// A volume that is on the node itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeUsage {
    pub(crate) name: String,
    pub(crate) disk: Disk,
    /// It is in memory, and so on no disk.
    pub(crate) in_memory: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
}

/// A pod, and what it uses if that is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) usage: Option<&'a PodUsage>,
}

impl Disk {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), inodes: self.inodes.saturating_add(other.inodes) }
    }
}

impl PodUsage {
    /// The writable layers of its containers.
    pub(crate) fn layers(&self) -> Disk {
        self.containers.iter().filter_map(|container| container.layer).fold(Disk::default(), Disk::plus)
    }

    /// The logs of its containers, and its volumes that are on the disk.
    pub(crate) fn local(&self) -> Disk {
        let logs = self.containers.iter().filter_map(|container| container.logs);
        let volumes = self.volumes.iter().filter(|volume| !volume.in_memory).map(|volume| volume.disk);
        logs.chain(volumes).fold(Disk::default(), Disk::plus)
    }
}
