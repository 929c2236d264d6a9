//! CPU topology: threads in cores, cores in packages, all in NUMA nodes. Pure.
//!
//! `Discover` in pkg/kubelet/cm/cpumanager/topology. A core is identified by its lowest thread number, because the
//! kernel's core numbers repeat in each package.

use crate::types::cpu_set::CpuSet;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Topology {
    /// The online CPUs, by number.
    pub(super) cpus: Vec<Cpu>,
    /// CPUs isolated from the scheduler (`isolcpus`).
    pub(crate) isolated: CpuSet,
    /// The distance of each NUMA node to each, by number; empty where the kernel does not tell them.
    pub(crate) distances: Vec<(u32, Vec<u32>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cpu {
    pub(crate) number: u32,
    pub(crate) node: u32,
    pub(crate) package: u32,
    pub(crate) core: u32,
    /// The lowest CPU that shares the last cache with this one, or that is in the same package if the cache is that of
    /// the whole NUMA node, or unknown.
    pub(crate) cache: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Node,
    Package,
    Cache,
    Core,
}

impl Cpu {
    pub(super) fn at(&self, level: Level) -> u32 {
        match level {
            Level::Node => self.node,
            Level::Package => self.package,
            Level::Cache => self.cache,
            Level::Core => self.core,
        }
    }
}

impl Topology {
    pub(crate) fn all(&self) -> CpuSet {
        self.cpus.iter().map(|cpu| cpu.number).collect()
    }

    pub(crate) fn nodes(&self) -> CpuSet {
        self.groups(Level::Node)
    }

    pub(super) fn groups(&self, level: Level) -> CpuSet {
        self.cpus.iter().map(|cpu| cpu.at(level)).collect()
    }

    /// The CPUs in these groups.
    pub(super) fn within(&self, level: Level, groups: &CpuSet) -> CpuSet {
        self.cpus.iter().filter(|cpu| groups.contains(cpu.at(level))).map(|cpu| cpu.number).collect()
    }

    /// All of these CPUs share a cache.
    pub(super) fn is_of_one_cache(&self, cpus: &CpuSet) -> bool {
        let caches: CpuSet = self.cpus.iter().filter(|cpu| cpus.contains(cpu.number)).map(|cpu| cpu.cache).collect();
        caches.len() == 1
    }

    /// Number of threads per core.
    pub(super) fn cpus_per_core(&self) -> usize {
        (self.cpus.len() / self.groups(Level::Core).len().max(1)).max(1)
    }

    /// `cpus` and the other threads of their cores.
    pub(super) fn whole_cores(&self, cpus: &CpuSet) -> CpuSet {
        let cores = self.cpus.iter().filter(|cpu| cpus.contains(cpu.number)).map(|cpu| cpu.core).collect();
        self.within(Level::Core, &cores)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A machine given by each CPU's node, package and core.
    pub(in crate::kubelet::resource_managers) fn machine(
        cpus: u32,
        location_of: impl Fn(u32) -> (u32, u32, u32),
    ) -> Topology {
        let cpu = |number| {
            let (node, package, core) = location_of(number);
            Cpu { number, node, package, core, cache: package }
        };
        Topology { cpus: (0..cpus).map(cpu).collect(), isolated: CpuSet::EMPTY, distances: Vec::new() }
    }

    pub(in crate::kubelet::resource_managers) fn with_caches(
        topology: Topology,
        cache: impl Fn(u32) -> u32,
    ) -> Topology {
        let cpus = topology.cpus.iter().map(|cpu| Cpu { cache: cache(cpu.number), ..*cpu });
        Topology { cpus: cpus.collect(), ..topology }
    }

    pub(in crate::kubelet::resource_managers) fn board(cpus: u32) -> Topology {
        machine(cpus, |cpu| (0, 0, cpu))
    }

    /// Four cores with two threads each.
    pub(in crate::kubelet::resource_managers) fn single_socket() -> Topology {
        machine(8, |cpu| (0, 0, cpu % 4))
    }

    /// Two packages, each a NUMA node with three cores of two threads.
    pub(in crate::kubelet::resource_managers) fn dual_socket() -> Topology {
        machine(12, |cpu| (cpu % 2, cpu % 2, cpu % 6))
    }

    /// Two packages with two NUMA nodes each; ten cores of two threads per node.
    pub(in crate::kubelet::resource_managers) fn four_nodes() -> Topology {
        machine(80, |cpu| (cpu % 40 / 10, cpu % 40 / 20, cpu % 40))
    }

    /// Two NUMA nodes with two CPUs each.
    pub(in crate::kubelet::resource_managers) fn two_nodes() -> Topology {
        machine(4, |cpu| (cpu / 2, 0, cpu))
    }
}
