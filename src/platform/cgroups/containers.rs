//! The processes of containers, by the ids in the names of their cgroups.
//!
//! A runtime names the cgroup of a container or sandbox after its id: `ID`, or with systemd `cri-containerd-ID.scope` and
//! `crio-ID.scope`. The kernel knows which processes are in it, whatever the runtime says.

use std::io;

use nix::sys::signal::Signal;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};

use super::tree::Tree;
use crate::platform::host::procfs::Procfs;
#[cfg(test)]
use crate::platform::rt;
use crate::types::sorted::{SortOnce, SortedMap, SortedSet};

/// The processes in the cgroup of one container or sandbox, and in the groups below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContainerProcesses {
    pub(crate) id: String,
    /// The cgroup in the v2 hierarchy; `None` if it was found through its processes.
    pub(crate) group: Option<String>,
    /// The first one to start comes first: that of the container itself.
    pub(crate) pids: Vec<u32>,
}

/// Length of the ids of containerd and CRI-O.
const CONTAINER_ID_BYTES: usize = 64;
/// CRI-O's monitors of containers are no processes of the containers.
const MONITOR: &str = "crio-conmon-";

/// The containers with processes in the cgroups of a pod, in the v2 hierarchy: those that are `wanted`. Groups that do not
/// exist are empty.
pub(crate) fn below(
    tree: &Tree,
    pod_groups: &[String],
    wanted: impl Fn(&str) -> bool,
) -> io::Result<Vec<ContainerProcesses>> {
    let mut containers = Vec::new();
    for above in pod_groups {
        for directory in tree.directories(above)? {
            let Some(id) = container_id(&directory).filter(|id| wanted(id)) else { continue };
            let group = [above, "/", &directory].concat();
            let pids = in_order(tree.processes(&group));
            if !pids.is_empty() {
                containers.push(ContainerProcesses { id: id.to_owned(), group: Some(group), pids });
            }
        }
    }
    Ok(containers)
}

/// Which of these containers have processes, wherever their cgroups are, of either version. Reads a file of each process
/// of the machine.
pub(crate) fn anywhere(procfs: &Procfs, ids: &SortedSet<String>) -> io::Result<Vec<ContainerProcesses>> {
    let mut pids: SortedMap<String, Vec<u32>> = SortedMap::new();
    for (pid, cgroups) in process_cgroups(procfs)? {
        if let Some(id) = container_among(ids, &cgroups) {
            pids.entry(id).or_default().push(pid);
        }
    }
    let container_processes = |(id, pids)| ContainerProcesses { id, group: None, pids: in_order(pids) };
    Ok(pids.into_iter().map(container_processes).collect())
}

/// Sends a signal to a process of this container. If it has exited, and another process has its pid, nothing is sent.
pub(crate) fn signal_process_of(container: &str, pid: u32, signal: Signal) {
    #[cfg(test)]
    if rt::simulated_signal(pid, signal) {
        return;
    }
    let Some(process) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    // The process is held before the look at its cgroup, and the signal goes to what is held.
    let Ok(held) = pidfd_open(process, PidfdFlags::empty()) else { return };
    let cgroups = Procfs::host().process(pid).cgroup_text().unwrap_or_default();
    let is_its = containers_of(&cgroups).any(|id| id == container);
    // Nix and rustix name the same numbers.
    if let Some(signal) = rustix::process::Signal::from_named_raw(signal as i32).filter(|_| is_its) {
        let _ = pidfd_send_signal(&held, signal);
    }
}

/// The cgroup of this container on the path of a group: its processes may be in groups that they have made below it. The
/// path itself if it does not lead through the container's.
pub(crate) fn group_of<'a>(container: &str, path: &'a str) -> &'a str {
    let mut ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    let is_its = |group: &&str| group.rsplit('/').next().and_then(container_id) == Some(container);
    ends.find_map(|end| path.get(..end).filter(is_its)).unwrap_or(path)
}

/// Each process with the text of its `cgroup` file.
fn process_cgroups(procfs: &Procfs) -> io::Result<Vec<(u32, String)>> {
    #[cfg(test)]
    if let Some(simulated) = rt::simulated_cgroups() {
        return Ok(simulated);
    }
    let pids = procfs.pids()?;
    Ok(pids.filter_map(|pid| Some((pid, procfs.process(pid).cgroup_text()?))).collect())
}

/// The container through whose group a line of a `cgroup` file leads, such as `0::/kubepods/pod1/ID`.
fn container_among(ids: &SortedSet<String>, cgroups: &str) -> Option<String> {
    containers_of(cgroups).find(|id| ids.contains(*id)).map(str::to_owned)
}

fn containers_of(cgroups: &str) -> impl Iterator<Item = &str> {
    cgroups.lines().flat_map(|line| line.split('/')).filter_map(container_id)
}

/// The id in the name of a container's cgroup.
fn container_id(directory: &str) -> Option<&str> {
    let name = directory.strip_suffix(".scope").unwrap_or(directory);
    let (_, id) = name.split_at_checked(name.len().checked_sub(CONTAINER_ID_BYTES)?)?;
    let is_id = id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (is_id && !is_monitor(name)).then_some(id)
}

/// Whether this is the cgroup of a container's monitor. Its name has the container's id, too.
pub(super) fn is_monitor(directory: &str) -> bool {
    directory.starts_with(MONITOR)
}

/// Processes by the time of their start.
fn in_order(mut pids: Vec<u32>) -> Vec<u32> {
    let procfs = Procfs::host();
    pids.sort_once_by_cached_key(|pid| (procfs.process(*pid).stat().map(|stat| stat.started_after_boot), *pid));
    pids
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    const ONE: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const TWO: &str = "f123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("coracle-containers-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn write(file: &Path, text: &str) {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    #[test]
    fn groups_of_both_runtimes_and_drivers_are_recognized() {
        for name in
            [ONE.to_owned(), format!("cri-containerd-{ONE}.scope"), format!("crio-{ONE}.scope"), format!("crio-{ONE}")]
        {
            assert_eq!(container_id(&name), Some(ONE), "{name}");
        }
        let odd = [
            format!("crio-conmon-{ONE}.scope"),
            format!("crio-conmon-{ONE}"),
            ONE.to_uppercase(),
            format!("é{}", &"0".repeat(63)),
            "cri-containerd-1.scope".to_owned(),
            "init.scope".to_owned(),
            String::new(),
        ];
        for name in odd {
            assert_eq!(container_id(&name), None, "{name}");
        }
    }

    #[test]
    fn group_of_a_container_is_above_those_of_its_processes() {
        for name in [ONE.to_owned(), format!("cri-containerd-{ONE}.scope")] {
            let group = format!("/kubepods/pod1/{name}");
            for path in [group.clone(), format!("{group}/init"), format!("{group}/docker/{TWO}")] {
                assert_eq!(group_of(ONE, &path), group, "{path}");
            }
        }
        for other in [format!("/kubepods/pod1/{TWO}/init"), "/".to_owned(), String::new()] {
            assert_eq!(group_of(ONE, &other), other);
        }
    }

    #[test]
    fn processes_below_a_pods_cgroup_are_found_by_their_containers() {
        let root = scratch("below");
        let own = std::process::id();
        write(&root.join(format!("kubepods/pod1/{ONE}/cgroup.procs")), "");
        write(&root.join(format!("kubepods/pod1/{ONE}/inner/cgroup.procs")), &format!("{own}\n0\n"));
        write(&root.join(format!("kubepods/pod1/crio-conmon-{TWO}.scope/cgroup.procs")), "7\n");
        write(&root.join(format!("kubepods/pod1/crio-{TWO}.scope/cgroup.procs")), "");
        write(&root.join("kubepods/pod1/cgroup.procs"), "8\n");
        let tree = Tree::new(&root);
        let groups = ["/kubepods/pod1".to_owned(), "/kubepods/burstable/pod1".to_owned()];
        let (found, others) = (below(&tree, &groups, |_| true), below(&tree, &groups, |id| id == TWO));
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(others.unwrap(), []);
        let group = Some(format!("/kubepods/pod1/{ONE}"));
        assert_eq!(found.unwrap(), [ContainerProcesses { id: ONE.to_owned(), group, pids: vec![own] }]);
    }

    #[test]
    fn process_of_another_container_gets_no_signal() {
        let mut other = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        signal_process_of(ONE, other.id(), Signal::SIGKILL);
        std::thread::sleep(std::time::Duration::from_millis(50));
        let ended = other.try_wait().unwrap();
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(ended, None);
    }

    #[test]
    fn processes_anywhere_are_found_in_groups_of_either_version() {
        let root = scratch("anywhere");
        for (pid, cgroups) in [
            ("10", format!("4:memory:/k8s.io/{ONE}\n1:name=systemd:/x\n0::/\n")),
            ("9", format!("4:memory:/k8s.io/{ONE}/nested\n0::/\n")),
            ("11", format!("0::/system.slice/crio-conmon-{ONE}.scope\n")),
            ("12", format!("0::/system.slice/cri-containerd-{TWO}.scope\n")),
            ("self", format!("0::/{ONE}\n")),
        ] {
            write(&root.join(pid).join("cgroup"), &cgroups);
        }
        let found = anywhere(&Procfs::at(&root), &std::iter::once(ONE.to_owned()).collect());
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found.unwrap(), [ContainerProcesses { id: ONE.to_owned(), group: None, pids: vec![9, 10] }]);
    }
}
