//! The response of `/metrics/cadvisor`, with cadvisor's names and labels. Pure.

use super::cadvisor_families::{CADVISOR_FAMILIES, DISK, NETWORK};
use super::cadvisor_owners::{Owner, owners};
use super::snapshot::{NodeSnapshot, Snapshot};
use crate::kubelet::node::Machine;
use crate::platform::cgroups::DeviceIo;
use crate::types::metrics::{Exposition, Kind, Labels, Number};

/// The page for a snapshot with all statistics.
pub(super) fn cadvisor(snapshot: &Snapshot, machine: &Machine) -> Vec<u8> {
    let owners = owners(snapshot);
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
    of_block_devices(&mut out, &snapshot.node, &owners);
    of_disk(&mut out, &snapshot.node, &owners);
    out.family("container_scrape_error", Kind::Gauge, SCRAPE_ERROR);
    out.sample(&Labels::default(), Number::Whole(snapshot.is_partial.into()));
    of_machine(&mut out, &snapshot.node, machine);
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
    for family in &CADVISOR_FAMILIES {
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
            for interface in owner.interfaces {
                let value = Number::Whole((family.value)(interface));
                out.sample_at(&owner.labels, Some(("interface", &interface.name)), value, owner.millis());
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

/// cadvisor reads no more of `io.stat` for this family.
fn of_block_devices(out: &mut Exposition, node: &NodeSnapshot, owners: &[Owner<'_>]) {
    out.family("container_blkio_device_usage_total", Kind::Counter, "Blkio Device bytes usage");
    for owner in owners {
        for io in devices(owner) {
            let (major, minor) = io.device;
            let labels = owner
                .labels
                .clone()
                .with("device", &device_path(node, io))
                .with("major", &major.to_string())
                .with("minor", &minor.to_string());
            for (operation, bytes) in [("Read", io.read_bytes), ("Write", io.written_bytes)] {
                out.sample_at(&labels, Some(("operation", operation)), Number::Whole(bytes), owner.millis());
            }
        }
    }
}

fn of_disk(out: &mut Exposition, node: &NodeSnapshot, owners: &[Owner<'_>]) {
    let usage = "Number of bytes that are consumed by the container on this filesystem.";
    out.family("container_fs_usage_bytes", Kind::Gauge, usage);
    let root = owners.first();
    let root_file_system = root.zip(node.disk.as_ref()).zip(node.device.as_ref());
    if let Some(((root, disk), (device, _))) = root_file_system {
        out.sample_at(&root.labels, Some(("device", device)), Number::Whole(disk.used), root.millis());
    }
    for owner in owners {
        if let Some(layer) = owner.layer {
            // The runtime reports the size of its layers, but not their device.
            out.sample_at(&owner.labels, Some(("device", "")), Number::Whole(layer.bytes), owner.millis());
        }
    }
    for family in DISK.iter().filter(|family| root_file_system.is_some() || family.of_cgroup.is_some()) {
        out.family(family.name, family.kind, family.help);
        if let Some(((root, disk), (device, io))) = root_file_system {
            out.sample_at(&root.labels, Some(("device", device)), (family.value)(disk, io), root.millis());
        }
        let Some(value) = family.of_cgroup else { continue };
        for owner in owners.iter().filter(|owner| !owner.is_machine()) {
            of_devices(out, node, owner, value);
        }
    }
}

fn of_devices(out: &mut Exposition, node: &NodeSnapshot, owner: &Owner<'_>, value: fn(&DeviceIo) -> u64) {
    for io in devices(owner) {
        let device = device_path(node, io);
        out.sample_at(&owner.labels, Some(("device", &device)), Number::Whole(value(io)), owner.millis());
    }
}

fn devices<'a>(owner: &'a Owner<'_>) -> &'a [DeviceIo] {
    owner.usage().map(|usage| usage.io.as_slice()).unwrap_or_default()
}

/// A device that is gone has no name.
fn device_path(node: &NodeSnapshot, io: &DeviceIo) -> String {
    node.device_names.get(&io.device).map(|name| ["/dev/", name].concat()).unwrap_or_default()
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

const SCRAPE_ERROR: &str = "1 if there was an error while getting container metrics, 0 otherwise";
