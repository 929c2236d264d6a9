//! The CPUs and memory nodes of a process's cpuset cgroup, v1 or v2.

use std::fs;
use std::path::Path;

use super::HIERARCHY;
use crate::platform::host::procfs::{ProcessCgroups, Procfs};
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
    let cgroups = Procfs::host().process(pid).cgroups()?;
    let (hierarchy, group) = hierarchy_and_group(&cgroups)?;
    let file = Path::new(HIERARCHY).join(hierarchy).join(group).join(file);
    CpuSet::parse(fs::read_to_string(file).ok()?.trim())
}

/// The mount point of the controller's v1 hierarchy, or else of v2, and the process's group in it.
fn hierarchy_and_group(cgroups: &ProcessCgroups) -> Option<(&'static str, &str)> {
    // v1 first: in a hybrid layout a process is in a group of v2 as well, which has no controllers.
    let v1 = cgroups.v1("cpuset").map(|group| ("cpuset", group));
    let (hierarchy, group) = v1.or_else(|| Some(("", cgroups.v2()?)))?;
    Some((hierarchy, group.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cgroup: &str, expected: Option<(&'static str, &str)>) {
        assert_eq!(hierarchy_and_group(&ProcessCgroups::parse(cgroup.as_bytes())), expected, "{cgroup}");
    }

    #[test]
    fn group_is_that_of_the_controllers_own_hierarchy_or_else_of_v2() {
        check("0::/kubepods/pod1/c\n", Some(("", "kubepods/pod1/c")));
        check("5:cpuacct,cpu:/other\n4:cpuset:/k8s.io/c\n0::/other\n", Some(("cpuset", "k8s.io/c")));
        check("", None);
    }
}
