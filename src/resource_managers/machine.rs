//! The processors and memory nodes of the machine, as the kernel shows them in `sys`.

use std::fs;
use std::path::Path;

use super::topology::{Cpu, Topology};
use crate::cpu_set::CpuSet;

impl Topology {
    /// Reads `sys` below `root`. Where the kernel tells nothing, as that of a small board may, each processor is a core
    /// of one package in one node.
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
            // Of a core whose first thread is offline the next one stands for it.
            let core = siblings.and_then(|siblings| siblings.common(&online).iter().next());
            let package = fs::read_to_string(devices.join(format!("cpu/cpu{number}/topology/physical_package_id")));
            // Some boards have -1.
            let package = package.ok().and_then(|text| text.trim().parse().ok());
            let node = nodes.iter().find(|(_, cpus)| cpus.contains(number)).map(|(node, _)| *node);
            Cpu { number, node: node.unwrap_or(0), package: package.unwrap_or(0), core: core.unwrap_or(number) }
        };
        Self { cpus: online.iter().map(cpu).collect(), isolated: list("cpu/isolated").unwrap_or_default() }
    }
}

fn list(path: &Path) -> Option<CpuSet> {
    CpuSet::parse(fs::read_to_string(path).ok()?.trim())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::resource_managers::topology::Level;

    /// What a made tree comes to; each file with its text.
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
    fn a_board_has_a_core_for_each_processor() {
        let mut files = vec![("cpu/online", "0-3"), ("cpu/isolated", "")];
        let board = read("bare", &files);
        let expected = [(0, 0, 0, 0), (1, 0, 0, 1), (2, 0, 0, 2), (3, 0, 0, 3)];
        assert_eq!(shown(&board), expected);
        // Two clusters that number their cores alike, and a package that the firmware does not know.
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
    fn threads_of_one_core_are_known_by_the_lowest_that_is_online() {
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
    fn two_nodes_with_two_processors_each_are_told_apart() {
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
    fn without_anything_to_read_there_are_no_processors() {
        assert_eq!(Topology::read(Path::new("/nonexistent")), Topology::default());
    }
}
