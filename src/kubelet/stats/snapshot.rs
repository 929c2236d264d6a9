//! The statistics of the node and its pods at one time: plain data.
//!
//! Times are nanoseconds since 1970 by the wall clock; unknown values are `None`.

use std::path::PathBuf;

use crate::platform::cgroups::Usage;
use crate::platform::host::procfs::{DiskIo, Interface, MemInfo, Pressure};
use crate::types::sorted::SortedMap;

pub(crate) use crate::platform::host::disk_usage::DiskUsage;
pub(crate) use crate::platform::host::file_system::FileSystem;

/// All statistics.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) at: i64,
    pub(crate) node: NodeSnapshot,
    pub(crate) pods: Vec<PodSnapshot>,
    /// Some of them could not be read.
    pub(crate) is_partial: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct NodeSnapshot {
    pub(crate) name: String,
    pub(crate) booted_at: i64,
    pub(crate) figures: UsageStats,
    /// The `kubepods` cgroup, or the node's figures if pods have no cgroups.
    pub(crate) pods: UsageStats,
    /// The other system containers.
    pub(crate) system: Vec<SystemContainer>,
    /// The cgroups of the QoS classes; only with all statistics.
    pub(crate) classes: Vec<UsageStats>,
    pub(crate) memory: MemInfo,
    pub(crate) interfaces: Vec<Interface>,
    /// The interface of the default route.
    pub(crate) main_interface: String,
    /// The file system with the pods' files; its device only with all statistics.
    pub(crate) disk: Option<FileSystem>,
    pub(crate) device: Option<(String, DiskIo)>,
    /// Names of block devices by their numbers; only with all statistics.
    pub(crate) device_names: SortedMap<(u32, u32), String>,
    /// The file system of the runtime's images and its usage by them.
    pub(crate) images: Option<(FileSystem, DiskUsage)>,
    pub(crate) layers: Option<(FileSystem, DiskUsage)>,
    /// Number of processes and threads, and its limit.
    pub(crate) tasks: Option<(u64, u64)>,
    pub(crate) processors: u64,
    pub(crate) sockets_and_cores: (u64, u64),
}

/// A cgroup of the node's services.
#[derive(Clone, Debug, Default)]
pub(crate) struct SystemContainer {
    /// Upstream's name: `kubelet`, `runtime` or `misc`.
    pub(crate) name: &'static str,
    /// `None`: as long as the node.
    pub(crate) started_at: Option<i64>,
    pub(crate) figures: UsageStats,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct PodSnapshot {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) started_at: Option<i64>,
    /// `None` if pods have no cgroups of their own.
    pub(crate) group: Option<String>,
    pub(crate) sandbox_id: String,
    /// A process in the pod's network namespace; `None` for host-network pods.
    pub(crate) network_pid: Option<u32>,
    pub(crate) own_files: [PathBuf; 2],
    pub(crate) figures: UsageStats,
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) processes: Option<u64>,
    /// The pod's files outside of volumes.
    pub(crate) pod_files: DiskUsage,
    pub(crate) volumes: Vec<VolumeSnapshot>,
    pub(crate) containers: Vec<ContainerSnapshot>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ContainerSnapshot {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) started_at: i64,
    pub(crate) pid: Option<u32>,
    pub(crate) logs_directory: PathBuf,
    pub(crate) figures: UsageStats,
    /// The writable layer.
    pub(crate) layer: Option<DiskUsage>,
    pub(crate) logs: Option<DiskUsage>,
    /// Only with all statistics.
    pub(crate) processes: Option<Processes>,
}

/// Open files of a container's processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Processes {
    pub(crate) count: u64,
    pub(crate) files: u64,
    /// Limit of open files of the first process; -1 if unlimited.
    pub(crate) most_files: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VolumeSnapshot {
    pub(crate) at: i64,
    pub(crate) name: String,
    /// Name of the claim.
    pub(crate) claim: Option<String>,
    /// A tmpfs or a remote volume, which does not count for the node's disk.
    pub(crate) is_elsewhere: bool,
    pub(crate) disk: FileSystem,
    pub(crate) used: DiskUsage,
}

/// Usage of the node, a cgroup, a pod or a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsageStats {
    pub(crate) at: i64,
    /// The cgroup; empty if unknown.
    pub(crate) group: String,
    pub(crate) cpu_nanos: Option<u64>,
    pub(crate) user_nanos: Option<u64>,
    pub(crate) system_nanos: Option<u64>,
    pub(crate) nano_cores: Option<u64>,
    pub(crate) memory: Memory,
    pub(crate) swap_used: Option<u64>,
    pub(crate) swap_available: Option<u64>,
    pub(crate) cpu_pressure: Option<Pressure>,
    pub(crate) memory_pressure: Option<Pressure>,
    pub(crate) io_pressure: Option<Pressure>,
    /// All of the cgroup's statistics; only with all statistics.
    pub(crate) group_usage: Option<Box<Usage>>,
}

/// In bytes, except for the page faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Memory available below the limit, if there is one.
    pub(crate) available: Option<u64>,
    pub(crate) usage: Option<u64>,
    pub(crate) working_set: Option<u64>,
    pub(crate) rss: Option<u64>,
    pub(crate) page_faults: Option<u64>,
    pub(crate) major_page_faults: Option<u64>,
}

impl UsageStats {
    /// From a cgroup's files. `swap_free`: the machine's free swap; `None` without swap.
    pub(crate) fn of_group(group: &str, usage: Usage, at: i64, swap_free: Option<u64>) -> Self {
        let nanos = |micros: u64| micros.saturating_mul(1000);
        let memory = usage.memory.as_ref();
        let working_set = usage.working_set();
        let bound = usage.memory_max.and_then(|bound| bound.at());
        let (swap_used, swap_available) = match swap_free {
            // A kernel may report swap usage on a machine without swap.
            None => (Some(0), Some(0)),
            Some(free) => {
                let swap_left = usage.swap_max.and_then(|bound| bound.at()).zip(usage.swap_current);
                let swap_left = swap_left.map_or(free, |(most, used)| most.saturating_sub(used).min(free));
                (usage.swap_current, usage.swap_current.map(|_| swap_left))
            }
        };
        Self {
            at,
            group: group.to_owned(),
            cpu_nanos: usage.cpu.as_ref().map(|cpu| nanos(cpu.usage_usec)),
            user_nanos: usage.cpu.as_ref().map(|cpu| nanos(cpu.user_usec)),
            system_nanos: usage.cpu.as_ref().map(|cpu| nanos(cpu.system_usec)),
            nano_cores: None,
            memory: Memory {
                available: bound.zip(working_set).map(|(bound, used)| bound.saturating_sub(used)),
                usage: usage.memory_current,
                working_set,
                rss: memory.map(|memory| memory.anon),
                page_faults: memory.map(|memory| memory.pgfault),
                major_page_faults: memory.map(|memory| memory.pgmajfault),
            },
            swap_used,
            swap_available,
            cpu_pressure: usage.cpu_pressure.clone(),
            memory_pressure: usage.memory_pressure.clone(),
            io_pressure: usage.io_pressure.clone(),
            group_usage: Some(Box::new(usage)),
        }
    }

    /// The sum of the containers of a pod without a cgroup. A value unknown for one container is unknown.
    pub(crate) fn sum<'a>(of: impl Iterator<Item = &'a Self> + Clone, at: i64) -> Self {
        let add = |value: fn(&Self) -> Option<u64>| {
            of.clone().try_fold(0u64, |sum, figures| Some(sum.saturating_add(value(figures)?)))
        };
        Self {
            at,
            cpu_nanos: add(|figures| figures.cpu_nanos),
            memory: Memory {
                available: add(|figures| figures.memory.available),
                usage: add(|figures| figures.memory.usage),
                working_set: add(|figures| figures.memory.working_set),
                rss: add(|figures| figures.memory.rss),
                page_faults: add(|figures| figures.memory.page_faults),
                major_page_faults: add(|figures| figures.memory.major_page_faults),
            },
            swap_used: add(|figures| figures.swap_used),
            swap_available: add(|figures| figures.swap_available),
            ..Self::default()
        }
    }
}

impl PodSnapshot {
    /// Disk usage of the pod: writable layers, logs, local volumes and its own files.
    pub(crate) fn storage(&self) -> DiskUsage {
        let containers = self.containers.iter().flat_map(|container| [container.layer, container.logs]).flatten();
        let volumes = self.volumes.iter().filter(|volume| !volume.is_elsewhere).map(|volume| volume.used);
        containers.chain(volumes).fold(self.pod_files, |sum, usage| DiskUsage {
            bytes: sum.bytes.saturating_add(usage.bytes),
            inodes: sum.inodes.saturating_add(usage.inodes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::cgroups::Bound;

    #[test]
    fn machine_without_swap_has_zero_swap_usage() {
        let usage = |max| Usage { swap_current: Some(30), swap_max: max, ..Usage::default() };
        let swap = |usage, free| {
            let figures = UsageStats::of_group("/a", usage, 1, free);
            (figures.swap_used, figures.swap_available)
        };
        assert_eq!(swap(usage(Some(Bound::None)), None), (Some(0), Some(0)));
        assert_eq!(swap(usage(Some(Bound::None)), Some(500)), (Some(30), Some(500)));
        assert_eq!(swap(usage(Some(Bound::At(100))), Some(500)), (Some(30), Some(70)));
        assert_eq!(swap(usage(Some(Bound::At(0))), Some(500)), (Some(30), Some(0)));
        assert_eq!(swap(Usage::default(), Some(500)), (None, None));
    }

    #[test]
    fn pod_without_a_cgroup_has_the_sum_of_its_containers() {
        let one = |cpu, available| UsageStats {
            cpu_nanos: Some(cpu),
            memory: Memory { available, usage: Some(1), ..Memory::default() },
            ..UsageStats::default()
        };
        let sum = UsageStats::sum([one(1, Some(5)), one(2, None)].iter(), 9);
        assert_eq!((sum.at, sum.cpu_nanos, sum.memory.usage, sum.memory.available), (9, Some(3), Some(2), None));
    }
}
