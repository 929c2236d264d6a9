//! Parses procfs files about the machine and its networks. Pure.

/// CPU time since boot in nanoseconds, from `/proc/stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuTimes {
    pub(super) user: u64,
    pub(super) system: u64,
}

/// The fields of `/proc/meminfo` in use, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemInfo {
    pub(crate) total: u64,
    pub(crate) swap_total: u64,
    pub(crate) swap_free: u64,
    pub(crate) anon: u64,
    /// Page cache, shared memory and buffers.
    pub(crate) file: u64,
    pub(crate) active_file: u64,
    pub(crate) inactive_file: u64,
    pub(crate) mapped: u64,
    /// Kernel memory, as far as a cgroup would count it.
    pub(crate) kernel: u64,
}

/// Counters of one interface, from a line of `/proc/PID/net/dev`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) received: Counts,
    pub(crate) sent: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
    pub(crate) errors: u64,
    pub(crate) dropped: u64,
}

/// Counters of a device in `/proc/diskstats`. Times are in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskIo {
    pub(crate) reads: u64,
    pub(crate) reads_merged: u64,
    pub(crate) sectors_read: u64,
    pub(crate) read_ms: u64,
    pub(crate) writes: u64,
    pub(crate) writes_merged: u64,
    pub(crate) sectors_written: u64,
    pub(crate) write_ms: u64,
    pub(crate) under_way: u64,
    pub(crate) busy_ms: u64,
    pub(crate) weighted_ms: u64,
}

impl CpuTimes {
    /// From the first line: user, nice, system, idle, iowait, irq, softirq, steal, in hundredths of a second. Guest
    /// time is included in user; steal time was used by other guests.
    pub(super) fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let [user, nice, system, _idle, _iowait, irq, softirq, ..] = *ticks.as_slice() else { return None };
        let nanos = |ticks: u64| ticks.saturating_mul(NANOS_PER_TICK);
        Some(Self { user: nanos(user.saturating_add(nice)), system: nanos(system + irq + softirq) })
    }
}

impl MemInfo {
    pub(super) fn parse(text: &str) -> Self {
        let mut info = Self::default();
        for line in text.lines() {
            let Some((key, rest)) = line.split_once(':') else { continue };
            let kib = rest.trim().strip_suffix("kB").and_then(|kib| kib.trim().parse::<u64>().ok()).unwrap_or(0);
            let bytes = kib.saturating_mul(1024);
            match key {
                "MemTotal" => info.total = bytes,
                "SwapTotal" => info.swap_total = bytes,
                "SwapFree" => info.swap_free = bytes,
                "AnonPages" => info.anon = bytes,
                "Buffers" | "Cached" => info.file = info.file.saturating_add(bytes),
                "Active(file)" => info.active_file = bytes,
                "Inactive(file)" => info.inactive_file = bytes,
                "Mapped" => info.mapped = bytes,
                "Slab" | "KernelStack" | "PageTables" => info.kernel = info.kernel.saturating_add(bytes),
                _ => {}
            }
        }
        info
    }
}

/// Page faults and major page faults, from `/proc/vmstat`.
pub(super) fn page_faults(vmstat: &str) -> Option<(u64, u64)> {
    let value = |key: &str| {
        vmstat.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')).and_then(|text| text.parse().ok())
    };
    Some((value("pgfault")?, value("pgmajfault")?))
}

/// The interfaces that cadvisor counts: not loopback, and not the host ends of veth pairs, whose traffic is counted
/// in the pods.
pub(super) fn interfaces(net_dev: &str) -> Vec<Interface> {
    let interface = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        let name = name.trim();
        let own = ["lo", "veth", "docker", "nerdctl"].iter().any(|prefix| name.starts_with(prefix));
        let counts: Vec<u64> = counts.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let [bytes, packets, errors, dropped, _, _, _, _, sent, sent_packets, sent_errors, sent_dropped, ..] =
            *counts.as_slice()
        else {
            return None;
        };
        (!own).then(|| Interface {
            name: name.to_owned(),
            received: Counts { bytes, packets, errors, dropped },
            sent: Counts { bytes: sent, packets: sent_packets, errors: sent_errors, dropped: sent_dropped },
        })
    };
    net_dev.lines().skip(2).filter_map(interface).collect()
}

/// The line of the device with these numbers.
pub(super) fn disk_io(diskstats: &str, (major, minor): (u32, u32)) -> Option<DiskIo> {
    diskstats.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let numbers = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        if numbers != (major, minor) {
            return None;
        }
        let counts: Vec<u64> = words.skip(1).map_while(|word| word.parse().ok()).collect();
        let [
            reads,
            reads_merged,
            sectors_read,
            read_ms,
            writes,
            writes_merged,
            sectors_written,
            write_ms,
            under_way,
            busy_ms,
            weighted_ms,
            ..,
        ] = *counts.as_slice()
        else {
            return None;
        };
        Some(DiskIo {
            reads,
            reads_merged,
            sectors_read,
            read_ms,
            writes,
            writes_merged,
            sectors_written,
            write_ms,
            under_way,
            busy_ms,
            weighted_ms,
        })
    })
}

/// The cgroup of a process in `/proc/PID/cgroup`: the v2 cgroup, or that of the v1 memory hierarchy.
pub(super) fn group_of(cgroup: &str) -> Option<&str> {
    let groups = || cgroup.lines().filter_map(|line| line.splitn(3, ':').collect::<Vec<_>>().try_into().ok());
    let named = |wanted: fn(&str) -> bool| {
        groups().find_map(|[_, controllers, group]: [&str; 3]| wanted(controllers).then_some(group))
    };
    let memory = named(|controllers| controllers.split(',').any(|one| one == "memory"));
    memory.or_else(|| named(str::is_empty)).filter(|group| *group != "/")
}

/// The soft limit of open files from `/proc/PID/limits`; -1 if unlimited.
pub(super) fn open_files_limit(limits: &str) -> Option<i64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(-1),
        number => number.parse().ok(),
    }
}

/// Sockets and cores in `/proc/cpuinfo`. Without that information: one socket, one core per CPU.
pub(super) fn sockets_and_cores(cpuinfo: &str) -> (u64, u64) {
    let (mut sockets, mut cores) = (Vec::new(), Vec::new());
    let (mut processors, mut socket) = (0u64, "");
    for (key, value) in cpuinfo.lines().filter_map(|line| line.split_once(':')) {
        match key.trim() {
            "processor" => processors += 1,
            "physical id" => {
                socket = value.trim();
                if !sockets.contains(&socket) {
                    sockets.push(socket);
                }
            }
            "core id" if !cores.contains(&(socket, value.trim())) => cores.push((socket, value.trim())),
            _ => {}
        }
    }
    let count = |len: usize| u64::try_from(len).unwrap_or(u64::MAX);
    (count(sockets.len()).max(1), if cores.is_empty() { processors } else { count(cores.len()) })
}

/// `USER_HZ` is 100 in user space on every architecture.
const NANOS_PER_TICK: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_user_system_and_interrupts() {
        let stat = "cpu  100 20 30 4000 50 6 7 8 9 0\ncpu0 1 1 1 1 1 1 1 1 1 0\n";
        assert_eq!(CpuTimes::parse(stat), Some(CpuTimes { user: 1_200_000_000, system: 430_000_000 }));
        assert_eq!((CpuTimes::parse(""), CpuTimes::parse("cpu  1 2 3\n")), (None, None));
    }

    #[test]
    fn meminfo_is_in_bytes_and_missing_lines_are_zero() {
        let text = "MemTotal: 2000 kB\nBuffers: 1 kB\nCached: 9 kB\nInactive(file):  4 kB\nHugePages_Total: 3\n";
        let info = MemInfo::parse(text);
        assert_eq!((info.total, info.file, info.inactive_file, info.anon), (2_048_000, 10_240, 4096, 0));
        assert_eq!(page_faults("pgfree 1\npgfault 12\npgmajfault 3\n"), Some((12, 3)));
        assert_eq!(page_faults("pgfault 12\n"), None);
    }

    #[test]
    fn loopback_and_veth_interfaces_are_not_counted() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
            lo:     100       1    0    0    0     0          0         0      100       1    0    0    0     0       0          0\n  \
            eth0: 1223017083   32842    1    2    0     0          0         0  1938356   24223    3    4    0     0       0          0\n\
            veth12:  1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n  bad: 1 2\n";
        let all = interfaces(text);
        let [eth0] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!(eth0.name, "eth0");
        assert_eq!(eth0.received, Counts { bytes: 1_223_017_083, packets: 32_842, errors: 1, dropped: 2 });
        assert_eq!(eth0.sent, Counts { bytes: 1_938_356, packets: 24_223, errors: 3, dropped: 4 });
    }

    #[test]
    fn disk_is_found_by_its_numbers() {
        let text = " 254       0 vda 724589 50998 30508682 807 520868 428885 92809136 462 0 89 1296 1 2 3 4\n   \
                    7 0 loop0 1 2 3\n";
        let found = disk_io(text, (254, 0)).unwrap();
        assert_eq!((found.reads, found.sectors_written, found.weighted_ms), (724_589, 92_809_136, 1296));
        assert_eq!((disk_io(text, (254, 1)), disk_io(text, (7, 0))), (None, None));
    }

    #[test]
    fn cgroup_is_found_in_either_version() {
        assert_eq!(group_of("0::/kubepods/pod1/abc\n"), Some("/kubepods/pod1/abc"));
        let hybrid = "12:cpu,cpuacct:/k8s.io/a\n9:memory:/k8s.io/abc\n1:name=systemd:/x\n0::/\n";
        assert_eq!(group_of(hybrid), Some("/k8s.io/abc"));
        assert_eq!((group_of("0::/\n"), group_of("")), (None, None));
    }

    #[test]
    fn limits_and_cpuinfo_are_parsed() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max open files            1024                 4096                 files     \n";
        assert_eq!(open_files_limit(limits), Some(1024));
        assert_eq!(open_files_limit("Max open files   unlimited unlimited files\n"), Some(-1));
        assert_eq!(open_files_limit(""), None);
        let two =
            "processor\t: 0\nphysical id\t: 0\ncore id\t\t: 0\n\nprocessor\t: 1\nphysical id\t: 0\ncore id\t\t: 0\n";
        assert_eq!(sockets_and_cores(two), (1, 1));
        assert_eq!(sockets_and_cores("processor : 0\nprocessor : 1\n"), (1, 2));
    }
}
