//! The processors that a group is held to, in either hierarchy.

use std::fs;
use std::path::Path;

use super::HIERARCHY;
use super::name::own_group;
use crate::types::cpu_set::CpuSet;

/// Of the group that a process is in; empty where it is held to none, and `None` where that cannot be told.
pub(crate) fn cpuset_of(pid: u32) -> Option<CpuSet> {
    read(pid, "cpuset.cpus")
}

/// The same for the NUMA nodes of its memory.
pub(crate) fn mems_of(pid: u32) -> Option<CpuSet> {
    read(pid, "cpuset.mems")
}

fn read(pid: u32, file: &str) -> Option<CpuSet> {
    let (hierarchy, group) = place(&fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)?;
    let file = Path::new(HIERARCHY).join(hierarchy).join(group).join(file);
    CpuSet::parse(fs::read_to_string(file).ok()?.trim())
}

/// The controller's own hierarchy, where there is one of v1, and the group in it.
fn place(text: &str) -> Option<(&'static str, String)> {
    let v1 = text.lines().find_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|controller| controller == "cpuset").then_some(("cpuset", group))
    });
    let (hierarchy, group) = v1.or_else(|| Some(("", own_group(text)?)))?;
    Some((hierarchy, group.trim_start_matches('/').to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_is_that_of_the_controllers_own_hierarchy_or_else_of_v2() {
        let v2 = "0::/kubepods/pod1/c\n";
        assert_eq!(place(v2), Some(("", "kubepods/pod1/c".to_owned())));
        let v1 = "5:cpuacct,cpu:/other\n4:cpuset:/k8s.io/c\n0::/other\n";
        assert_eq!(place(v1), Some(("cpuset", "k8s.io/c".to_owned())));
        assert_eq!(place(""), None);
    }
}
