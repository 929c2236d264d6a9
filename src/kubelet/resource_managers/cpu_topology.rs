//! Which processors there are, and how they lie: threads in cores, cores in packages, all of them in NUMA nodes. Pure.
//!
//! `Discover` in pkg/kubelet/cm/cpumanager/topology. A core is known by the lowest number of its threads, as the kernel's
//! own numbers of cores repeat from package to package.

use crate::types::cpu_set::CpuSet;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Topology {
    /// Those that are online, by their numbers.
    pub(super) cpus: Vec<Cpu>,
    /// Those that the kernel leaves alone (`isolcpus`).
    pub(crate) isolated: CpuSet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cpu {
    pub(crate) number: u32,
    pub(crate) node: u32,
    pub(crate) package: u32,
    pub(crate) core: u32,
}

/// What processors are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Node,
    Package,
    Core,
}

impl Cpu {
    pub(super) fn at(&self, level: Level) -> u32 {
        match level {
            Level::Node => self.node,
            Level::Package => self.package,
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

    /// All nodes, packages or cores.
    pub(super) fn groups(&self, level: Level) -> CpuSet {
        self.cpus.iter().map(|cpu| cpu.at(level)).collect()
    }

    /// The processors of these groups.
    pub(super) fn within(&self, level: Level, groups: &CpuSet) -> CpuSet {
        self.cpus.iter().filter(|cpu| groups.contains(cpu.at(level))).map(|cpu| cpu.number).collect()
    }

    /// As many as a core has threads.
    pub(super) fn cpus_per_core(&self) -> usize {
        (self.cpus.len() / self.groups(Level::Core).len().max(1)).max(1)
    }

    /// These, and the other threads of their cores.
    pub(super) fn whole_cores(&self, cpus: &CpuSet) -> CpuSet {
        let cores = self.cpus.iter().filter(|cpu| cpus.contains(cpu.number)).map(|cpu| cpu.core).collect();
        self.within(Level::Core, &cores)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A machine by what each of its processors is in: node, package, core.
    pub(in crate::kubelet::resource_managers) fn machine(
        cpus: u32,
        place: impl Fn(u32) -> (u32, u32, u32),
    ) -> Topology {
        let cpu = |number| {
            let (node, package, core) = place(number);
            Cpu { number, node, package, core }
        };
        Topology { cpus: (0..cpus).map(cpu).collect(), isolated: CpuSet::EMPTY }
    }

    pub(in crate::kubelet::resource_managers) fn board(cpus: u32) -> Topology {
        machine(cpus, |cpu| (0, 0, cpu))
    }

    /// Four cores of two threads.
    pub(in crate::kubelet::resource_managers) fn single_socket() -> Topology {
        machine(8, |cpu| (0, 0, cpu % 4))
    }

    /// Two packages, each a node of three cores of two threads.
    pub(in crate::kubelet::resource_managers) fn dual_socket() -> Topology {
        machine(12, |cpu| (cpu % 2, cpu % 2, cpu % 6))
    }

    /// Two packages of two nodes with ten cores of two threads each.
    pub(in crate::kubelet::resource_managers) fn four_nodes() -> Topology {
        machine(80, |cpu| (cpu % 40 / 10, cpu % 40 / 20, cpu % 40))
    }

    /// Two nodes of two processors.
    pub(in crate::kubelet::resource_managers) fn two_nodes() -> Topology {
        machine(4, |cpu| (cpu / 2, 0, cpu))
    }
}
