//! Which processors containers are held to. Pure.

use crate::api::PodUid;
use crate::cpu_set::CpuSet;
use crate::sorted::SortedMap;

/// By pod and container.
pub(crate) type Assigned = SortedMap<PodUid, SortedMap<String, CpuSet>>;

/// By pod and container.
pub(crate) type PlacedMemory = SortedMap<PodUid, SortedMap<String, Vec<MemoryBlock>>>;

/// So much of a kind of memory, from these NUMA nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoryBlock {
    pub(crate) nodes: CpuSet,
    pub(crate) kind: String,
    pub(crate) size: u64,
}

/// One for the whole process; the sync loop writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placements {
    /// The processors of all containers that have none of their own; empty: they are held to none.
    pub(crate) shared: CpuSet,
    /// The processors that a container has for itself.
    pub(crate) exclusive: Assigned,
    /// What a container has of memory, where it does not come from any node.
    pub(crate) memory: PlacedMemory,
}

impl Placements {
    pub(crate) fn cpus(&self, pod: &PodUid, container: &str) -> &CpuSet {
        self.own_cpus(pod, container).unwrap_or(&self.shared)
    }

    pub(crate) fn has_own_cpus(&self, pod: &PodUid, container: &str) -> bool {
        self.own_cpus(pod, container).is_some()
    }

    /// One of its containers has processors for itself.
    pub(crate) fn pod_has_own_cpus(&self, pod: &PodUid) -> bool {
        self.exclusive.contains_key(pod)
    }

    /// The nodes that a container's memory comes from; none: from any.
    pub(crate) fn mems(&self, pod: &PodUid, container: &str) -> CpuSet {
        self.memory_of(pod, container).iter().fold(CpuSet::EMPTY, |sum, block| sum.with(&block.nodes))
    }

    pub(crate) fn memory_of(&self, pod: &PodUid, container: &str) -> &[MemoryBlock] {
        let blocks = self.memory.get(pod).and_then(|own| own.get(container));
        blocks.map_or(&[], Vec::as_slice)
    }

    pub(crate) fn own_cpus(&self, pod: &PodUid, container: &str) -> Option<&CpuSet> {
        self.exclusive.get(pod)?.get(container)
    }
}
