//! The control group that a pod's sandbox and containers are made in. Pure.

use crate::api::{PodUid, QosClass};
use crate::config::CgroupDriver;
use crate::node::PodCgroups;

/// The parent as the runtime is told it: a path, or with systemd the path of slices that spells the same.
pub(crate) fn cgroup_parent(cgroups: &PodCgroups, uid: &PodUid, qos: QosClass) -> String {
    let class = match qos {
        QosClass::Guaranteed => None,
        QosClass::Burstable => Some("burstable"),
        QosClass::BestEffort => Some("besteffort"),
    };
    let pod = ["pod", uid.as_str()].concat();
    let root = cgroups.root.split('/').filter(|part| !part.is_empty());
    let parts = root.chain(["kubepods"]).chain(class).chain([pod.as_str()]);
    let mut path = String::new();
    match cgroups.driver {
        CgroupDriver::Cgroupfs => parts.for_each(|part| path.extend(["/", part])),
        CgroupDriver::Systemd => {
            // A slice carries the names of all slices above it, and a dash of its own would read as one more.
            let mut slice = String::new();
            for part in parts {
                if !slice.is_empty() {
                    slice.push('-');
                }
                slice.push_str(&part.replace('-', "_"));
                path.extend(["/", slice.as_str(), ".slice"]);
            }
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(driver: CgroupDriver, root: &str, qos: QosClass, expected: &str) {
        let cgroups = PodCgroups { driver, root: root.to_owned() };
        assert_eq!(cgroup_parent(&cgroups, &PodUid::from("1a-2b"), qos), expected);
    }

    #[test]
    fn a_guaranteed_pod_is_directly_below_kubepods_and_the_others_in_their_class() {
        check(CgroupDriver::Cgroupfs, "", QosClass::Guaranteed, "/kubepods/pod1a-2b");
        check(CgroupDriver::Cgroupfs, "", QosClass::Burstable, "/kubepods/burstable/pod1a-2b");
        check(CgroupDriver::Cgroupfs, "/edge", QosClass::BestEffort, "/edge/kubepods/besteffort/pod1a-2b");
    }

    #[test]
    fn slices_spell_the_path_that_leads_to_them() {
        let guaranteed = "/kubepods.slice/kubepods-pod1a_2b.slice";
        check(CgroupDriver::Systemd, "", QosClass::Guaranteed, guaranteed);
        let burstable = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1a_2b.slice";
        check(CgroupDriver::Systemd, "/", QosClass::Burstable, burstable);
    }
}
