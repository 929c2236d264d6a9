//! CPU and memory placements of containers. Pure.

use crate::types::api::PodUid;
use crate::types::cpu_set::CpuSet;
use crate::types::sorted::SortedMap;

/// By pod and container.
pub(crate) type Assigned = SortedMap<PodUid, SortedMap<String, CpuSet>>;

/// Memory of one type assigned to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AssignedMemory {
    pub(crate) pod: PodUid,
    pub(crate) container: String,
    pub(crate) block: MemoryBlock,
}

/// `size` bytes of a type of memory, from these NUMA nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoryBlock {
    pub(crate) nodes: CpuSet,
    pub(crate) kind: String,
    pub(crate) size: u64,
}

/// Written by the sync loop, shared with its readers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placements {
    /// CPUs of all containers without exclusive ones; empty: these containers are not pinned.
    pub(crate) shared: CpuSet,
    /// CPUs assigned exclusively.
    pub(crate) exclusive: Assigned,
    /// Memory of containers that are restricted to NUMA nodes.
    pub(crate) memory: Vec<AssignedMemory>,
    /// Containers with exclusive CPUs have a CFS quota as well.
    pub(crate) keeps_quota: bool,
}

impl Placements {
    pub(crate) fn cpus(&self, pod: &PodUid, container: &str) -> &CpuSet {
        self.own_cpus(pod, container).unwrap_or(&self.shared)
    }

    /// Whether a container has no CFS quota, because its CPUs are exclusive.
    pub(crate) fn lifts_quota(&self, pod: &PodUid, container: &str) -> bool {
        !self.keeps_quota && self.own_cpus(pod, container).is_some()
    }

    /// Whether the pod's cgroup has no CFS quota, because the CPUs of a container are exclusive.
    pub(crate) fn lifts_pod_quota(&self, pod: &PodUid) -> bool {
        !self.keeps_quota && self.exclusive.contains_key(pod)
    }

    /// NUMA nodes of a container's memory; empty: any.
    pub(crate) fn mems(&self, pod: &PodUid, container: &str) -> CpuSet {
        self.memory_of(pod, container).fold(CpuSet::EMPTY, |sum, block| sum.with(&block.nodes))
    }

    pub(crate) fn memory_of<'a>(
        &'a self,
        pod: &'a PodUid,
        container: &'a str,
    ) -> impl Iterator<Item = &'a MemoryBlock> {
        let own = self.memory.iter().filter(move |placed| placed.pod == *pod && placed.container == container);
        own.map(|placed| &placed.block)
    }

    pub(crate) fn own_cpus(&self, pod: &PodUid, container: &str) -> Option<&CpuSet> {
        self.exclusive.get(pod)?.get(container)
    }
}
