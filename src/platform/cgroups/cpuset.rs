//! The CPUs and memory nodes of a process's cpuset cgroup, v1 or v2.

use std::fs;
use std::path::Path;

use super::HIERARCHY;
use super::name::own_group;
use crate::types::cpu_set::CpuSet;

/// The CPUs of the process's cgroup: empty if unrestricted, `None` if unknown.
pub(crate) fn cpuset_of(pid: u32) -> Option<CpuSet> {
    read(pid, "cpuset.cpus")
}

/// The NUMA memory nodes of the process's cgroup, as [`cpuset_of`].
pub(crate) fn mems_of(pid: u32) -> Option<CpuSet> {
    read(pid, "cpuset.mems")
}

fn read(pid: u32, file: &str) -> Option<CpuSet> {
    let (hierarchy, group) = place(&fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)?;
    let file = Path::new(HIERARCHY).join(hierarchy).join(group).join(file);
    CpuSet::parse(fs::read_to_string(file).ok()?.trim())
}

/// The hierarchy and the group of the cpuset controller: its v1 hierarchy if there is one, else v2.
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
    fn a_v1_hierarchy_precedes_v2() {
        let v2 = "0::/kubepods/pod1/c\n";
        assert_eq!(place(v2), Some(("", "kubepods/pod1/c".to_owned())));
        let v1 = "5:cpuacct,cpu:/other\n4:cpuset:/k8s.io/c\n0::/other\n";
        assert_eq!(place(v1), Some(("cpuset", "k8s.io/c".to_owned())));
        assert_eq!(place(""), None);
    }
}
