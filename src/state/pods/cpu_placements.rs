//! CPU and memory placements of containers. Pure.

use crate::types::api::PodUid;
use crate::types::cpu_set::CpuSet;
use crate::types::sorted::SortedMap;

/// By pod.
pub(crate) type Assigned = SortedMap<PodUid, PodCpus>;

/// CPUs that are assigned to the containers of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodCpus {
    pub(crate) containers: SortedMap<String, CpuSet>,
    /// All CPUs of a pod that has them as a whole, and whose containers divide them; empty for other pods.
    pub(crate) whole: CpuSet,
    /// The containers whose CPUs are not exclusive: they share the pool of the pod.
    pub(crate) sharing: Vec<String>,
}

impl PodCpus {
    /// All CPUs of the pod.
    pub(crate) fn all(&self) -> CpuSet {
        self.containers.values().fold(self.whole.clone(), |sum, cpus| sum.with(cpus))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.containers.is_empty() && self.whole.is_empty()
    }

    fn is_exclusive(&self, container: &str) -> bool {
        !self.sharing.iter().any(|name| name == container)
    }

    fn exclusive(&self, container: &str) -> Option<&CpuSet> {
        self.containers.get(container).filter(|_| self.is_exclusive(container))
    }
}

/// Memory of one type assigned to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AssignedMemory {
    pub(crate) pod: PodUid,
    pub(crate) container: String,
    /// The container shares the memory of its pod.
    pub(crate) is_shared: bool,
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
    /// CPUs assigned exclusively to containers or pods.
    pub(crate) exclusive: Assigned,
    /// Memory of containers that are restricted to NUMA nodes.
    pub(crate) memory: Vec<AssignedMemory>,
    /// Memory of pods as a whole.
    pub(crate) pod_memory: SortedMap<PodUid, Vec<MemoryBlock>>,
    /// Containers with exclusive CPUs have a CFS quota as well.
    pub(crate) keeps_quota: bool,
}

impl Placements {
    pub(crate) fn cpus(&self, pod: &PodUid, container: &str) -> &CpuSet {
        self.exclusive.get(pod).and_then(|own| own.containers.get(container)).unwrap_or(&self.shared)
    }

    /// Whether a container has no CFS quota, because its CPUs are exclusive.
    pub(crate) fn lifts_quota(&self, pod: &PodUid, container: &str) -> bool {
        !self.keeps_quota && self.own_cpus(pod, container).is_some()
    }

    /// Whether the pod's cgroup has no CFS quota, because the CPUs of a container are exclusive.
    pub(crate) fn lifts_pod_quota(&self, pod: &PodUid) -> bool {
        let own = self.exclusive.get(pod);
        !self.keeps_quota && own.is_some_and(|own| own.containers.keys().any(|name| own.is_exclusive(name)))
    }

    /// NUMA nodes of a container's memory; empty: any.
    pub(crate) fn mems(&self, pod: &PodUid, container: &str) -> CpuSet {
        self.placed(pod, container).fold(CpuSet::EMPTY, |sum, placed| sum.with(&placed.block.nodes))
    }

    fn placed<'a>(&'a self, pod: &'a PodUid, container: &'a str) -> impl Iterator<Item = &'a AssignedMemory> {
        self.memory.iter().filter(move |placed| placed.pod == *pod && placed.container == container)
    }

    /// A container's exclusive memory.
    pub(crate) fn memory_of<'a>(
        &'a self,
        pod: &'a PodUid,
        container: &'a str,
    ) -> impl Iterator<Item = &'a MemoryBlock> {
        self.placed(pod, container).filter(|placed| !placed.is_shared).map(|placed| &placed.block)
    }

    /// A container's exclusive CPUs.
    pub(crate) fn own_cpus(&self, pod: &PodUid, container: &str) -> Option<&CpuSet> {
        self.exclusive.get(pod)?.exclusive(container)
    }
}
