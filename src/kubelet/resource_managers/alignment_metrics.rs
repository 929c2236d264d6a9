//! Metrics of assigned CPUs, and of resources that are aligned to NUMA nodes, cores and caches.

use super::OwnCpus;
use super::cpu_manager::CpuManager;
use super::cpu_topology::Level;
use crate::state::pods::Placements;
use crate::types::cpu_set::CpuSet;
use crate::types::metrics::{self, Count};
use crate::types::sorted::SortedMap;

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

impl CpuManager {
    /// Counts the new allocations of a pod's containers. `had`: those of before.
    pub(super) fn count_alignment(&self, had: Option<&OwnCpus>, own: &OwnCpus) {
        let whole_cores = self.has_whole_cores();
        for (_, cpus) in own.iter().filter(|(name, cpus)| had.and_then(|had| had.get(*name)) != Some(*cpus)) {
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
        let taken = placements.exclusive.values().flat_map(SortedMap::values);
        let taken = taken.fold(CpuSet::EMPTY, |sum, cpus| sum.with(cpus));
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
