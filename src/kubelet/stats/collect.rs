//! Collects the kernel's statistics of the node and its pods in one pass. Blocks.

use std::fs;
use std::path::{Path, PathBuf};

use super::procfs::{self, CpuTimes, MemInfo};
use super::snapshot::{ContainerSnapshot, Figures, Look, Memory, NodeSnapshot, PodSnapshot, Processes};
use crate::kubelet::node::default_interface;
use crate::platform::cgroups::{Depth, HIERARCHY, Pressure, UsageReader};
use crate::platform::host::clock;
use crate::platform::host::disk_usage::{Found, disk_usage};
use crate::platform::host::file_system::file_system;
use crate::platform::host::process;

/// What to collect.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) depth: Depth,
    /// Also disks, networks and processes, not only CPU and memory.
    pub(super) with_rest: bool,
    /// The `kubepods` cgroup and those of the QoS classes, if pods have cgroups.
    pub(super) groups: Option<(String, Vec<String>)>,
    /// cgroup v2 is mounted with its controllers.
    pub(super) cgroup_v2: bool,
    pub(super) root_dir: PathBuf,
    /// Directory of the runtime's images, and their size and inodes.
    pub(super) images: Option<(PathBuf, Found)>,
    pub(super) layers: Option<(PathBuf, Found)>,
}

/// Fills in the statistics of `look`.
pub(super) fn pass(look: &mut Look, asked: &Asked) {
    let mut pass = Pass { reader: UsageReader::new(Path::new(HIERARCHY)), at: look.at, asked, swap_free: None };
    pass.node(&mut look.node);
    for pod in &mut look.pods {
        look.is_partial |= !pass.pod(pod);
    }
}

struct Pass<'a> {
    reader: UsageReader,
    at: i64,
    asked: &'a Asked,
    swap_free: Option<u64>,
}

impl Pass<'_> {
    fn node(&mut self, node: &mut NodeSnapshot) {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let memory = MemInfo::parse(&text("/proc/meminfo"));
        self.swap_free = (memory.swap_total > 0).then_some(memory.swap_free);
        node.memory = memory;
        let up = i64::try_from(clock::uptime().as_nanos()).unwrap_or(i64::MAX);
        node.booted_at = self.at.saturating_sub(up);
        node.figures = self.machine(&memory, &text);
        node.pods = match &self.asked.groups {
            Some((group, _)) => self.group(group).unwrap_or_default(),
            None => Figures::default(),
        };
        if self.asked.depth == Depth::Whole {
            let classes = self.asked.groups.as_ref().map_or(&[][..], |(_, classes)| classes);
            node.classes = classes.iter().filter_map(|group| self.group(group)).collect();
            let cpuinfo = text("/proc/cpuinfo");
            node.sockets_and_cores = procfs::sockets_and_cores(&cpuinfo);
            let processors = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
            node.processors = u64::try_from(processors).unwrap_or(0);
            let device = device_of(&self.asked.root_dir);
            let io = device.as_ref().and_then(|(_, numbers)| procfs::disk_io(&text("/proc/diskstats"), *numbers));
            // A file system without a block device, such as tmpfs, has no I/O statistics.
            node.device = device.map(|(name, _)| (name, io.unwrap_or_default()));
        }
        if self.asked.with_rest {
            node.interfaces = procfs::interfaces(&text("/proc/net/dev"));
            node.main_interface = default_interface(&text("/proc/net/route")).unwrap_or("eth0").to_owned();
            node.disk = file_system(&self.asked.root_dir).ok();
            let place = |place: &Option<(PathBuf, Found)>| {
                let (path, found) = place.as_ref()?;
                Some((file_system(path).ok()?, *found))
            };
            node.images = place(&self.asked.images);
            node.layers = place(&self.asked.layers);
            node.tasks = process::tasks();
        }
    }

    /// The whole machine, from the root cgroup or, without cgroup v2, from procfs.
    fn machine(&mut self, memory: &MemInfo, text: &dyn Fn(&str) -> String) -> Figures {
        let usage = self.asked.cgroup_v2.then(|| self.reader.read("", Depth::CpuAndMemory).ok()).flatten();
        let mut figures = usage
            .map(|usage| Figures::of_group("/", usage, self.at, self.swap_free))
            .unwrap_or_else(|| Figures { at: self.at, group: "/".to_owned(), ..Figures::default() });
        if figures.cpu_nanos.is_none() {
            let times = CpuTimes::parse(&text("/proc/stat"));
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
        let faults = procfs::page_faults(&text("/proc/vmstat"));
        figures.memory = Memory {
            available: Some(memory.total.saturating_sub(working_set)),
            usage: Some(used),
            working_set: Some(working_set),
            rss: Some(anon),
            page_faults: faults.map(|(all, _)| all),
            major_page_faults: faults.map(|(_, major)| major),
        };
        figures.swap_used = Some(memory.swap_total.saturating_sub(memory.swap_free));
        figures.swap_available = Some(memory.swap_free);
        if self.asked.depth >= Depth::Pressure {
            let pressure = |name: &str| fs::read_to_string(name).ok().map(|text| Pressure::parse(&text));
            figures.cpu_pressure = pressure("/proc/pressure/cpu");
            figures.memory_pressure = pressure("/proc/pressure/memory");
            figures.io_pressure = pressure("/proc/pressure/io");
        }
        figures
    }

    fn group(&mut self, group: &str) -> Option<Figures> {
        let usage = self.reader.read(group, self.asked.depth).ok()?;
        let mut figures = Figures::of_group(group, usage, self.at, self.swap_free);
        if self.asked.depth < Depth::Whole {
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
            for (place, below) in self.reader.containers(group, ids).unwrap_or_default() {
                let Some(container) = pod.containers.get_mut(place) else { continue };
                // The runtime may create child cgroups, which are included in the container's.
                if let Some(figures) = self.group(&below) {
                    container.figures = figures;
                }
            }
            is_whole &= pod.containers.iter().all(|container| container.figures.at != 0);
        }
        if !self.asked.with_rest {
            return is_whole;
        }
        for container in &mut pod.containers {
            container.logs = disk_usage(&container.logs_directory).ok();
            self.processes(container);
        }
        pod.own = disk_usage(&pod.etc_hosts).unwrap_or_default();
        let counts = pod.containers.iter().filter_map(|container| container.processes);
        pod.processes = counts.map(|processes| processes.count).reduce(u64::saturating_add);
        if let Some(pid) = pod.network_pid {
            let text = fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap_or_default();
            pod.interfaces = procfs::interfaces(&text);
        }
        is_whole
    }

    fn processes(&mut self, container: &mut ContainerSnapshot) {
        let figures = &mut container.figures;
        if figures.group.is_empty() {
            // Without cgroup v2 a container still has a cgroup path, which is its id.
            let cgroup = container.pid.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/cgroup")).ok());
            if let Some(group) = cgroup.as_deref().and_then(procfs::group_of) {
                figures.group = group.to_owned();
            }
            return;
        }
        let pids = self.reader.processes(&figures.group);
        let mut processes = Processes { count: u64::try_from(pids.len()).unwrap_or(0), ..Processes::default() };
        if self.asked.depth == Depth::Whole {
            processes.files = pids.iter().map(|pid| open_files(*pid)).fold(0, u64::saturating_add);
            let first = container.pid.or(pids.first().copied());
            let limits = first.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/limits")).ok());
            processes.most_files = limits.as_deref().and_then(procfs::open_files_limit);
        }
        container.processes = Some(processes);
    }
}

/// Since Linux 6.2 the size of the directory is the number of open files.
fn open_files(pid: u32) -> u64 {
    let directory = format!("/proc/{pid}/fd");
    match fs::metadata(&directory).map(|metadata| metadata.len()) {
        Ok(files @ 1..) => files,
        _ => fs::read_dir(&directory).map_or(0, |entries| u64::try_from(entries.count()).unwrap_or(0)),
    }
}

/// The device of `path`: its mount source, and its numbers.
fn device_of(path: &Path) -> Option<(String, (u32, u32))> {
    use std::os::unix::fs::MetadataExt as _;

    let device = fs::metadata(path).ok()?.dev();
    let numbers = (rustix::fs::major(device), rustix::fs::minor(device));
    let wanted = format!("{}:{}", numbers.0, numbers.1);
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let name = mounts.lines().find_map(|line| {
        let (mount, source) = line.split_once(" - ")?;
        (mount.split(' ').nth(2)? == wanted).then(|| source.split(' ').nth(1)).flatten()
    });
    Some((name?.to_owned(), numbers))
}
