//! Reads CPU topology and memory nodes from sysfs.

use std::fs;
use std::path::Path;

use super::cpu_topology::{Cpu, Topology};
use crate::types::api::{Format, HUGE_PAGES_PREFIX, MEMORY, Quantity};
use crate::types::cpu_set::CpuSet;

impl Topology {
    /// Reads `sys` below `root`. Without topology information, as on some boards, each CPU is a core of one package
    /// in one node.
    pub(crate) fn read(root: &Path) -> Self {
        let devices = root.join("sys/devices/system");
        let list = |path: &str| list(&devices.join(path));
        let online = list("cpu/online").unwrap_or_default();
        let nodes = list("node/online").unwrap_or_default();
        let nodes: Vec<(u32, CpuSet)> =
            nodes.iter().map(|node| (node, list(&format!("node/node{node}/cpulist")).unwrap_or_default())).collect();
        let cpu = |number| {
            let siblings = ["core_cpus_list", "thread_siblings_list"];
            let siblings = siblings.iter().find_map(|file| list(&format!("cpu/cpu{number}/topology/{file}")));
            // If the core's first thread is offline, the next one identifies it.
            let core = siblings.and_then(|siblings| siblings.common(&online).iter().next());
            let package = fs::read_to_string(devices.join(format!("cpu/cpu{number}/topology/physical_package_id")));
            // Some boards have -1.
            let package = package.ok().and_then(|text| text.trim().parse().ok());
            let node = nodes.iter().find(|(_, cpus)| cpus.contains(number)).map(|(node, _)| *node);
            let shared = last_cache(&devices.join(format!("cpu/cpu{number}/cache")));
            let shared = shared.map(|shared| shared.common(&online));
            let is_of_node = |shared: &CpuSet| {
                let of_node = nodes.iter().find(|(_, cpus)| cpus.contains(number)).map_or(&online, |(_, cpus)| cpus);
                of_node.common(&online).is_within(shared)
            };
            let cache = shared.filter(|shared| !is_of_node(shared)).and_then(|shared| shared.iter().next());
            let (node, package) = (node.unwrap_or(0), package.unwrap_or(0));
            (Cpu { number, node, package, core: core.unwrap_or(number), cache: 0 }, cache)
        };
        let cpus_and_nodes: Vec<(Cpu, Option<u32>)> = online.iter().map(cpu).collect();
        let first_of =
            |package| cpus_and_nodes.iter().find(|(cpu, _)| cpu.package == package).map_or(0, |(cpu, _)| cpu.number);
        let cpus = cpus_and_nodes
            .iter()
            .map(|(cpu, cache)| Cpu { cache: cache.unwrap_or_else(|| first_of(cpu.package)), ..*cpu });
        let distances = nodes.iter().map(|(node, _)| {
            let text = fs::read_to_string(devices.join(format!("node/node{node}/distance"))).unwrap_or_default();
            (*node, text.split_whitespace().filter_map(|distance| distance.parse().ok()).collect())
        });
        Self {
            cpus: cpus.collect(),
            isolated: list("cpu/isolated").unwrap_or_default(),
            distances: distances.collect(),
        }
    }
}

/// The memory of each NUMA node and the part of it in huge pages of each size, in bytes.
pub(crate) type MemoryNodes = Vec<(u32, Vec<(String, u64)>)>;

/// Reads `sys` below `root`. A kernel without NUMA has one node with all `memory`.
pub(crate) fn read_memory(root: &Path, memory: u64) -> MemoryNodes {
    let nodes = root.join("sys/devices/system/node");
    let Some(online) = list(&nodes.join("online")) else {
        return vec![(0, memory_of(memory, &root.join("sys/kernel/mm/hugepages")))];
    };
    let node = |number| {
        let directory = nodes.join(format!("node{number}"));
        let text = fs::read_to_string(directory.join("meminfo")).unwrap_or_default();
        // Such as `Node 0 MemTotal: 1012004 kB`.
        let total = text.lines().find_map(|line| line.split_once("MemTotal:")?.1.trim().strip_suffix("kB"));
        let total = total.and_then(|total| total.trim().parse::<u64>().ok()).unwrap_or(0);
        (number, memory_of(total.saturating_mul(1024), &directory.join("hugepages")))
    };
    online.iter().map(node).collect()
}

fn memory_of(total: u64, huge_pages: &Path) -> Vec<(String, u64)> {
    let mut kinds = vec![(MEMORY.to_owned(), total)];
    for entry in fs::read_dir(huge_pages).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let size =
            name.to_str().and_then(|name| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok());
        let count = fs::read_to_string(entry.path().join("nr_hugepages")).ok();
        if let (Some(size), Some(count)) = (size, count.and_then(|count| count.trim().parse::<u64>().ok())) {
            let size = size.saturating_mul(1024);
            let shown = Quantity::new(i64::try_from(size).unwrap_or(i64::MAX), Format::BinarySi);
            kinds.push((format!("{HUGE_PAGES_PREFIX}{shown}"), size.saturating_mul(count)));
        }
    }
    kinds
}

/// The CPUs that share the highest cache above level 2.
fn last_cache(caches: &Path) -> Option<CpuSet> {
    let mut last: Option<(u32, CpuSet)> = None;
    // The kernel numbers the caches of a CPU from 0.
    for index in 0..MAX_CPU_CACHES {
        let cache = caches.join(format!("index{index}"));
        let Ok(level) = fs::read_to_string(cache.join("level")) else { break };
        let level = level.trim().parse().unwrap_or(0);
        if level > 2 && last.as_ref().is_none_or(|(last, _)| level > *last) {
            last = list(&cache.join("shared_cpu_list")).map(|shared| (level, shared)).or(last);
        }
    }
    last.map(|(_, shared)| shared)
}

const MAX_CPU_CACHES: u32 = 16;

fn list(path: &Path) -> Option<CpuSet> {
    CpuSet::parse(fs::read_to_string(path).ok()?.trim())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::kubelet::resource_managers::cpu_topology::Level;

    /// The topology of a temporary tree with these files.
    fn read(name: &str, files: &[(&str, &str)]) -> Topology {
        let root = std::env::temp_dir().join(format!("coracle-topology-{name}-{}", std::process::id()));
        for (path, text) in files {
            let path = root.join("sys/devices/system").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        let topology = Topology::read(&root);
        fs::remove_dir_all(&root).unwrap();
        topology
    }

    fn shown(topology: &Topology) -> Vec<(u32, u32, u32, u32)> {
        topology.cpus.iter().map(|cpu| (cpu.number, cpu.node, cpu.package, cpu.core)).collect()
    }

    #[test]
    fn board_has_a_core_per_cpu() {
        let mut files = vec![("cpu/online", "0-3"), ("cpu/isolated", "")];
        let board = read("bare", &files);
        let expected = [(0, 0, 0, 0), (1, 0, 0, 1), (2, 0, 0, 2), (3, 0, 0, 3)];
        assert_eq!(shown(&board), expected);
        // Two clusters with the same core numbers, and a package that the firmware does not report.
        let more: Vec<(String, &str)> = (0..4)
            .flat_map(|cpu| {
                let file = move |file: &str| format!("cpu/cpu{cpu}/topology/{file}");
                let own = ["0", "1", "2", "3"][cpu];
                [
                    (file("core_id"), ["0", "1"][cpu % 2]),
                    (file("core_cpus_list"), own),
                    (file("physical_package_id"), "-1"),
                ]
            })
            .collect();
        files.extend(more.iter().map(|(path, text)| (path.as_str(), *text)));
        assert_eq!(shown(&read("board", &files)), expected);
    }

    #[test]
    fn core_is_identified_by_its_lowest_online_thread() {
        let files = [
            ("cpu/online", "0-4,6-7"),
            ("cpu/isolated", "3,7"),
            ("node/online", "0-1"),
            ("node/node0/cpulist", "0-1,4"),
            ("node/node1/cpulist", "2-3,6-7"),
            ("cpu/cpu0/topology/thread_siblings_list", "0,4"),
            ("cpu/cpu4/topology/thread_siblings_list", "0,4"),
            ("cpu/cpu1/topology/thread_siblings_list", "1"),
            ("cpu/cpu2/topology/thread_siblings_list", "2,6"),
            ("cpu/cpu6/topology/thread_siblings_list", "2,6"),
            ("cpu/cpu3/topology/core_cpus_list", "3,7"),
            ("cpu/cpu7/topology/core_cpus_list", "3,7"),
            ("cpu/cpu2/topology/physical_package_id", "1"),
            ("cpu/cpu3/topology/physical_package_id", "1"),
            ("cpu/cpu6/topology/physical_package_id", "1"),
            ("cpu/cpu7/topology/physical_package_id", "1"),
        ];
        let topology = read("threads", &files);
        let expected =
            [(0, 0, 0, 0), (1, 0, 0, 1), (2, 1, 1, 2), (3, 1, 1, 3), (4, 0, 0, 0), (6, 1, 1, 2), (7, 1, 1, 3)];
        assert_eq!(shown(&topology), expected);
        assert_eq!(topology.isolated.to_string(), "3,7");
        assert_eq!(topology.all().to_string(), "0-4,6-7");
        assert_eq!(topology.whole_cores(&CpuSet::parse("1,4,7").unwrap()).to_string(), "0-1,3-4,7");
        assert_eq!(topology.within(Level::Node, &CpuSet::parse("1").unwrap()).to_string(), "2-3,6-7");
    }

    #[test]
    fn two_numa_nodes_are_distinguished() {
        let files = [
            ("cpu/online", "0-3"),
            ("node/online", "0-1"),
            ("node/node0/cpulist", "0-1"),
            ("node/node1/cpulist", "2-3"),
        ];
        let topology = read("nodes", &files);
        assert_eq!(shown(&topology), [(0, 0, 0, 0), (1, 0, 0, 1), (2, 1, 0, 2), (3, 1, 0, 3)]);
        assert_eq!(topology.nodes().to_string(), "0-1");
    }

    #[test]
    fn each_node_has_its_memory_and_huge_pages() {
        let root = std::env::temp_dir().join(format!("coracle-memory-nodes-{}", std::process::id()));
        assert_eq!(read_memory(&root, 5), [(0, vec![("memory".to_owned(), 5)])]);
        for (path, text) in [
            ("online", "0,2"),
            ("node0/meminfo", "Node 0 MemTotal:        1024 kB\nNode 0 MemFree: 1 kB"),
            ("node2/meminfo", "Node 2 MemTotal:        8192 kB"),
            ("node2/hugepages/hugepages-2048kB/nr_hugepages", "3"),
        ] {
            let path = root.join("sys/devices/system/node").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        let found = read_memory(&root, 5);
        fs::remove_dir_all(&root).unwrap();
        let of = |kind: &str, size| (kind.to_owned(), size);
        let second = vec![of("memory", 8 << 20), of("hugepages-2Mi", 6 << 20)];
        assert_eq!(found, [(0, vec![of("memory", 1 << 20)]), (2, second)]);
    }

    #[test]
    fn cpus_are_grouped_by_the_cache_that_a_part_of_their_node_shares() {
        let caches = |shared: [&str; 4]| {
            let mut files = vec![
                ("cpu/online".to_owned(), "0-3".to_owned()),
                ("node/online".to_owned(), "0".to_owned()),
                ("node/node0/cpulist".to_owned(), "0-3".to_owned()),
                ("node/node0/distance".to_owned(), "10 21".to_owned()),
            ];
            for (cpu, shared) in shared.iter().enumerate() {
                for (index, level, shared) in [(0, "2", "0-3"), (1, "3", *shared)] {
                    let cache = format!("cpu/cpu{cpu}/cache/index{index}");
                    files.push((format!("{cache}/level"), level.to_owned()));
                    files.push((format!("{cache}/shared_cpu_list"), shared.to_owned()));
                }
            }
            let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
            let topology = read("caches", &files);
            assert_eq!(topology.distances, [(0, vec![10, 21])]);
            topology.cpus.iter().map(|cpu| cpu.cache).collect::<Vec<_>>()
        };
        assert_eq!(caches(["0-1", "0-1", "2-3", "2-3"]), [0, 0, 2, 2]);
        assert_eq!(caches(["0-3", "0-3", "0-3", "0-3"]), [0; 4]);
        assert_eq!(caches(["0,2", "1,3", "0,2", "1,3"]), [0, 1, 0, 1]);
    }

    #[test]
    fn missing_sysfs_gives_no_cpus() {
        assert_eq!(Topology::read(Path::new("/nonexistent")), Topology::default());
    }
}
