//! Collects the kernel's statistics of the node and its pods in one pass. Blocks.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::snapshot::{
    ContainerSnapshot, Memory, NodeSnapshot, PodSnapshot, Processes, Snapshot, SystemContainer, UsageStats,
};
use crate::platform::cgroups::{Depth, HIERARCHY, UsageReader};
use crate::platform::host::clock;
use crate::platform::host::disk_usage::{DiskUsage, disk_usage};
use crate::platform::host::file_system::file_system;
use crate::platform::host::process;
use crate::platform::host::procfs::{Interface, MemInfo, ProcessCgroups, Procfs};
use crate::platform::rt;

/// Time limit for walking the log directories and counting the open files of all pods.
const LOG_WALK_TIMEOUT: Duration = Duration::from_secs(2);

/// The statistics to collect, and their sources.
#[derive(Clone, Debug)]
pub(super) struct CollectInputs {
    pub(super) depth: Depth,
    /// Also disks, networks and processes, not only CPU and memory.
    pub(super) with_rest: bool,
    /// The `kubepods` cgroup and those of the QoS classes, if pods have cgroups.
    pub(super) groups: Option<(String, Vec<String>)>,
    /// Configured system containers with their cgroups.
    pub(super) system: Vec<(&'static str, String)>,
    /// When the agent started; `None` leaves out its own cgroup.
    pub(super) agent_started_at: Option<i64>,
    /// cgroup v2 is mounted with its controllers.
    pub(super) cgroup_v2: bool,
    pub(super) root_dir: PathBuf,
    /// Directory of the runtime's images, and their size and inodes.
    pub(super) images: Option<(PathBuf, DiskUsage)>,
    pub(super) layers: Option<(PathBuf, DiskUsage)>,
}

/// Fills in the statistics of `snapshot`.
pub(super) fn pass(snapshot: &mut Snapshot, inputs: &CollectInputs) {
    let mut pass = CollectPass {
        procfs: Procfs::host(),
        reader: UsageReader::new(Path::new(HIERARCHY)),
        at: snapshot.at,
        end: rt::now() + LOG_WALK_TIMEOUT,
        inputs,
        swap_free: None,
    };
    pass.node(&mut snapshot.node);
    for pod in &mut snapshot.pods {
        snapshot.is_partial |= !pass.pod(pod);
    }
}

struct CollectPass<'a> {
    procfs: Procfs,
    reader: UsageReader,
    at: i64,
    /// The time at which walks stop.
    end: Instant,
    inputs: &'a CollectInputs,
    swap_free: Option<u64>,
}

impl CollectPass<'_> {
    fn node(&mut self, node: &mut NodeSnapshot) {
        let memory = self.procfs.memory().unwrap_or_default();
        self.swap_free = (memory.swap_total > 0).then_some(memory.swap_free);
        node.memory = memory;
        let up = i64::try_from(clock::uptime().as_nanos()).unwrap_or(i64::MAX);
        node.booted_at = self.at.saturating_sub(up);
        node.figures = self.machine(&memory);
        node.pods = match &self.inputs.groups {
            Some((group, _)) => self.group(group).unwrap_or_default(),
            None => UsageStats::default(),
        };
        if self.inputs.cgroup_v2 {
            self.system(node);
        }
        if self.inputs.depth == Depth::Whole {
            let classes = self.inputs.groups.as_ref().map_or(&[][..], |(_, classes)| classes);
            node.classes = classes.iter().filter_map(|group| self.group(group)).collect();
            let processors = self.procfs.processors();
            node.sockets_and_cores = (processors.sockets, processors.cores);
            node.processors = processors.processors;
            // A file system without a block device, such as tmpfs, has no I/O statistics.
            let io = |numbers| self.procfs.disk_io(numbers).unwrap_or_default();
            node.device_names = self.procfs.disk_names();
            let device = self.device_of(&self.inputs.root_dir);
            node.device = device.map(|(name, numbers)| (name, io(numbers)));
        }
        if self.inputs.with_rest {
            node.interfaces = counted(self.procfs.this_process().interfaces());
            node.main_interface = self.procfs.default_interface().unwrap_or_else(|| "eth0".to_owned());
            node.disk = file_system(&self.inputs.root_dir).ok();
            let place = |file_system_usage: &Option<(PathBuf, DiskUsage)>| {
                let (path, disk_usage) = file_system_usage.as_ref()?;
                Some((file_system(path).ok()?, *disk_usage))
            };
            node.images = place(&self.inputs.images);
            node.layers = place(&self.inputs.layers);
            node.tasks = process::tasks();
        }
    }

    /// The system containers, without those that do not exist.
    fn system(&mut self, node: &mut NodeSnapshot) {
        let own_cgroup = self.procfs.this_process().cgroups();
        let own_cgroup = own_cgroup.as_ref().and_then(ProcessCgroups::v2).filter(|group| *group != "/");
        let own_cgroup = own_cgroup.filter(|_| self.inputs.agent_started_at.is_some()).map(|group| ("kubelet", group));
        let others = self.inputs.system.iter().map(|(name, group)| (*name, group.as_str()));
        for (name, group) in own_cgroup.into_iter().chain(others) {
            let started_at = self.inputs.agent_started_at.filter(|_| name == "kubelet");
            let figures = self.group(group);
            node.system.extend(figures.map(|figures| SystemContainer { name, started_at, figures }));
        }
    }

    /// The whole machine, from the root cgroup or, without cgroup v2, from procfs.
    fn machine(&mut self, memory: &MemInfo) -> UsageStats {
        let usage = self.inputs.cgroup_v2.then(|| self.reader.read("", Depth::CpuAndMemory).ok()).flatten();
        let mut figures = usage
            .map(|usage| UsageStats::of_group("/", usage, self.at, self.swap_free))
            .unwrap_or_else(|| UsageStats { at: self.at, group: "/".to_owned(), ..UsageStats::default() });
        if figures.cpu_nanos.is_none() {
            let times = self.procfs.cpu_times();
            figures.cpu_nanos = times.map(|times| times.user.saturating_add(times.system));
            figures.user_nanos = times.map(|times| times.user);
            figures.system_nanos = times.map(|times| times.system);
        }
        let stat = figures.group_usage.as_ref().and_then(|usage| usage.memory.as_ref());
        let (anon, file, inactive) = stat.map_or((memory.anon, memory.file, memory.inactive_file), |stat| {
            (stat.anon, stat.file, stat.inactive_file)
        });
        // The root cgroup has no memory.current; upstream's runc computes it like this too.
        let used = anon.saturating_add(file);
        let working_set = used.saturating_sub(inactive);
        let faults = self.procfs.page_faults();
        figures.memory = Memory {
            available: Some(memory.total.saturating_sub(working_set)),
            usage: Some(used),
            working_set: Some(working_set),
            rss: Some(anon),
            page_faults: faults.map(|(all_faults, _)| all_faults),
            major_page_faults: faults.map(|(_, major)| major),
        };
        figures.swap_used = Some(memory.swap_total.saturating_sub(memory.swap_free));
        figures.swap_available = Some(memory.swap_free);
        if self.inputs.depth >= Depth::Pressure {
            figures.cpu_pressure = self.procfs.pressure("cpu");
            figures.memory_pressure = self.procfs.pressure("memory");
            figures.io_pressure = self.procfs.pressure("io");
        }
        figures
    }

    fn group(&mut self, group: &str) -> Option<UsageStats> {
        let usage = self.reader.read(group, self.inputs.depth).ok()?;
        let mut figures = UsageStats::of_group(group, usage, self.at, self.swap_free);
        if self.inputs.depth < Depth::Whole {
            figures.group_usage = None;
        }
        Some(figures)
    }

    /// False if the pod's or a container's cgroup could not be read.
    fn pod(&mut self, pod: &mut PodSnapshot) -> bool {
        let mut is_whole = true;
        if let Some(group) = &pod.group {
            match self.group(group) {
                Some(figures) => pod.figures = figures,
                None => is_whole = false,
            }
            let ids = pod.containers.iter().map(|container| container.id.as_str());
            for (index, below) in self.reader.containers(group, ids).unwrap_or_default() {
                let Some(container) = pod.containers.get_mut(index) else { continue };
                // The runtime may create child cgroups, which are included in the container's.
                if let Some(figures) = self.group(&below) {
                    container.figures = figures;
                }
            }
            is_whole &= pod.containers.iter().all(|container| container.figures.at != 0);
        }
        if !self.inputs.with_rest {
            return is_whole;
        }
        for container in &mut pod.containers {
            container.logs = disk_usage(&container.logs_directory, self.end).ok();
            self.processes(container);
        }
        for path in &pod.own_files {
            let used = disk_usage(path, self.end).unwrap_or_default();
            pod.pod_files.bytes = pod.pod_files.bytes.saturating_add(used.bytes);
            pod.pod_files.inodes = pod.pod_files.inodes.saturating_add(used.inodes);
        }
        let counts = pod.containers.iter().filter_map(|container| container.processes);
        pod.processes = counts.map(|processes| processes.count).reduce(u64::saturating_add);
        if let Some(pid) = pod.network_pid {
            pod.interfaces = counted(self.procfs.process(pid).interfaces());
        }
        is_whole
    }

    fn processes(&mut self, container: &mut ContainerSnapshot) {
        let figures = &mut container.figures;
        let pids = if figures.group.is_empty() {
            // Without cgroup v2 a container still has a cgroup path, which is its id.
            let cgroups = container.pid.and_then(|pid| self.procfs.process(pid).cgroups());
            let Some(cgroups) = cgroups else { return };
            if let Some(group) = counting_group(&cgroups) {
                figures.group = group.to_owned();
            }
            let counted = cgroups.v1("memory").and_then(|group| v1_processes(Path::new(MEMORY_HIERARCHY), group));
            let Some(pids) = counted else { return };
            pids
        } else {
            self.reader.processes(&figures.group)
        };
        // A container may have thousands of processes with thousands of files each.
        let open_files = |pid: &u32| match rt::now() < self.end {
            true => self.procfs.process(*pid).open_files().unwrap_or(0),
            false => 0,
        };
        let mut processes = Processes { count: u64::try_from(pids.len()).unwrap_or(0), ..Processes::default() };
        if self.inputs.depth == Depth::Whole {
            processes.files = pids.iter().map(open_files).fold(0, u64::saturating_add);
            let first = container.pid.or(pids.first().copied());
            let limit = first.and_then(|pid| self.procfs.process(pid).open_files_limit());
            // -1 without a limit, as in cadvisor.
            processes.most_files = limit.map(|files| i64::try_from(files).unwrap_or(-1));
        }
        container.processes = Some(processes);
    }
    /// The name and numbers of the device that `path` is on.
    fn device_of(&self, path: &Path) -> Option<(String, (u32, u32))> {
        use std::os::unix::fs::MetadataExt as _;

        let device = fs::metadata(path).ok()?.dev();
        let numbers = (rustix::fs::major(device), rustix::fs::minor(device));
        let mount = self.procfs.mounts().ok()?.into_iter().find(|mount| mount.device == numbers)?;
        Some((mount.source, numbers))
    }
}

/// The interfaces that cadvisor reports: neither loopback nor the node's ends of pod networks, which are reported for
/// the pods.
fn counted(mut interfaces: Vec<Interface>) -> Vec<Interface> {
    let is_left_out = |name: &str| ["lo", "veth", "docker", "nerdctl"].iter().any(|prefix| name.starts_with(prefix));
    interfaces.retain(|interface| !is_left_out(&interface.name));
    interfaces
}

/// The cgroup in the v1 memory hierarchy, or in v2.
fn counting_group(cgroups: &ProcessCgroups) -> Option<&str> {
    cgroups.v1("memory").or_else(|| cgroups.v2()).filter(|group| *group != "/")
}

/// The v1 memory hierarchy.
const MEMORY_HIERARCHY: &str = "/sys/fs/cgroup/memory";

/// The processes of a v1 cgroup; `None` for the root, which has those of the whole machine, and if it cannot be read.
fn v1_processes(hierarchy: &Path, group: &str) -> Option<Vec<u32>> {
    let group = group.trim_matches('/');
    if group.is_empty() || group.split('/').any(|part| part == "..") {
        return None;
    }
    let text = fs::read_to_string(hierarchy.join(group).join("cgroup.procs")).ok()?;
    Some(text.lines().filter_map(|line| line.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_pod_ends_are_not_reported() {
        let names = ["lo", "eth0", "veth12", "docker0", "nerdctl0", "wlan0"];
        let all = names.map(|name| Interface { name: name.to_owned(), ..Interface::default() });
        let counted = counted(all.to_vec()).into_iter().map(|interface| interface.name).collect::<Vec<_>>();
        assert_eq!(counted, ["eth0", "wlan0"]);
    }

    #[test]
    fn configured_system_containers_that_exist_are_measured_with_cgroup_v2() {
        let root = rt::TestFolder::new("system-containers");
        fs::create_dir_all(root.0.join("runtime.slice")).unwrap();
        fs::write(root.0.join("runtime.slice/memory.current"), "8192\n").unwrap();
        let system = vec![("runtime", "/runtime.slice".to_owned()), ("misc", "/gone.slice".to_owned())];
        let measured = |cgroup_v2: bool| {
            let inputs = CollectInputs {
                depth: Depth::CpuAndMemory,
                with_rest: false,
                groups: None,
                system: system.clone(),
                agent_started_at: None,
                cgroup_v2,
                root_dir: root.0.clone(),
                images: None,
                layers: None,
            };
            let (procfs, reader) = (Procfs::host(), UsageReader::new(&root.0));
            let mut pass = CollectPass { procfs, reader, at: 1, end: rt::now(), inputs: &inputs, swap_free: None };
            let mut node = NodeSnapshot::default();
            pass.node(&mut node);
            let usage = |container: SystemContainer| (container.name, container.figures.memory.usage);
            node.system.into_iter().map(usage).collect::<Vec<_>>()
        };
        assert_eq!(measured(true), [("runtime", Some(8192))]);
        assert_eq!(measured(false), []);
    }

    #[test]
    fn processes_are_counted_without_cgroup_v2() {
        let root = std::env::temp_dir().join(format!("coracle-v1-processes-{}", std::process::id()));
        fs::create_dir_all(root.join("kubepods/pod1/abc")).unwrap();
        fs::write(root.join("kubepods/pod1/abc/cgroup.procs"), "7\n12\n").unwrap();
        fs::write(root.join("cgroup.procs"), "1\n").unwrap();
        assert_eq!(v1_processes(&root, "/kubepods/pod1/abc"), Some(vec![7, 12]));
        for other in ["/", "/kubepods/../..", "/gone"] {
            assert_eq!(v1_processes(&root, other), None, "{other}");
        }
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn cgroup_of_a_process_is_found_in_either_version() {
        let group = |text: &str| counting_group(&ProcessCgroups::parse(text.as_bytes())).map(str::to_owned);
        assert_eq!(group("0::/kubepods/pod1/abc\n").as_deref(), Some("/kubepods/pod1/abc"));
        let hybrid = "12:cpu,cpuacct:/k8s.io/a\n9:memory:/k8s.io/abc\n1:name=systemd:/x\n0::/\n";
        assert_eq!(group(hybrid).as_deref(), Some("/k8s.io/abc"));
        assert_eq!((group("0::/\n"), group("")), (None, None));
    }
}
