//! Which processors containers are held to. Pure.

use crate::types::api::PodUid;
use crate::types::cpu_set::CpuSet;
use crate::types::sorted::SortedMap;

/// By pod and container.
pub(crate) type Assigned = SortedMap<PodUid, SortedMap<String, CpuSet>>;

/// What a container has of a kind of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlacedMemory {
    pub(crate) pod: PodUid,
    pub(crate) container: String,
    pub(crate) block: MemoryBlock,
}

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
    /// What containers have of memory, where it does not come from any node.
    pub(crate) memory: Vec<PlacedMemory>,
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
