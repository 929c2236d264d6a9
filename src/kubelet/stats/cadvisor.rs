//! The response of `/metrics/cadvisor`, with cadvisor's names and labels. Pure.

use super::cadvisor_families::{DISK, FAMILIES, NETWORK};
use super::procfs::{Interface, MemInfo};
use super::snapshot::{Figures, Found, Look, NodeSnapshot, PodSnapshot, Processes};
use crate::kubelet::node::Machine;
use crate::platform::cgroups::{CpuStat, MemoryStat, Usage};
use crate::types::metrics::{Exposition, Kind, Labels, Number};

/// The source of a sample: the machine, a cgroup, a pod or a container.
pub(super) struct Owner<'a> {
    labels: Labels,
    pub(super) figures: &'a Figures,
    pub(super) started_at: Option<i64>,
    pub(super) processes: Option<Processes>,
    layer: Option<Found>,
    interfaces: &'a [Interface],
    /// Only for the whole machine, whose root cgroup has few files.
    machine: Option<&'a MemInfo>,
}

impl Owner<'_> {
    pub(super) fn usage(&self) -> Option<&Usage> {
        self.figures.group_usage.as_deref()
    }

    /// Only for cgroups with a CPU quota.
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

    fn millis(&self) -> Option<i64> {
        Some(self.figures.at.div_euclid(1_000_000))
    }
}

/// The page for a full look.
pub(super) fn cadvisor(look: &Look, machine: &Machine) -> Vec<u8> {
    let owners = owners(look);
    let mut out = Exposition::default();
    out.family(
        "cadvisor_version_info",
        Kind::Gauge,
        "A metric with a constant '1' value labeled by kernel version, OS version, docker version, cadvisor version & \
         cadvisor revision.",
    );
    let version = Labels::of(&[
        ("cadvisorRevision", ""),
        ("cadvisorVersion", ""),
        ("dockerVersion", ""),
        ("kernelVersion", &machine.kernel_version),
        ("osVersion", &machine.os_image),
    ]);
    out.sample(&version, Number::Whole(1));
    of_owners(&mut out, &owners);
    of_disk(&mut out, &look.node, &owners);
    out.family("container_scrape_error", Kind::Gauge, SCRAPE_ERROR);
    out.sample(&Labels::default(), Number::Whole(look.is_partial.into()));
    of_machine(&mut out, &look.node, machine);
    out.into_bytes()
}

fn of_owners(out: &mut Exposition, owners: &[Owner<'_>]) {
    let cpu = "Cumulative cpu time consumed in seconds.";
    out.family("container_cpu_usage_seconds_total", Kind::Counter, cpu);
    for owner in owners {
        if let Some(nanos) = owner.figures.cpu_nanos {
            out.sample_at(&owner.labels, Some(("cpu", "total")), Number::Nanos(nanos), owner.millis());
        }
    }
    for family in &FAMILIES {
        out.family(family.name, family.kind, family.help);
        for owner in owners {
            if let Some(value) = (family.value)(owner) {
                out.sample_at(&owner.labels, None, value, owner.millis().filter(|_| family.timed));
            }
        }
    }
    let failures = "Cumulative count of memory allocation failures.";
    out.family("container_memory_failures_total", Kind::Counter, failures);
    for owner in owners {
        let memory = &owner.figures.memory;
        for (kind, count) in [("pgfault", memory.page_faults), ("pgmajfault", memory.major_page_faults)] {
            let Some(count) = count else { continue };
            // A v2 cgroup includes its descendants.
            for scope in ["container", "hierarchy"] {
                let labels = owner.labels.clone().with("failure_type", kind);
                out.sample_at(&labels, Some(("scope", scope)), Number::Whole(count), owner.millis());
            }
        }
    }
    for family in &NETWORK {
        out.family(family.name, Kind::Counter, family.help);
        for owner in owners {
            for one in owner.interfaces {
                let value = Number::Whole((family.value)(one));
                out.sample_at(&owner.labels, Some(("interface", &one.name)), value, owner.millis());
            }
        }
    }
    let ulimits = "Soft ulimit values for the container root process. Unlimited if -1, except priority and nice";
    out.family("container_ulimits_soft", Kind::Gauge, ulimits);
    for owner in owners {
        if let Some(most) = owner.processes.and_then(|processes| processes.most_files) {
            let ulimit = Some(("ulimit", "max_open_files"));
            out.sample_at(&owner.labels, ulimit, Number::Signed(most), owner.millis());
        }
    }
}

fn of_disk(out: &mut Exposition, node: &NodeSnapshot, owners: &[Owner<'_>]) {
    let usage = "Number of bytes that are consumed by the container on this filesystem.";
    out.family("container_fs_usage_bytes", Kind::Gauge, usage);
    let root = owners.first();
    let found = root.zip(node.disk.as_ref()).zip(node.device.as_ref());
    if let Some(((root, disk), (device, _))) = found {
        out.sample_at(&root.labels, Some(("device", device)), Number::Whole(disk.used), root.millis());
    }
    for owner in owners {
        if let Some(layer) = owner.layer {
            // The runtime reports the size of its layers, but not their device.
            out.sample_at(&owner.labels, Some(("device", "")), Number::Whole(layer.bytes), owner.millis());
        }
    }
    let Some(((root, disk), (device, io))) = found else { return };
    for family in &DISK {
        out.family(family.name, family.kind, family.help);
        out.sample_at(&root.labels, Some(("device", device)), (family.value)(disk, io), root.millis());
    }
}

fn of_machine(out: &mut Exposition, node: &NodeSnapshot, machine: &Machine) {
    let labels = Labels::of(&[
        ("boot_id", &machine.boot_id),
        ("machine_id", &machine.machine_id),
        ("system_uuid", &machine.system_uuid),
    ]);
    let (sockets, cores) = node.sockets_and_cores;
    for (name, help, value) in [
        ("machine_cpu_cores", "Number of logical CPU cores.", node.processors),
        ("machine_cpu_physical_cores", "Number of physical CPU cores.", cores),
        ("machine_cpu_sockets", "Number of CPU sockets.", sockets),
        ("machine_memory_bytes", "Amount of memory installed on the machine.", node.memory.total),
        ("machine_swap_bytes", "Amount of swap memory available on the machine.", node.memory.swap_total),
    ] {
        out.family(name, Kind::Gauge, help);
        out.sample(&labels, Number::Whole(value));
    }
    let error = "1 if there was an error while getting machine metrics, 0 otherwise.";
    out.family("machine_scrape_error", Kind::Gauge, error);
    out.sample(&Labels::default(), Number::Whole(0));
}

/// The machine first, then the cgroups above the pods, the pods and their containers.
fn owners(look: &Look) -> Vec<Owner<'_>> {
    let group = |figures, interfaces, machine| Owner {
        labels: labels(figures, ["", "", "", "", ""]),
        figures,
        started_at: Some(look.node.booted_at),
        processes: None,
        layer: None,
        interfaces,
        machine,
    };
    let node = &look.node;
    let mut owners = vec![group(&node.figures, &node.interfaces, Some(&node.memory))];
    let groups = std::iter::once(&node.pods).chain(&node.classes);
    owners
        .extend(groups.filter(|figures| figures.group != node.figures.group).map(|figures| group(figures, &[], None)));
    look.pods.iter().for_each(|pod| of_pod(pod, &mut owners));
    // Owners without any data are left out.
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

fn labels(figures: &Figures, [container, image, name, namespace, pod]: [&str; 5]) -> Labels {
    Labels::of(&[
        ("container", container),
        ("id", &figures.group),
        ("image", image),
        ("name", name),
        ("namespace", namespace),
        ("pod", pod),
    ])
}

pub(super) fn whole(number: u64) -> Option<Number> {
    Some(Number::Whole(number))
}

pub(super) fn micros(micros: u64) -> Option<Number> {
    Some(Number::Micros(micros))
}

pub(super) fn millis(millis: u64) -> Number {
    Number::Micros(millis.saturating_mul(1000))
}

/// Converts a v2 weight to v1 shares like upstream's runc.
pub(super) fn shares(weight: u64) -> u64 {
    2 + weight.saturating_sub(1).saturating_mul(262_142) / 9999
}

const SCRAPE_ERROR: &str = "1 if there was an error while getting container metrics, 0 otherwise";
