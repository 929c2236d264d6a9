//! Selects CPUs among the free ones. Pure.
//!
//! `takeByTopologyNUMAPacked` in pkg/kubelet/cm/cpumanager/cpu_assignment.go: whole NUMA nodes or packages first,
//! then whole cores, then threads; at each level those with the fewest free CPUs, to keep whole ones free.

use super::cpu_topology::{Level, Topology};
use crate::types::cpu_set::CpuSet;
use crate::types::sorted::SortOnce;

/// `None` if there are not enough free CPUs.
pub(super) fn take_packed(topology: &Topology, free: &CpuSet, wanted: usize) -> Option<CpuSet> {
    take(topology, free, wanted, false)
}

/// As [`take_packed`], from as few uncore caches as possible (`prefer-align-cpus-by-uncorecache`).
pub(super) fn take_by_cache(topology: &Topology, free: &CpuSet, wanted: usize) -> Option<CpuSet> {
    take(topology, free, wanted, true)
}

fn take(topology: &Topology, free: &CpuSet, wanted: usize, by_cache: bool) -> Option<CpuSet> {
    let mut taking = CpuAccumulator { topology, free: free.clone(), taken: CpuSet::EMPTY, wanted };
    if free.len() < wanted {
        return None;
    }
    for (depth, level) in topology.levels().into_iter().enumerate() {
        if level == Level::Core && by_cache {
            taking.take_caches();
        }
        for group in taking.sorted(depth) {
            let whole = topology.within(level, &one(group));
            if whole.is_within(&taking.free) && whole.len() <= taking.missing() {
                taking.take(&whole);
            }
        }
    }
    let mut threads = Vec::new();
    for core in taking.sorted(CPU_LEVELS - 1) {
        threads.extend(taking.free_in(Level::Core, core).iter());
    }
    threads.truncate(taking.missing());
    taking.take(&threads.into_iter().collect());
    Some(taking.taken)
}

struct CpuAccumulator<'a> {
    topology: &'a Topology,
    free: CpuSet,
    taken: CpuSet,
    wanted: usize,
}

const CPU_LEVELS: usize = 3;

impl Topology {
    /// Largest first: if there are more NUMA nodes than packages, packages contain nodes, otherwise the reverse.
    fn levels(&self) -> [Level; CPU_LEVELS] {
        if self.has_packages_in_nodes() {
            [Level::Node, Level::Package, Level::Core]
        } else {
            [Level::Package, Level::Node, Level::Core]
        }
    }

    fn has_packages_in_nodes(&self) -> bool {
        self.groups(Level::Package).len() >= self.nodes().len()
    }
}

impl CpuAccumulator<'_> {
    fn missing(&self) -> usize {
        self.wanted - self.taken.len()
    }

    fn take(&mut self, cpus: &CpuSet) {
        self.free.remove(cpus);
        self.taken.add(cpus);
    }

    /// Whole caches while at least one is missing, then the part that is missing if one cache has all of it
    /// (`takeUncoreCache`).
    fn take_caches(&mut self) {
        let size = self.topology.cpus.len() / self.topology.groups(Level::Cache).len().max(1);
        for cache in self.sorted_caches() {
            if self.missing() >= size {
                for cache in self.sorted_caches() {
                    let whole_cache = self.topology.within(Level::Cache, &one(cache));
                    if whole_cache.is_within(&self.free) && whole_cache.len() <= self.missing() {
                        self.take(&whole_cache);
                    }
                }
            }
            if self.missing() == 0 {
                return;
            }
            let part = self.part_of(cache);
            if part.len() == self.missing() {
                self.take(&part);
                return;
            }
        }
    }

    /// The free CPUs of as many cores of the cache as the missing CPUs need (`takePartialUncore`).
    fn part_of(&self, cache: u32) -> CpuSet {
        let per_core = self.topology.cpus_per_core();
        let free = self.free_in(Level::Cache, cache);
        let cores: CpuSet = {
            let cores = self.topology.cpus.iter().filter(|cpu| free.contains(cpu.number)).map(|cpu| cpu.core);
            cores.collect()
        };
        let cores = cores.iter().take(self.missing().div_ceil(per_core)).collect();
        let part = self.topology.within(Level::Core, &cores).common(&self.free);
        // Of the last core, an odd number of CPUs needs one thread.
        let has_spare = self.missing() % 2 != 0 && per_core > 1 && part.len() > self.missing();
        part.iter().take(part.len() - usize::from(has_spare)).collect()
    }

    /// The caches with free CPUs, by NUMA node and then by the number of free CPUs.
    fn sorted_caches(&self) -> Vec<u32> {
        let nodes = self.sorted(usize::from(!self.topology.has_packages_in_nodes()));
        let mut sorted = Vec::new();
        for node in nodes {
            let free = self.free_in(Level::Node, node);
            let caches: CpuSet = {
                let caches = self.topology.cpus.iter().filter(|cpu| free.contains(cpu.number)).map(|cpu| cpu.cache);
                caches.collect()
            };
            let mut caches: Vec<u32> = caches.iter().collect();
            caches.sort_once_by_key(|cache| self.free_in(Level::Cache, *cache).len());
            sorted.extend(caches);
        }
        sorted
    }

    fn free_in(&self, level: Level, group: u32) -> CpuSet {
        self.topology.within(level, &one(group)).common(&self.free)
    }

    /// The groups of a level with free CPUs, ordered by their parent groups and then by the number of free CPUs.
    fn sorted(&self, depth: usize) -> Vec<u32> {
        let mut sorted = Vec::new();
        self.sort_into(&self.free, 0, depth, &mut sorted);
        sorted
    }

    fn sort_into(&self, cpus: &CpuSet, at: usize, depth: usize, sorted: &mut Vec<u32>) {
        let Some(level) = self.topology.levels().get(at).copied() else { return };
        let groups: CpuSet =
            self.topology.cpus.iter().filter(|cpu| cpus.contains(cpu.number)).map(|cpu| cpu.at(level)).collect();
        let mut groups: Vec<u32> = groups.iter().collect();
        groups.sort_once_by_key(|group| self.free_in(level, *group).len());
        for group in groups {
            if at == depth {
                sorted.push(group);
            } else {
                self.sort_into(&self.free_in(level, group).common(cpus), at + 1, depth, sorted);
            }
        }
    }
}

pub(super) fn one(number: u32) -> CpuSet {
    std::iter::once(number).collect()
}

/// Takes CPUs evenly from as few NUMA nodes as possible, in groups of `group` CPUs (`takeByTopologyNUMADistributed`).
pub(super) fn take_distributed(topology: &Topology, free: &CpuSet, wanted: usize, group: usize) -> Option<CpuSet> {
    let too_many = topology.nodes().len() > MAX_COMBINED_NUMA_NODES;
    if wanted == 0 || wanted % group != 0 || free.len() < wanted || too_many {
        return take_packed(topology, free, wanted);
    }
    let taking = CpuAccumulator { topology, free: free.clone(), taken: CpuSet::EMPTY, wanted };
    let by_node = |node: u32| taking.free_in(Level::Node, node);
    let nodes: Vec<u32> = taking.sorted(usize::from(!topology.has_packages_in_nodes()));
    let counts: Vec<usize> = nodes.iter().map(|node| by_node(*node).len()).collect();
    let groups_wanted = wanted.div_ceil(group);
    let groups_per_node = topology.cpus.len().div_ceil(group).div_ceil(topology.nodes().len().max(1));
    let fewest = groups_wanted.div_ceil(groups_per_node.max(1));
    for size in fewest..=groups_wanted.min(nodes.len()) {
        let mut best: Option<Distribution> = None;
        for combination in combinations(nodes.len(), size) {
            if best.as_ref().is_some_and(|best| best.imbalance == 0.0) {
                break;
            }
            let distribution = spread(&counts, &combination, wanted, group);
            if let Some(distribution) = distribution
                .filter(|distribution| best.as_ref().is_none_or(|best| distribution.imbalance < best.imbalance))
            {
                best = Some(distribution);
            }
        }
        let Some(best) = best else { continue };
        let mut taken = CpuSet::EMPTY;
        // The even parts first, then the remainder.
        for part in [best.even, best.rest] {
            for (index, count) in part {
                let free_cpus = by_node(*nodes.get(index)?).without(&taken);
                for size in split(count.total, count.step) {
                    taken.add(&take_packed(topology, &free_cpus.clone().without(&taken), size)?);
                }
            }
        }
        return Some(taken);
    }
    take_packed(topology, free, wanted)
}

/// Above this there are too many combinations of nodes to try.
const MAX_COMBINED_NUMA_NODES: usize = 10;

/// The number of CPUs to take from each node, by index in the list of nodes.
struct Distribution {
    even: Parts,
    rest: Parts,
    /// Standard deviation of the CPUs left on the nodes.
    imbalance: f64,
}

/// By index of the node.
type Parts = Vec<(usize, Part)>;

/// `total` CPUs, taken in groups of `step`.
#[derive(Clone, Copy)]
struct Part {
    total: usize,
    step: usize,
}

fn split(total: usize, step: usize) -> impl Iterator<Item = usize> {
    std::iter::repeat_n(step, total.checked_div(step).unwrap_or(0))
}

/// The most even distribution over these nodes; `None` if they have too few CPUs.
fn spread(counts: &[usize], nodes: &[usize], wanted: usize, group: usize) -> Option<Distribution> {
    let of = |node: &usize| counts.get(*node).copied().unwrap_or(0);
    let in_groups: usize = nodes.iter().map(|node| of(node) / group * group).sum();
    let each = wanted / nodes.len() / group * group;
    if in_groups < wanted || nodes.iter().any(|node| of(node) < each) {
        return None;
    }
    let mut free_counts = counts.to_vec();
    for node in nodes {
        *free_counts.get_mut(*node)? -= each;
    }
    let even: Parts = nodes.iter().map(|node| (*node, Part { total: each, step: each })).collect();
    let remainder = wanted - each * nodes.len();
    if remainder == 0 {
        return Some(Distribution { even, rest: Vec::new(), imbalance: deviation(&free_counts) });
    }
    let able: Vec<usize> = nodes
        .iter()
        .copied()
        .filter(|node| free_counts.get(*node).is_some_and(|free_counts| *free_counts >= group))
        .collect();
    let mut best: Option<Distribution> = None;
    for size in (1..=able.len()).rev() {
        for subset in combinations(able.len(), size) {
            let subset: Vec<usize> = subset.iter().filter_map(|index| able.get(*index).copied()).collect();
            let Some((rest, after)) = give(&subset, &free_counts, remainder, group) else { continue };
            let imbalance = deviation(&after);
            if best.as_ref().is_none_or(|best| imbalance < best.imbalance) {
                best = Some(Distribution { even: even.clone(), rest, imbalance });
            }
        }
    }
    best
}

/// Distributes the remainder over these nodes, one group each in turn.
fn give(subset: &[usize], free_counts: &[usize], remainder: usize, group: usize) -> Option<(Parts, Vec<usize>)> {
    let (mut free_counts, mut rest, mut remainder) = (free_counts.to_vec(), Vec::new(), remainder);
    while remainder > 0 {
        let before = remainder;
        for node in subset {
            let count = free_counts.get_mut(*node)?;
            if remainder > 0 && *count >= group {
                *count -= group;
                remainder -= group;
                rest.push((*node, Part { total: group, step: group }));
            }
        }
        if remainder == before {
            return None;
        }
    }
    Some((rest, free_counts))
}

/// The standard deviation, in thousandths.
fn deviation(counts: &[usize]) -> f64 {
    let round = |number: f64| (number * 1000.0).round() / 1000.0;
    let numbers = || counts.iter().map(|count| f64::from(u32::try_from(*count).unwrap_or(u32::MAX)));
    let count = f64::from(u32::try_from(counts.len().max(1)).unwrap_or(u32::MAX));
    let mean = round(numbers().sum::<f64>() / count);
    round((numbers().map(|number| (number - mean) * (number - mean)).sum::<f64>() / count).sqrt())
}

/// All combinations of `size` numbers below `all`, in order.
fn combinations(count: usize, size: usize) -> Vec<Vec<usize>> {
    let mut combinations = vec![Vec::new()];
    for _ in 0..size {
        let longer = |chosen: &Vec<usize>| {
            let from = chosen.last().map_or(0, |last| last + 1);
            let chosen = chosen.clone();
            (from..count).map(move |next| chosen.iter().copied().chain([next]).collect::<Vec<usize>>())
        };
        combinations = combinations.iter().flat_map(longer).collect();
    }
    combinations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::resource_managers::cpu_topology::tests::{
        board, dual_socket, four_nodes, machine, single_socket, with_caches,
    };

    fn set(text: &str) -> CpuSet {
        CpuSet::parse(text).unwrap()
    }

    #[track_caller]
    fn check(topology: &Topology, free: &str, wanted: usize, group: Option<usize>, expected: &str) {
        let free = set(free);
        let taken = match group {
            None => take_packed(topology, &free, wanted),
            Some(group) => take_distributed(topology, &free, wanted, group),
        };
        assert_eq!(taken.map(|taken| taken.to_string()), Some(expected.to_owned()));
    }

    /// Numbers in this and the next test are from the upstream kubelet's tests.
    #[test]
    fn whole_cores_and_packages_are_kept_whole() {
        for group in [None, Some(1)] {
            let ht = single_socket();
            assert_eq!(take_packed(&ht, &set("0,2,4,6"), 5), None);
            check(&ht, "0-7", 0, group, "");
            check(&ht, "0-7", 1, group, "0");
            check(&ht, "1,3,5-7", 1, group, "6");
            check(&ht, "0-7", 2, group, "0,4");
            check(&ht, "0-7", 8, group, "0-7");
            check(&ht, "0-3,6", 2, group, "2,6");
            check(&dual_socket(), "0-11", 6, group, "0,2,4,6,8,10");
            let nodes = four_nodes();
            check(&nodes, "0-79", 40, group, "0-19,40-59");
            check(&nodes, "0-79", 20, group, "0-9,40-49");
            check(&nodes, "10-39,50-79", 20, group, "10-19,50-59");
            check(&nodes, "0-79", 60, group, "0-29,40-69");
            check(&nodes, "1-39,41-79", 60, group, "10-39,50-79");
        }
        check(&board(4), "1-3", 2, None, "1-2");
    }

    /// Numbers are from the upstream kubelet's tests.
    #[test]
    fn cpus_come_from_as_few_caches_as_possible() {
        #[track_caller]
        fn check(topology: &Topology, free: &str, wanted: usize, expected: &str) {
            let taken = take_by_cache(topology, &set(free), wanted);
            assert_eq!(taken.map(|taken| taken.to_string()), Some(expected.to_owned()));
        }
        let four = |cpu: u32| cpu % 16 / 4;
        let single = with_caches(machine(16, |cpu| (0, 0, cpu)), four);
        check(&single, "1-15", 10, "1-2,4-11");
        check(&with_caches(dual_socket(), |_| 0), "1-5,7-11", 1, "1");
        let dual = with_caches(machine(16, |cpu| (cpu / 8, cpu / 8, cpu)), four);
        check(&dual, "0-15", 4, "0-3");
        check(&dual, "2-15", 6, "2-7");
        check(&dual, "8-15", 4, "8-11");
        let nodes = with_caches(machine(16, |cpu| (cpu / 8, 0, cpu)), four);
        check(&nodes, "3-8,12", 2, "4-5");
        let threads = with_caches(machine(16, |cpu| (0, 0, cpu % 8)), |cpu| cpu % 8 / 4);
        check(&threads, "2-7,10-15", 6, "4-6,12-14");
        check(&threads, "1-7,9-15", 10, "1,4-7,9,12-15");
        check(&threads, "0-15", 3, "0-1,8");
        // No cache has three free CPUs.
        check(&single, "0-1,4-5,8-9", 3, "0-1,4");
    }

    #[test]
    fn cpus_are_distributed_evenly_over_nodes() {
        let nodes = four_nodes();
        check(&dual_socket(), "0-11", 8, Some(1), "0-3,6-9");
        check(&nodes, "0-79", 64, Some(1), "0-7,10-17,20-27,30-37,40-47,50-57,60-67,70-77");
        check(&nodes, "0-79", 48, Some(1), "0-7,10-17,20-27,40-47,50-57,60-67");
        check(&nodes, "1-29,32-39,41-69,72-79", 48, Some(1), "1-8,10-17,20-27,41-48,50-57,60-67");
        check(&nodes, "2-29,31-39,42-69,71-79", 48, Some(1), "10-17,20-27,31-38,50-57,60-67,71-78");
        let few = "0-2,10-12,20-22,30-32,40-41,50-51,60-61,70-71";
        check(&nodes, few, 16, Some(1), "0-1,10-11,20-21,30-31,40-41,50-51,60-61,70-71");
        check(&dual_socket(), "1-5,7-11", 1, Some(1), "1");
        check(&dual_socket(), "1-5,7-11", 1, Some(2), "2");
        check(&nodes, "0-79", 26, Some(1), "0-6,10-16,40-45,50-55");
        check(&nodes, "0-79", 26, Some(2), "0-6,10-15,40-46,50-55");
        check(&nodes, "0-79", 62, Some(1), "0-7,10-17,20-27,30-37,40-47,50-57,60-66,70-76");
        check(&nodes, "0-79", 62, Some(2), "0-7,10-17,20-27,30-36,40-47,50-57,60-67,70-76");
        let uneven = "0-8,10-18,20-39,40-48,50-58,60-79";
        check(&nodes, uneven, 62, Some(1), "0-7,10-17,20-27,30-37,40-46,50-56,60-67,70-77");
        check(&nodes, uneven, 62, Some(2), "0-7,10-16,20-27,30-37,40-47,50-56,60-67,70-77");
        let scarce = "0-3,10-13,20-23,30-36,40-43,50-53,60-63,70-76";
        check(&nodes, scarce, 34, Some(1), "0-3,10-13,20-23,30-34,40-43,50-53,60-63,70-74");
    }
}
