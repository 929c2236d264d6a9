//! The sources of samples on `/metrics/cadvisor`: the machine, its cgroups, pods and containers. Pure.

use super::snapshot::{DiskUsage, PodSnapshot, Processes, Snapshot, UsageStats};
use crate::platform::cgroups::{CpuStat, MemoryStat, Usage};
use crate::platform::host::procfs::{Interface, MemInfo};
use crate::types::metrics::Labels;

/// The machine, a cgroup, a pod or a container, with its labels and figures.
pub(super) struct Owner<'a> {
    pub(super) labels: Labels,
    pub(super) figures: &'a UsageStats,
    pub(super) started_at: Option<i64>,
    pub(super) processes: Option<Processes>,
    pub(super) layer: Option<DiskUsage>,
    pub(super) interfaces: &'a [Interface],
    /// Only for the whole machine, whose root cgroup has few files.
    machine: Option<&'a MemInfo>,
}

impl Owner<'_> {
    pub(super) fn usage(&self) -> Option<&Usage> {
        self.figures.group_usage.as_deref()
    }

    /// `None` for a cgroup without a quota.
    pub(super) fn cfs(&self) -> Option<&CpuStat> {
        let usage = self.usage()?;
        usage.cpu_max?.0.at()?;
        usage.cpu.as_ref()
    }

    pub(super) fn memory(&self, of_group: fn(&MemoryStat) -> u64, of_machine: fn(&MemInfo) -> u64) -> Option<u64> {
        let stat = self.usage().and_then(|usage| usage.memory.as_ref());
        stat.map(of_group).or_else(|| self.machine.map(of_machine))
    }

    /// 0 without a limit.
    pub(super) fn memory_limit(&self) -> Option<u64> {
        match self.machine {
            Some(machine) => Some(machine.total),
            None => Some(self.usage()?.memory_max?.at().unwrap_or(0)),
        }
    }

    pub(super) fn is_machine(&self) -> bool {
        self.machine.is_some()
    }

    /// Timestamp of its figures in milliseconds.
    pub(super) fn millis(&self) -> Option<i64> {
        Some(self.figures.at.div_euclid(1_000_000))
    }
}

/// The machine first, then the cgroups above the pods, the pods and their containers.
pub(super) fn owners(snapshot: &Snapshot) -> Vec<Owner<'_>> {
    let group = |figures, interfaces, machine| Owner {
        labels: labels(figures, ["", "", "", "", ""]),
        figures,
        started_at: Some(snapshot.node.booted_at),
        processes: None,
        layer: None,
        interfaces,
        machine,
    };
    let node = &snapshot.node;
    let mut owners = vec![group(&node.figures, &node.interfaces, Some(&node.memory))];
    let groups = std::iter::once(&node.pods).chain(&node.classes);
    owners
        .extend(groups.filter(|figures| figures.group != node.figures.group).map(|figures| group(figures, &[], None)));
    snapshot.pods.iter().for_each(|pod| of_pod(pod, &mut owners));
    // Owners without figures are left out.
    owners.retain(|owner| owner.figures.at != 0);
    owners
}

fn of_pod<'a>(pod: &'a PodSnapshot, owners: &mut Vec<Owner<'a>>) {
    owners.push(Owner {
        labels: labels(&pod.figures, ["", "", "", &pod.namespace, &pod.name]),
        figures: &pod.figures,
        started_at: pod.started_at,
        processes: None,
        layer: None,
        interfaces: &pod.interfaces,
        machine: None,
    });
    owners.extend(pod.containers.iter().map(|container| Owner {
        labels: labels(
            &container.figures,
            [&container.name, &container.image, &container.id, &pod.namespace, &pod.name],
        ),
        figures: &container.figures,
        started_at: Some(container.started_at),
        processes: container.processes,
        layer: container.layer,
        interfaces: &[],
        machine: None,
    }));
}

fn labels(figures: &UsageStats, [container, image, name, namespace, pod]: [&str; 5]) -> Labels {
    Labels::of(&[
        ("container", container),
        ("id", &figures.group),
        ("image", image),
        ("name", name),
        ("namespace", namespace),
        ("pod", pod),
    ])
}
