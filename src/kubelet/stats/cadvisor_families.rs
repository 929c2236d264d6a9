//! cadvisor's metric families: names, help texts and values. Pure.

use super::cadvisor_owners::Owner;
use super::snapshot::FileSystem;
use crate::platform::cgroups::DeviceIo;
use crate::platform::host::procfs::{DiskIo, Interface};
use crate::types::metrics::{Kind, Number};

/// A metric of an owner; `None` if the owner has no value.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
    /// Samples have timestamps.
    pub(super) timed: bool,
    pub(super) value: fn(&Owner<'_>) -> Option<Number>,
}

/// A metric of the device with the pods' files.
pub(super) struct DiskFamily {
    /// Of each device that a cgroup uses, if the kernel counts it for cgroups.
    pub(super) of_cgroup: Option<fn(&DeviceIo) -> u64>,
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
    pub(super) value: fn(&FileSystem, &DiskIo) -> Number,
}

/// A counter of a network interface.
pub(super) struct NetworkFamily {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) value: fn(&Interface) -> u64,
}

pub(super) const CADVISOR_FAMILIES: [Family; 39] = [
    Family {
        name: "container_cpu_cfs_burst_periods_total",
        kind: Kind::Counter,
        help: "Number of periods when burst occurs.",
        timed: true,
        value: |owner| whole(owner.cfs()?.nr_bursts),
    },
    Family {
        name: "container_cpu_cfs_burst_seconds_total",
        kind: Kind::Counter,
        help: "Total time duration the container has been bursted.",
        timed: true,
        value: |owner| micros(owner.cfs()?.burst_usec),
    },
    Family {
        name: "container_cpu_cfs_periods_total",
        kind: Kind::Counter,
        help: "Number of elapsed enforcement period intervals.",
        timed: true,
        value: |owner| whole(owner.cfs()?.nr_periods),
    },
    Family {
        name: "container_cpu_cfs_throttled_periods_total",
        kind: Kind::Counter,
        help: "Number of throttled period intervals.",
        timed: true,
        value: |owner| whole(owner.cfs()?.nr_throttled),
    },
    Family {
        name: "container_cpu_cfs_throttled_seconds_total",
        kind: Kind::Counter,
        help: "Total time duration the container has been throttled.",
        timed: true,
        value: |owner| micros(owner.cfs()?.throttled_usec),
    },
    Family {
        name: "container_cpu_system_seconds_total",
        kind: Kind::Counter,
        help: "Cumulative system cpu time consumed in seconds.",
        timed: true,
        value: |owner| owner.figures.system_nanos.map(Number::Nanos),
    },
    Family {
        name: "container_cpu_user_seconds_total",
        kind: Kind::Counter,
        help: "Cumulative user cpu time consumed in seconds.",
        timed: true,
        value: |owner| owner.figures.user_nanos.map(Number::Nanos),
    },
    Family {
        name: "container_file_descriptors",
        kind: Kind::Gauge,
        help: "Number of open file descriptors for the container.",
        timed: true,
        value: |owner| whole(owner.processes?.files),
    },
    Family {
        name: "container_last_seen",
        kind: Kind::Gauge,
        help: "Last time a container was seen by the exporter",
        timed: true,
        value: |owner| Number::Signed(owner.figures.at.div_euclid(1_000_000_000)).into(),
    },
    Family {
        name: "container_memory_cache",
        kind: Kind::Gauge,
        help: "Number of bytes of page cache memory.",
        timed: true,
        value: |owner| whole(owner.memory(|stat| stat.file, |info| info.file)?),
    },
    Family {
        name: "container_memory_events_high_total",
        kind: Kind::Counter,
        help: "Cumulative count of memory.high throttle events for the container",
        timed: true,
        value: |owner| whole(owner.usage()?.memory_throttles?),
    },
    Family {
        name: "container_memory_events_max_total",
        kind: Kind::Counter,
        help: "Cumulative count of memory.max limit hit events for the container",
        timed: true,
        value: |owner| whole(owner.usage()?.memory_hits?),
    },
    Family {
        name: "container_memory_failcnt",
        kind: Kind::Counter,
        help: "Number of memory usage hits limits",
        timed: true,
        value: |owner| whole(owner.usage()?.memory_hits?),
    },
    Family {
        name: "container_memory_kernel_usage",
        kind: Kind::Gauge,
        help: "Size of kernel memory allocated in bytes.",
        timed: true,
        value: |owner| whole(owner.memory(|stat| stat.kernel, |info| info.kernel)?),
    },
    Family {
        name: "container_memory_mapped_file",
        kind: Kind::Gauge,
        help: "Size of memory mapped files in bytes.",
        timed: true,
        value: |owner| whole(owner.memory(|stat| stat.file_mapped, |info| info.mapped)?),
    },
    Family {
        name: "container_memory_max_usage_bytes",
        kind: Kind::Gauge,
        help: "Maximum memory usage recorded in bytes",
        timed: true,
        value: |owner| whole(owner.usage()?.memory_peak?),
    },
    Family {
        name: "container_memory_rss",
        kind: Kind::Gauge,
        help: "Size of RSS in bytes.",
        timed: true,
        value: |owner| owner.figures.memory.rss.map(Number::Whole),
    },
    Family {
        name: "container_memory_swap",
        kind: Kind::Gauge,
        help: "Container swap usage in bytes.",
        timed: true,
        value: |owner| owner.figures.swap_used.map(Number::Whole),
    },
    Family {
        name: "container_memory_total_active_file_bytes",
        kind: Kind::Gauge,
        help: "Current total active file in bytes.",
        timed: true,
        value: |owner| whole(owner.memory(|stat| stat.active_file, |info| info.active_file)?),
    },
    Family {
        name: "container_memory_total_inactive_file_bytes",
        kind: Kind::Gauge,
        help: "Current total inactive file in bytes.",
        timed: true,
        value: |owner| whole(owner.memory(|stat| stat.inactive_file, |info| info.inactive_file)?),
    },
    Family {
        name: "container_memory_usage_bytes",
        kind: Kind::Gauge,
        help: "Current memory usage in bytes, including all memory regardless of when it was accessed",
        timed: true,
        value: |owner| owner.figures.memory.usage.map(Number::Whole),
    },
    Family {
        name: "container_memory_working_set_bytes",
        kind: Kind::Gauge,
        help: "Current working set in bytes.",
        timed: true,
        value: |owner| owner.figures.memory.working_set.map(Number::Whole),
    },
    Family {
        name: "container_oom_events_total",
        kind: Kind::Counter,
        help: "Count of out of memory events observed for the container",
        timed: true,
        value: |owner| whole(owner.usage()?.oom_kills?),
    },
    Family {
        name: "container_pressure_cpu_stalled_seconds_total",
        kind: Kind::Counter,
        help: "Total time duration no tasks in the container could make progress due to CPU congestion.",
        timed: true,
        value: |owner| micros(owner.figures.cpu_pressure.as_ref()?.full.as_ref()?.total_usec),
    },
    Family {
        name: "container_pressure_cpu_waiting_seconds_total",
        kind: Kind::Counter,
        help: "Total time duration tasks in the container have waited due to CPU congestion.",
        timed: true,
        value: |owner| micros(owner.figures.cpu_pressure.as_ref()?.some.total_usec),
    },
    Family {
        name: "container_pressure_io_stalled_seconds_total",
        kind: Kind::Counter,
        help: "Total time duration no tasks in the container could make progress due to IO congestion.",
        timed: true,
        value: |owner| micros(owner.figures.io_pressure.as_ref()?.full.as_ref()?.total_usec),
    },
    Family {
        name: "container_pressure_io_waiting_seconds_total",
        kind: Kind::Counter,
        help: "Total time duration tasks in the container have waited due to IO congestion.",
        timed: true,
        value: |owner| micros(owner.figures.io_pressure.as_ref()?.some.total_usec),
    },
    Family {
        name: "container_pressure_memory_stalled_seconds_total",
        kind: Kind::Counter,
        help: "Total time duration no tasks in the container could make progress due to memory congestion.",
        timed: true,
        value: |owner| micros(owner.figures.memory_pressure.as_ref()?.full.as_ref()?.total_usec),
    },
    Family {
        name: "container_pressure_memory_waiting_seconds_total",
        kind: Kind::Counter,
        help: "Total time duration tasks in the container have waited due to memory congestion.",
        timed: true,
        value: |owner| micros(owner.figures.memory_pressure.as_ref()?.some.total_usec),
    },
    Family {
        name: "container_processes",
        kind: Kind::Gauge,
        help: "Number of processes running inside the container.",
        timed: true,
        value: |owner| whole(owner.processes?.count),
    },
    Family {
        name: "container_spec_cpu_period",
        kind: Kind::Gauge,
        help: "CPU period of the container.",
        timed: false,
        value: |owner| whole(owner.usage()?.cpu_max?.1),
    },
    Family {
        name: "container_spec_cpu_quota",
        kind: Kind::Gauge,
        help: "CPU quota of the container.",
        timed: false,
        value: |owner| whole(owner.usage()?.cpu_max?.0.at()?),
    },
    Family {
        name: "container_spec_cpu_shares",
        kind: Kind::Gauge,
        help: "CPU share of the container.",
        timed: false,
        value: |owner| whole(shares(owner.usage()?.cpu_weight?)),
    },
    Family {
        name: "container_spec_memory_limit_bytes",
        kind: Kind::Gauge,
        help: "Memory limit for the container.",
        timed: false,
        value: |owner| whole(owner.memory_limit()?),
    },
    Family {
        name: "container_spec_memory_reservation_limit_bytes",
        kind: Kind::Gauge,
        help: "Memory reservation limit for the container.",
        timed: false,
        value: |owner| whole(owner.usage()?.memory_low?.at().unwrap_or(0)),
    },
    Family {
        name: "container_spec_memory_swap_limit_bytes",
        kind: Kind::Gauge,
        help: "Memory swap limit for the container.",
        timed: false,
        value: |owner| whole(owner.usage()?.swap_max?.at().unwrap_or(0)),
    },
    Family {
        name: "container_start_time_seconds",
        kind: Kind::Gauge,
        help: "Start time of the container since unix epoch in seconds.",
        timed: false,
        value: |owner| Number::Signed(owner.started_at?.div_euclid(1_000_000_000)).into(),
    },
    Family {
        name: "container_threads",
        kind: Kind::Gauge,
        help: "Number of threads running inside the container",
        timed: true,
        value: |owner| whole(owner.usage()?.pids?),
    },
    Family {
        name: "container_threads_max",
        kind: Kind::Gauge,
        help: "Maximum number of threads allowed inside the container, infinity if value is zero",
        timed: true,
        value: |owner| whole(owner.usage()?.pids_max?.at().unwrap_or(0)),
    },
];

pub(super) const DISK: [DiskFamily; 16] = [
    DiskFamily {
        of_cgroup: None,
        name: "container_fs_inodes_free",
        kind: Kind::Gauge,
        help: "Number of available Inodes",
        value: |disk, _| Number::Whole(disk.inodes_free),
    },
    DiskFamily {
        of_cgroup: None,
        name: "container_fs_inodes_total",
        kind: Kind::Gauge,
        help: "Number of Inodes",
        value: |disk, _| Number::Whole(disk.inodes),
    },
    DiskFamily {
        of_cgroup: None,
        name: "container_fs_io_current",
        kind: Kind::Gauge,
        help: "Number of I/Os currently in progress",
        value: |_, io| Number::Whole(io.under_way),
    },
    DiskFamily {
        of_cgroup: None,
        name: "container_fs_io_time_seconds_total",
        kind: Kind::Counter,
        help: "Cumulative count of seconds spent doing I/Os",
        value: |_, io| millis(io.busy_ms),
    },
    DiskFamily {
        of_cgroup: None,
        name: "container_fs_io_time_weighted_seconds_total",
        kind: Kind::Counter,
        help: "Cumulative weighted I/O time in seconds",
        value: |_, io| millis(io.weighted_ms),
    },
    DiskFamily {
        of_cgroup: None,
        name: "container_fs_limit_bytes",
        kind: Kind::Gauge,
        help: "Number of bytes that can be consumed by the container on this filesystem.",
        value: |disk, _| Number::Whole(disk.capacity),
    },
    DiskFamily {
        of_cgroup: None,
        name: "container_fs_read_seconds_total",
        kind: Kind::Counter,
        help: "Cumulative count of seconds spent reading",
        value: |_, io| millis(io.read_ms),
    },
    DiskFamily {
        of_cgroup: Some(|io| io.read_bytes),
        name: "container_fs_reads_bytes_total",
        kind: Kind::Counter,
        help: "Cumulative count of bytes read",
        value: |_, io| Number::Whole(io.sectors_read.saturating_mul(SECTOR_BYTES)),
    },
    DiskFamily {
        of_cgroup: None,
        name: "container_fs_reads_merged_total",
        kind: Kind::Counter,
        help: "Cumulative count of reads merged",
        value: |_, io| Number::Whole(io.reads_merged),
    },
    DiskFamily {
        of_cgroup: Some(|io| io.reads),
        name: "container_fs_reads_total",
        kind: Kind::Counter,
        help: "Cumulative count of reads completed",
        value: |_, io| Number::Whole(io.reads),
    },
    DiskFamily {
        of_cgroup: None,
        name: "container_fs_sector_reads_total",
        kind: Kind::Counter,
        help: "Cumulative count of sector reads completed",
        value: |_, io| Number::Whole(io.sectors_read),
    },
    DiskFamily {
        of_cgroup: None,
        name: "container_fs_sector_writes_total",
        kind: Kind::Counter,
        help: "Cumulative count of sector writes completed",
        value: |_, io| Number::Whole(io.sectors_written),
    },
    DiskFamily {
        of_cgroup: None,
        name: "container_fs_write_seconds_total",
        kind: Kind::Counter,
        help: "Cumulative count of seconds spent writing",
        value: |_, io| millis(io.write_ms),
    },
    DiskFamily {
        of_cgroup: Some(|io| io.written_bytes),
        name: "container_fs_writes_bytes_total",
        kind: Kind::Counter,
        help: "Cumulative count of bytes written",
        value: |_, io| Number::Whole(io.sectors_written.saturating_mul(SECTOR_BYTES)),
    },
    DiskFamily {
        of_cgroup: None,
        name: "container_fs_writes_merged_total",
        kind: Kind::Counter,
        help: "Cumulative count of writes merged",
        value: |_, io| Number::Whole(io.writes_merged),
    },
    DiskFamily {
        of_cgroup: Some(|io| io.writes),
        name: "container_fs_writes_total",
        kind: Kind::Counter,
        help: "Cumulative count of writes completed",
        value: |_, io| Number::Whole(io.writes),
    },
];

/// The kernel counts sectors of this size for every device.
const SECTOR_BYTES: u64 = 512;

pub(super) const NETWORK: [NetworkFamily; 8] = [
    NetworkFamily {
        name: "container_network_receive_bytes_total",
        help: "Cumulative count of bytes received",
        value: |one| one.received.bytes,
    },
    NetworkFamily {
        name: "container_network_receive_errors_total",
        help: "Cumulative count of errors encountered while receiving",
        value: |one| one.received.errors,
    },
    NetworkFamily {
        name: "container_network_receive_packets_dropped_total",
        help: "Cumulative count of packets dropped while receiving",
        value: |one| one.received.dropped,
    },
    NetworkFamily {
        name: "container_network_receive_packets_total",
        help: "Cumulative count of packets received",
        value: |one| one.received.packets,
    },
    NetworkFamily {
        name: "container_network_transmit_bytes_total",
        help: "Cumulative count of bytes transmitted",
        value: |one| one.sent.bytes,
    },
    NetworkFamily {
        name: "container_network_transmit_errors_total",
        help: "Cumulative count of errors encountered while transmitting",
        value: |one| one.sent.errors,
    },
    NetworkFamily {
        name: "container_network_transmit_packets_dropped_total",
        help: "Cumulative count of packets dropped while transmitting",
        value: |one| one.sent.dropped,
    },
    NetworkFamily {
        name: "container_network_transmit_packets_total",
        help: "Cumulative count of packets transmitted",
        value: |one| one.sent.packets,
    },
];

fn whole(number: u64) -> Option<Number> {
    Some(Number::Whole(number))
}

fn micros(micros: u64) -> Option<Number> {
    Some(Number::Micros(micros))
}

fn millis(millis: u64) -> Number {
    Number::Micros(millis.saturating_mul(1000))
}

/// Converts a v2 weight to v1 shares like upstream's runc.
fn shares(weight: u64) -> u64 {
    2 + weight.saturating_sub(1).saturating_mul(262_142) / 9999
}
