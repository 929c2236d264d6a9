//! Which processors containers are held to. Pure.

use crate::api::PodUid;
use crate::cpu_set::CpuSet;
use crate::sorted::SortedMap;

/// By pod and container.
pub(crate) type Assigned = SortedMap<PodUid, SortedMap<String, CpuSet>>;

/// One for the whole process; the sync loop writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placements {
    /// The processors of all containers that have none of their own; empty: they are held to none.
    pub(crate) shared: CpuSet,
    /// The processors that a container has for itself.
    pub(crate) exclusive: Assigned,
    /// The NUMA nodes that a container's memory comes from, where it does not come from any.
    pub(crate) memory: Assigned,
}

impl Placements {
    pub(crate) fn cpus(&self, pod: &PodUid, container: &str) -> &CpuSet {
        self.own(pod, container).unwrap_or(&self.shared)
    }

    pub(crate) fn has_own_cpus(&self, pod: &PodUid, container: &str) -> bool {
        self.own(pod, container).is_some()
    }

    /// One of its containers has processors for itself.
    pub(crate) fn pod_has_own_cpus(&self, pod: &PodUid) -> bool {
        self.exclusive.contains_key(pod)
    }

    pub(crate) fn mems(&self, pod: &PodUid, container: &str) -> Option<&CpuSet> {
        self.memory.get(pod)?.get(container)
    }

    fn own(&self, pod: &PodUid, container: &str) -> Option<&CpuSet> {
        self.exclusive.get(pod)?.get(container)
    }
}
