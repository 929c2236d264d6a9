//! The machine's memory, CPUs, cgroups and addresses. Read once, without DNS lookups.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use crate::platform::host::file_system;
use crate::types::api::{CPU, EPHEMERAL_STORAGE, Format, HUGE_PAGES_PREFIX, MEMORY, Quantity, ResourceList};

/// A fact that could not be read is empty, zero or false.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) memory_bytes: u64,
    pub(crate) cpus: u32,
    /// Each huge page size, ascending, and the total reserved in pages of that size; both in bytes.
    pub(crate) huge_pages: Vec<(u64, u64)>,
    /// Size of the file system of the root directory.
    pub(crate) storage_bytes: u64,
    /// Maximum number of processes and threads.
    pub(crate) pid_max: u64,
    pub(crate) swap_bytes: u64,
    /// cgroup v2 is mounted with the memory controller.
    pub(crate) cgroup_v2: bool,
    /// The kernel limits swap by cgroup.
    pub(crate) swap_limits: bool,
    /// The kernel limits huge pages by cgroup; kernels of boards often cannot.
    pub(crate) huge_page_limits: bool,
    /// `/sys/devices/system/cpu/cpu<n>/thermal_throttle` of the CPUs that have it.
    pub(crate) thermal_paths: Vec<String>,
    /// Addresses of the default route's interface: IPv4 first, one per family.
    pub(crate) addresses: Vec<IpAddr>,
}

impl Facts {
    /// Reads `proc` and `sys` below `root`, and the addresses in the process's network namespace.
    pub(crate) fn read(root: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let controllers = text("sys/fs/cgroup/cgroup.controllers");
        let v2 = cgroup_v2(&controllers);
        let hugetlb = |controllers: &str| controllers.split_whitespace().any(|controller| controller == "hugetlb");
        let swap_file = if v2 {
            // The root cgroup has no such file, so the process's own cgroup is read.
            let group = own_cgroup(&text("proc/self/cgroup")).to_owned();
            format!("sys/fs/cgroup/{}/memory.swap.max", group.trim_matches('/'))
        } else {
            "sys/fs/cgroup/memory/memory.memsw.limit_in_bytes".to_owned()
        };
        let cpus = cpu_count(&text("sys/devices/system/cpu/online"));
        Self {
            memory_bytes: meminfo(&text("proc/meminfo"), "MemTotal:"),
            cpus,
            huge_pages: huge_pages(&root.join("sys/kernel/mm/hugepages")),
            storage_bytes: 0,
            pid_max: pid_max(&text),
            swap_bytes: meminfo(&text("proc/meminfo"), "SwapTotal:"),
            cgroup_v2: v2,
            swap_limits: root.join(swap_file).exists(),
            huge_page_limits: if v2 { hugetlb(&controllers) } else { root.join("sys/fs/cgroup/hugetlb").is_dir() },
            thermal_paths: thermal_paths(root, cpus),
            addresses: addresses(&text("proc/net/route"), &text("proc/net/ipv6_route")),
        }
    }

    /// The huge page sizes that the kernel can limit by cgroup.
    pub(crate) fn limited_huge_pages(&self) -> Vec<u64> {
        self.huge_pages.iter().filter(|_| self.huge_page_limits).map(|(size, _)| *size).collect()
    }

    /// The current addresses, which may change at any time after the start.
    pub(crate) fn read_addresses() -> Vec<IpAddr> {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        addresses(&text("/proc/net/route"), &text("/proc/net/ipv6_route"))
    }

    /// Reads the file system of `root_dir`, or of its nearest existing parent.
    pub(crate) fn read_storage(&mut self, root_dir: &Path) {
        let room = root_dir.ancestors().find_map(|path| file_system::room(path).ok());
        self.storage_bytes = room.map_or(0, |room| room.capacity);
    }

    /// Node capacity. An unknown file system has no entry.
    pub(crate) fn capacity(&self) -> ResourceList {
        let cpu = Quantity::new(i64::from(self.cpus), Format::DecimalSi);
        let mut list: ResourceList = [(CPU, cpu), (MEMORY, bytes(self.memory_bytes))].into_iter().collect();
        if self.storage_bytes > 0 {
            list.insert(EPHEMERAL_STORAGE, bytes(self.storage_bytes));
        }
        for (size, all) in &self.huge_pages {
            list.insert(&format!("{HUGE_PAGES_PREFIX}{}", bytes(*size)), bytes(*all));
        }
        list
    }

    /// Allocatable resources: capacity minus reservations, with huge pages subtracted from memory.
    pub(crate) fn allocatable(&self, kept: &[&ResourceList]) -> ResourceList {
        let mut list = self.capacity();
        let huge = self.huge_pages.iter().fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        for name in [CPU, MEMORY, EPHEMERAL_STORAGE] {
            let Some(all) = list.get_mut(name) else { continue };
            let format = all.format();
            let huge = if name == MEMORY { bytes(huge) } else { Quantity::ZERO };
            let kept = kept.iter().filter_map(|list| list.get(name));
            let left = kept.fold(all.minus(huge), |left, kept| left.minus(*kept));
            *all = if left.is_negative() { Quantity::new(0, format) } else { left };
        }
        list
    }
}

fn bytes(bytes: u64) -> Quantity {
    Quantity::new(i64::try_from(bytes).unwrap_or(i64::MAX), Format::BinarySi)
}

/// A value of `/proc/meminfo` in bytes.
fn meminfo(text: &str, key: &str) -> u64 {
    let total = text.lines().find_map(|line| line.strip_prefix(key));
    let kib = total.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

/// Number of CPUs in a list such as `0-3,8`.
fn cpu_count(online: &str) -> u32 {
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.parse::<u32>().ok()?.checked_sub(first.parse().ok()?)? + 1)
    };
    online.trim().split(',').filter_map(count).sum()
}

/// Reads a directory with entries such as `hugepages-2048kB`.
fn huge_pages(directory: &Path) -> Vec<(u64, u64)> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let size = |name: &str| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok();
    let mut pages: Vec<(u64, u64)> = entries
        .flatten()
        .filter_map(|entry| {
            let size = size(entry.file_name().to_str()?)?.saturating_mul(1024);
            let count = fs::read_to_string(entry.path().join("nr_hugepages")).unwrap_or_default();
            Some((size, size.saturating_mul(count.trim().parse().unwrap_or(0))))
        })
        .collect();
    pages.sort_unstable();
    pages
}

/// The smaller of `pid_max` and `threads-max`; 0 if neither can be read.
fn pid_max(text: &dyn Fn(&str) -> String) -> u64 {
    let bounds = ["proc/sys/kernel/pid_max", "proc/sys/kernel/threads-max"];
    bounds.iter().filter_map(|path| text(path).trim().parse().ok()).min().unwrap_or(0)
}

fn thermal_paths(root: &Path, cpus: u32) -> Vec<String> {
    let paths = (0..cpus).map(|cpu| format!("/sys/devices/system/cpu/cpu{cpu}/thermal_throttle"));
    paths.filter(|path| root.join(path.trim_start_matches('/')).exists()).collect()
}

fn cgroup_v2(controllers: &str) -> bool {
    controllers.split_whitespace().any(|controller| controller == "memory")
}

/// The v2 cgroup in `/proc/self/cgroup`.
fn own_cgroup(text: &str) -> &str {
    text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default()
}

fn addresses(route: &str, ipv6_route: &str) -> Vec<IpAddr> {
    let interfaces = (default_interface(route), default_ipv6_interface(ipv6_route));
    let Ok(all) = nix::ifaddrs::getifaddrs() else { return Vec::new() };
    let (mut v4, mut v6) = (None, None);
    for interface in all {
        let Some(address) = interface.address else { continue };
        let name = Some(interface.interface_name.as_str());
        if let (Some(address), true) = (address.as_sockaddr_in(), name == interfaces.0) {
            v4.get_or_insert(IpAddr::V4(address.ip()));
        }
        if let (Some(address), true) = (address.as_sockaddr_in6(), name == interfaces.1) {
            // Link-local addresses are useless without their interface.
            if !address.ip().is_unicast_link_local() {
                v6.get_or_insert(IpAddr::V6(address.ip()));
            }
        }
    }
    v4.into_iter().chain(v6).collect()
}

/// The interface of the default route with the lowest metric in `/proc/net/route`.
pub(crate) fn default_interface(route: &str) -> Option<&str> {
    let defaults = route.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [name, "00000000", _, flags, _, _, metric, "00000000", ..] = fields.as_slice() else { return None };
        Some((is_up(flags)?, metric.parse::<u32>().ok()?, *name))
    });
    defaults.filter(|(up, ..)| *up).min_by_key(|(_, metric, _)| *metric).map(|(.., name)| name)
}

/// The same for `/proc/net/ipv6_route`. The kernel lists its unreachable default routes there, on `lo`.
fn default_ipv6_interface(route: &str) -> Option<&str> {
    let defaults = route.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [to, "00", _, _, _, metric, _, _, flags, name] = fields.as_slice() else { return None };
        let any = to.bytes().all(|digit| digit == b'0') && *name != "lo";
        Some((any && is_up(flags)?, u32::from_str_radix(metric, 16).ok()?, *name))
    });
    defaults.filter(|(up, ..)| *up).min_by_key(|(_, metric, _)| *metric).map(|(.., name)| name)
}

/// Whether the route's flags have `RTF_UP`.
fn is_up(flags: &str) -> Option<bool> {
    Some(u32::from_str_radix(flags, 16).ok()? & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_below_the_given_root() {
        let root = std::env::temp_dir().join(format!("coracle-facts-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/meminfo", "MemTotal:        1012004 kB\nMemFree:          100 kB\nSwapTotal:       1024 kB\n");
        write("proc/self/cgroup", "0::/system.slice/coracle.service\n");
        write("sys/devices/system/cpu/online", "0-2,7\n");
        write("sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "0\n");
        write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory hugetlb pids\n");
        write("sys/fs/cgroup/system.slice/coracle.service/memory.swap.max", "max\n");
        write("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0\n");
        write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "3\n");
        write("proc/sys/kernel/pid_max", "4194304\n");
        write("proc/sys/kernel/threads-max", "7000\n");
        let facts = Facts::read(&root);
        fs::remove_dir_all(&root).unwrap();
        let expected = Facts {
            memory_bytes: 1_012_004 << 10,
            cpus: 4,
            huge_pages: vec![(2 << 20, 6 << 20), (1 << 30, 0)],
            storage_bytes: 0,
            pid_max: 7000,
            swap_bytes: 1 << 20,
            cgroup_v2: true,
            swap_limits: true,
            huge_page_limits: true,
            thermal_paths: vec!["/sys/devices/system/cpu/cpu1/thermal_throttle".to_owned()],
            addresses: Vec::new(),
        };
        assert_eq!(facts, expected);
        assert_eq!(facts.limited_huge_pages(), [2 << 20, 1 << 30]);
        assert!(Facts { huge_page_limits: false, ..facts }.limited_huge_pages().is_empty());
    }

    #[test]
    fn allocatable_is_capacity_minus_reserved_and_not_negative() {
        let facts = Facts { memory_bytes: 1 << 30, cpus: 2, huge_pages: vec![(2 << 20, 1 << 29)], ..Facts::default() };
        let list = |cpu: &str, memory: &str| {
            [(CPU, cpu.parse().unwrap()), (MEMORY, memory.parse().unwrap())].into_iter().collect::<ResourceList>()
        };
        let shown = |kept: &[&ResourceList]| {
            let left = facts.allocatable(kept);
            [CPU, MEMORY].map(|name| left.get(name).unwrap().to_string())
        };
        assert_eq!(shown(&[]), ["2", "512Mi"]);
        assert_eq!(shown(&[&list("250m", "64Mi"), &list("250m", "64Mi")]), ["1500m", "384Mi"]);
        assert_eq!(shown(&[&list("3", "1Gi")]), ["0", "0"]);
    }

    #[test]
    fn allocatable_has_storage_and_huge_pages() {
        let mut facts = Facts { huge_pages: vec![(64 << 10, 0), (2 << 20, 8 << 20)], ..Facts::default() };
        let names = |facts: &Facts| facts.allocatable(&[]).iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(names(&facts), ["cpu", "hugepages-2Mi", "hugepages-64Ki", "memory"]);
        facts.read_storage(&std::env::temp_dir().join("not/made/yet"));
        facts.storage_bytes = facts.storage_bytes.min(10 << 30);
        let kept = [(EPHEMERAL_STORAGE, "1Mi".parse().unwrap())].into_iter().collect::<ResourceList>();
        let [all, left] = [vec![], vec![&kept]].map(|kept| *facts.allocatable(&kept).get(EPHEMERAL_STORAGE).unwrap());
        assert_eq!(all.value() - left.value(), 1 << 20);
        assert_eq!(facts.allocatable(&[]).get("hugepages-2Mi").unwrap().to_string(), "8Mi");
    }

    #[test]
    fn unreadable_facts_are_empty() {
        assert_eq!(Facts::read(Path::new("/nonexistent")), Facts::default());
    }

    #[test]
    fn default_route_with_the_lowest_metric_is_used() {
        let route = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
                     wlan0\t00000000\t0102000A\t0003\t0\t0\t600\t00000000\t0\t0\t0\n\
                     eth0\t00000000\t0102000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
                     eth1\t00000000\t0102000A\t0002\t0\t0\t1\t00000000\t0\t0\t0\n\
                     eth0\t0002000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        assert_eq!(default_interface(route), Some("eth0"));
        assert_eq!(default_interface(""), None);
    }

    #[test]
    fn unreachable_ipv6_route_is_not_a_default_route() {
        let zero = "0".repeat(32);
        let refusal = format!("{zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200       lo\n");
        assert_eq!(default_ipv6_interface(&refusal), None);
        let route = format!("{zero} 00 {zero} 00 {} 00000400 00000002 00000000 00000003 wan\n", "f".repeat(32));
        assert_eq!(default_ipv6_interface(&(refusal + &route)), Some("wan"));
    }
}
