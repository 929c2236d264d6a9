//! Metrics of assigned CPUs, and of resources that are aligned to NUMA nodes, cores and caches.

use super::cpu_manager::CpuManager;
use super::cpu_topology::Level;
use super::memory_policy::OwnMemory;
use super::pod_level::PodLevel;
use crate::state::pods::{Placements, PodCpus};
use crate::types::api::{CPU, MEMORY, Pod};
use crate::types::cpu_set::CpuSet;
use crate::types::metrics::{self, Count};

pub(super) const CONTAINER_SCOPE: &str = "container";
pub(super) const POD_SCOPE: &str = "pod";
pub(super) const NUMA_NODE: &str = "numa_node";
pub(super) const PHYSICAL_CPU: &str = "physical_cpu";
const UNCORE_CACHE: &str = "uncore_cache";

/// Shows the counters of alignment from the start, as upstream.
pub(super) fn expose_alignment(aligns_nodes: bool, assigns_cpus: bool) {
    if aligns_nodes {
        for scope in [CONTAINER_SCOPE, POD_SCOPE] {
            metrics::expose(Count::AlignedResources, &[scope, NUMA_NODE]);
            metrics::expose(Count::AlignedResourcesFailures, &[scope, NUMA_NODE]);
        }
    }
    if assigns_cpus {
        metrics::expose(Count::AlignedResources, &[CONTAINER_SCOPE, PHYSICAL_CPU]);
        metrics::expose(Count::AlignedResources, &[CONTAINER_SCOPE, UNCORE_CACHE]);
        metrics::expose(Count::AlignedResourcesFailures, &[CONTAINER_SCOPE, PHYSICAL_CPU]);
    }
}

/// Counts what the managers assign to the containers of a pod. As upstream, with `PodLevelResourceManagers` only.
pub(super) struct AssignmentCounts<'a> {
    pub(super) level: PodLevel,
    pub(super) pod: &'a Pod,
}

impl AssignmentCounts<'_> {
    pub(super) fn failed(&self, resource: &str) {
        if self.level != PodLevel::Ignored {
            metrics::count(Count::ResourceAllocationErrors, &[resource, self.source()]);
        }
    }

    pub(super) fn cpus(&self, previous_cpus: Option<&PodCpus>, pod_cpus: &PodCpus) {
        for (name, cpus) in pod_cpus.containers.iter() {
            if previous_cpus.and_then(|previous| previous.containers.get(name)) != Some(cpus) {
                self.assigned(CPU, pod_cpus.sharing.contains(name));
            }
        }
    }

    pub(super) fn memory(&self, previous_memory: Option<&OwnMemory>, pod_memory: &OwnMemory) {
        for name in pod_memory.containers.keys() {
            if previous_memory.is_none_or(|previous| !previous.containers.contains_key(name)) {
                self.assigned(MEMORY, pod_memory.sharing.contains(name));
            }
        }
    }

    fn assigned(&self, resource: &str, is_shared: bool) {
        if self.level == PodLevel::Ignored {
            return;
        }
        let kind = match (is_shared, self.level.is_whole(self.pod)) {
            (true, _) => "pod_shared",
            (false, true) => "pod_exclusive",
            (false, false) => "node_exclusive",
        };
        metrics::count(Count::ResourceAllocations, &[resource, self.source()]);
        metrics::count(Count::ResourceAssignments, &[kind, resource]);
    }

    fn source(&self) -> &'static str {
        if self.level.is_whole(self.pod) { "pod" } else { "node" }
    }
}

impl CpuManager {
    /// Counts the allocations of a pod's containers that differ from the previous ones.
    pub(super) fn count_alignment(&self, previous_cpus: Option<&PodCpus>, pod_cpus: &PodCpus) {
        let whole_cores = self.has_whole_cores();
        if !pod_cpus.whole.is_empty() {
            if previous_cpus.is_none_or(|previous| previous.whole != pod_cpus.whole)
                && self.topology.is_of_one_cache(&pod_cpus.whole)
            {
                metrics::count(Count::AlignedResources, &[CONTAINER_SCOPE, UNCORE_CACHE]);
            }
            return;
        }
        let is_new = |(name, cpus): &(&String, &CpuSet)| {
            previous_cpus.and_then(|previous| previous.containers.get(*name)) != Some(*cpus)
        };
        for (_, cpus) in pod_cpus.containers.iter().filter(is_new) {
            if whole_cores {
                metrics::count(Count::AlignedResources, &[CONTAINER_SCOPE, PHYSICAL_CPU]);
            }
            if self.topology.is_of_one_cache(cpus) {
                metrics::count(Count::AlignedResources, &[CONTAINER_SCOPE, UNCORE_CACHE]);
            }
        }
    }

    /// Counts the shared CPUs, and the exclusive ones of each NUMA node.
    pub(super) fn count(&self, placements: &Placements) {
        let shared = placements.shared.clone().without(&self.reserved).len();
        let taken = placements.exclusive.values().fold(CpuSet::EMPTY, |sum, pod_cpus| sum.with(&pod_cpus.all()));
        let on_node = |node: u32| {
            let node = [node].into_iter().collect();
            self.topology.within(Level::Node, &node).common(&taken).len()
        };
        let exclusive = self.topology.nodes().iter().map(|node| (node, on_node(node))).collect();
        metrics::processors(shared, exclusive);
    }
}

#[cfg(test)]
mod tests {
    use super::super::cpu_topology::tests::board;
    use super::super::{ResourceManagers, State, guaranteed};
    use super::*;
    use crate::platform::config::{Config, CpuOptions, TopologyManager, TopologyPolicy};

    #[test]
    fn counters_of_alignment_are_shown_from_the_start_and_count_pods_without_whole_cores() {
        let mut config = Config::default();
        config.managers.reserved_cpus = CpuSet::parse("0").unwrap();
        config.managers.static_cpus = Some(CpuOptions { full_cores: true, ..CpuOptions::default() });
        config.managers.topology = Some(TopologyManager {
            policy: TopologyPolicy::Restricted,
            pod_scope: false,
            most_nodes: 8,
            closest_nodes: false,
        });
        ResourceManagers::new(&config, board(4), State::Nothing).unwrap();
        let shown = ["container,numa_node", "pod,numa_node", "container,physical_cpu", "container,uncore_cache"];
        assert_eq!(metrics::labels_of(Count::AlignedResources), shown);
        assert_eq!(metrics::labels_of(Count::AlignedResourcesFailures), shown[..3]);
        config.managers.topology = None;
        let managers = ResourceManagers::new(&config, board(4), State::Nothing).unwrap();
        let many = guaranteed::pod("many", vec![], vec![guaranteed::container("main", "4", "1Mi")]);
        managers.plan(&many, Vec::new()).unwrap_err();
        let mut page = metrics::Exposition::default();
        metrics::write(&mut page);
        let page = metrics::parsed::parse(std::str::from_utf8(&page.into_bytes()).unwrap());
        let failures = &page["kubelet_container_aligned_compute_resources_failure_count"];
        assert_eq!(failures.value(&[("scope", "container"), ("boundary", "physical_cpu")]), 1.0);
        assert_eq!(failures.value(&[("scope", "pod"), ("boundary", "numa_node")]), 0.0);
    }
}
