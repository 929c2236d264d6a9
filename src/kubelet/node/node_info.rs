//! The machine's memory, CPUs, cgroups and addresses, without DNS lookups. Only the addresses are read again.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use crate::platform::host::file_system;
use crate::platform::host::procfs::Procfs;
use crate::platform::host::selinux;
use crate::types::api::{
    CPU, EPHEMERAL_STORAGE, Format, HUGE_PAGES_PREFIX, KernelVersion, MEMORY, Quantity, ResourceList, kernel_version,
};
use crate::types::sorted::SortOnce;

/// A fact that could not be read is empty, zero or false.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeInfo {
    pub(crate) memory_bytes: u64,
    pub(crate) cpus: u32,
    /// Each huge page size, ascending, and the total reserved in pages of that size; both in bytes.
    pub(crate) huge_pages: Vec<(u64, u64)>,
    /// Size of the file system of the root directory.
    pub(crate) storage_bytes: u64,
    /// Maximum number of processes and threads.
    pub(crate) pid_max: u64,
    pub(crate) swap_bytes: u64,
    pub(crate) kernel: KernelVersion,
    /// cgroup v2 is mounted with the memory controller.
    pub(crate) cgroup_v2: bool,
    /// The kernel limits swap by cgroup.
    pub(crate) swap_limits: bool,
    /// The kernel limits huge pages by cgroup; kernels of boards often cannot.
    pub(crate) huge_page_limits: bool,
    /// Processes and files have SELinux labels.
    pub(crate) selinux: bool,
    /// The policy's label of containers' files; `None` without SELinux.
    pub(crate) container_file_label: Option<String>,
    /// `/sys/devices/system/cpu/cpu<n>/thermal_throttle` of the CPUs that have it.
    pub(crate) thermal_paths: Vec<String>,
    /// Addresses of the default route's interface: IPv4 first, one per family.
    pub(crate) addresses: Vec<IpAddr>,
}

impl NodeInfo {
    /// Reads `proc` and `sys` below `root`, and the addresses in the process's network namespace.
    pub(crate) fn read(root: &Path) -> Self {
        let procfs = Procfs::at(root.join("proc"));
        let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let controllers = text("sys/fs/cgroup/cgroup.controllers");
        let v2 = cgroup_v2(&controllers);
        let hugetlb = |controllers: &str| controllers.split_whitespace().any(|controller| controller == "hugetlb");
        let swap_file = if v2 {
            // The root cgroup has no such file, so the process's own cgroup is read.
            let cgroups = procfs.this_process().cgroups();
            let group = cgroups.as_ref().and_then(|cgroups| cgroups.v2()).unwrap_or_default();
            format!("sys/fs/cgroup/{}/memory.swap.max", group.trim_matches('/'))
        } else {
            "sys/fs/cgroup/memory/memory.memsw.limit_in_bytes".to_owned()
        };
        let cpus = cpu_count(&text("sys/devices/system/cpu/online"));
        let memory = procfs.memory().unwrap_or_default();
        let selinux = selinux::is_enabled(&procfs);
        Self {
            memory_bytes: memory.total,
            cpus,
            huge_pages: huge_pages(&root.join("sys/kernel/mm/hugepages")),
            storage_bytes: 0,
            pid_max: procfs.most_tasks().unwrap_or(0),
            swap_bytes: memory.swap_total,
            kernel: kernel_version(&text("proc/sys/kernel/osrelease")),
            cgroup_v2: v2,
            swap_limits: root.join(swap_file).exists(),
            huge_page_limits: if v2 { hugetlb(&controllers) } else { root.join("sys/fs/cgroup/hugetlb").is_dir() },
            selinux,
            container_file_label: selinux.then(|| selinux::container_file_label(root)).flatten(),
            thermal_paths: thermal_paths(root, cpus),
            addresses: addresses(&procfs),
        }
    }

    /// Whether volumes in memory may be written to swap: only tmpfs of Linux 6.4 and later can exclude it.
    pub(crate) fn may_swap_volumes(&self) -> bool {
        self.swap_bytes > 0 && self.kernel < (6, 4)
    }

    /// The huge page sizes that the kernel can limit by cgroup.
    pub(crate) fn limited_huge_pages(&self) -> Vec<u64> {
        self.huge_pages.iter().filter(|_| self.huge_page_limits).map(|(size, _)| *size).collect()
    }

    /// The current addresses, which may change at any time after the start.
    pub(crate) fn read_addresses() -> Vec<IpAddr> {
        addresses(&Procfs::host())
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
        for (size, total) in &self.huge_pages {
            list.insert(&format!("{HUGE_PAGES_PREFIX}{}", bytes(*size)), bytes(*total));
        }
        list
    }

    /// Allocatable resources: capacity minus reservations, with huge pages subtracted from memory.
    pub(crate) fn allocatable(&self, reserved: &[&ResourceList]) -> ResourceList {
        let mut list = self.capacity();
        let huge = self.huge_pages.iter().fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        for name in [CPU, MEMORY, EPHEMERAL_STORAGE] {
            let Some(amount) = list.get_mut(name) else { continue };
            let format = amount.format();
            let huge = if name == MEMORY { bytes(huge) } else { Quantity::ZERO };
            let kept = reserved.iter().filter_map(|list| list.get(name));
            let unreserved = kept.fold(amount.minus(huge), |unreserved, kept| unreserved.minus(*kept));
            *amount = if unreserved.is_negative() { Quantity::new(0, format) } else { unreserved };
        }
        list
    }
}

fn bytes(bytes: u64) -> Quantity {
    Quantity::new(i64::try_from(bytes).unwrap_or(i64::MAX), Format::BinarySi)
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
    pages.sort_once();
    pages
}

fn thermal_paths(root: &Path, cpus: u32) -> Vec<String> {
    let paths = (0..cpus).map(|cpu| format!("/sys/devices/system/cpu/cpu{cpu}/thermal_throttle"));
    paths.filter(|path| root.join(path.trim_start_matches('/')).exists()).collect()
}

fn cgroup_v2(controllers: &str) -> bool {
    controllers.split_whitespace().any(|controller| controller == "memory")
}

fn addresses(procfs: &Procfs) -> Vec<IpAddr> {
    let interfaces = (procfs.default_interface(), procfs.default_ipv6_interface());
    let Ok(interface_addresses) = nix::ifaddrs::getifaddrs() else { return Vec::new() };
    let (mut v4, mut v6) = (None, None);
    for interface in interface_addresses {
        let Some(address) = interface.address else { continue };
        let name = Some(&interface.interface_name);
        if let (Some(address), true) = (address.as_sockaddr_in(), name == interfaces.0.as_ref()) {
            v4.get_or_insert(IpAddr::V4(address.ip()));
        }
        if let (Some(address), true) = (address.as_sockaddr_in6(), name == interfaces.1.as_ref()) {
            // Link-local addresses are useless without their interface.
            if !address.ip().is_unicast_link_local() {
                v6.get_or_insert(IpAddr::V6(address.ip()));
            }
        }
    }
    v4.into_iter().chain(v6).collect()
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
        let meminfo = include_str!("../../../tests/data/procfs/linux-6.18-x86_64/meminfo");
        write("proc/meminfo", &meminfo.replace("SwapTotal:             0 kB", "SwapTotal:       1024 kB"));
        write("proc/self/cgroup", "0::/system.slice/coracle.service\n");
        write("proc/thread-self/mountinfo", "30 22 0:21 / /sys/fs/selinux rw - selinuxfs selinuxfs rw\n");
        write("proc/self/attr/current", "system_u:system_r:kubelet_t:s0\0");
        write("sys/devices/system/cpu/online", "0-2,7\n");
        write("sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "0\n");
        write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory hugetlb pids\n");
        write("sys/fs/cgroup/system.slice/coracle.service/memory.swap.max", "max\n");
        write("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0\n");
        write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "3\n");
        write("proc/sys/kernel/pid_max", "4194304\n");
        write("proc/sys/kernel/osrelease", "6.3.1-board\n");
        write("proc/sys/kernel/threads-max", "7000\n");
        let facts = NodeInfo::read(&root);
        fs::remove_dir_all(&root).unwrap();
        let expected = NodeInfo {
            memory_bytes: 24_684_096 << 10,
            cpus: 4,
            huge_pages: vec![(2 << 20, 6 << 20), (1 << 30, 0)],
            storage_bytes: 0,
            pid_max: 7000,
            swap_bytes: 1 << 20,
            kernel: (6, 3),
            cgroup_v2: true,
            swap_limits: true,
            huge_page_limits: true,
            selinux: true,
            container_file_label: None,
            thermal_paths: vec!["/sys/devices/system/cpu/cpu1/thermal_throttle".to_owned()],
            addresses: Vec::new(),
        };
        assert_eq!(facts, expected);
        assert_eq!(facts.limited_huge_pages(), [2 << 20, 1 << 30]);
        let may_swap = |kernel, swap_bytes| NodeInfo { kernel, swap_bytes, ..NodeInfo::default() }.may_swap_volumes();
        assert_eq!([may_swap((6, 3), 1), may_swap((6, 4), 1), may_swap((5, 10), 0)], [true, false, false]);
        assert!(NodeInfo { huge_page_limits: false, ..facts }.limited_huge_pages().is_empty());
    }

    #[test]
    fn allocatable_is_capacity_minus_reserved_and_not_negative() {
        let facts =
            NodeInfo { memory_bytes: 1 << 30, cpus: 2, huge_pages: vec![(2 << 20, 1 << 29)], ..NodeInfo::default() };
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
        let mut facts = NodeInfo { huge_pages: vec![(64 << 10, 0), (2 << 20, 8 << 20)], ..NodeInfo::default() };
        let names =
            |facts: &NodeInfo| facts.allocatable(&[]).iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
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
        assert_eq!(NodeInfo::read(Path::new("/nonexistent")), NodeInfo::default());
    }
}
