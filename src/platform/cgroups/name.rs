//! The names of cgroups with either driver. Pure.

use crate::platform::config::CgroupDriver;
use crate::types::api::{PodUid, QosClass};

/// A cgroup by the parts of its name, from the root down. The drivers spell it differently.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CgroupName(Vec<String>);

impl CgroupName {
    /// The cgroup of all pods, below the configured root.
    pub(crate) fn kubepods(root: &str) -> Self {
        let root = root.split('/').filter(|part| !part.is_empty()).map(str::to_owned);
        Self(root.chain([KUBEPODS.to_owned()]).collect())
    }

    /// The parent cgroup of a QoS class's pods. Guaranteed pods are directly below kubepods.
    pub(crate) fn class(root: &str, qos: QosClass) -> Self {
        let mut name = Self::kubepods(root);
        match qos {
            QosClass::Guaranteed => {}
            QosClass::Burstable => name.0.push("burstable".to_owned()),
            QosClass::BestEffort => name.0.push("besteffort".to_owned()),
        }
        name
    }

    pub(crate) fn pod(root: &str, qos: QosClass, uid: &PodUid) -> Self {
        let mut name = Self::class(root, qos);
        // One group for each pod, whatever its uid is: orphaned groups are removed with all that is below them.
        name.0.push([POD_CGROUP_PREFIX, &uid.as_str().replace('/', "~")].concat());
        name
    }

    /// An existing cgroup, as the configuration spells it: `/system`, or with systemd `/system.slice` or
    /// `/system-kube.slice`.
    pub(crate) fn configured(text: &str, driver: CgroupDriver) -> Self {
        let mut parts = text.split('/').filter(|part| !part.is_empty());
        match driver {
            CgroupDriver::Cgroupfs => Self(parts.map(str::to_owned).collect()),
            CgroupDriver::Systemd => {
                // The name of a slice contains those of its parents.
                let last = parts.next_back().unwrap_or_default();
                let last = last.strip_suffix(SLICE).unwrap_or(last);
                Self(last.split('-').filter(|part| !part.is_empty()).map(str::to_owned).collect())
            }
        }
    }

    /// The path below the hierarchy's root, as passed to the runtime.
    pub(crate) fn path(&self, driver: CgroupDriver) -> String {
        match driver {
            CgroupDriver::Cgroupfs => self.0.iter().flat_map(|part| ["/", part.as_str()]).collect(),
            CgroupDriver::Systemd => (1..=self.0.len()).flat_map(|depth| ["/".to_owned(), self.slice(depth)]).collect(),
        }
    }

    /// The name of the group's systemd slice.
    pub(crate) fn unit(&self) -> String {
        self.slice(self.0.len())
    }

    /// The slices of the group and its parents with their paths, outermost first.
    pub(crate) fn units(&self) -> impl Iterator<Item = (String, String)> + '_ {
        let path = |depth| (1..=depth).flat_map(|depth| ["/".to_owned(), self.slice(depth)]).collect();
        (1..=self.0.len()).map(move |depth| (self.slice(depth), path(depth)))
    }

    /// The name of a slice contains those of its parents; a dash within a part would read as another level.
    fn slice(&self, depth: usize) -> String {
        let parts = self.0.iter().take(depth).map(|part| part.replace('-', "_"));
        let mut slice = parts.collect::<Vec<_>>().join("-");
        slice.push_str(SLICE);
        slice
    }
}

/// The last component of a cgroup's path.
pub(crate) fn directory(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether a directory in the cgroup of `class` belongs to a pod.
pub(crate) fn is_pod(class: &CgroupName, driver: CgroupDriver, directory: &str) -> bool {
    match driver {
        CgroupDriver::Cgroupfs => directory.strip_prefix(POD_CGROUP_PREFIX).is_some_and(|uid| !uid.is_empty()),
        CgroupDriver::Systemd => {
            let unit = class.unit();
            let above = unit.strip_suffix(SLICE).unwrap_or(&unit);
            let child_name = directory.strip_prefix(above).and_then(|rest| rest.strip_prefix('-'));
            child_name
                .is_some_and(|child_name| child_name.starts_with(POD_CGROUP_PREFIX) && child_name.ends_with(SLICE))
        }
    }
}

/// The QoS classes, whose cgroups contain all pod cgroups.
pub(crate) const CLASSES: [QosClass; 3] = [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort];

const KUBEPODS: &str = "kubepods";
const POD_CGROUP_PREFIX: &str = "pod";
const SLICE: &str = ".slice";

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(driver: CgroupDriver, root: &str, qos: QosClass, expected: &str) {
        assert_eq!(CgroupName::pod(root, qos, &PodUid::from("1a-2b")).path(driver), expected);
    }

    #[test]
    fn guaranteed_pods_are_directly_below_kubepods() {
        check(CgroupDriver::Cgroupfs, "", QosClass::Guaranteed, "/kubepods/pod1a-2b");
        check(CgroupDriver::Cgroupfs, "", QosClass::Burstable, "/kubepods/burstable/pod1a-2b");
        check(CgroupDriver::Cgroupfs, "/edge", QosClass::BestEffort, "/edge/kubepods/besteffort/pod1a-2b");
    }

    #[test]
    fn uid_names_one_group() {
        let name = CgroupName::pod("", QosClass::Guaranteed, &PodUid::from("a/../b"));
        assert_eq!(name.path(CgroupDriver::Cgroupfs), "/kubepods/poda~..~b");
    }

    #[test]
    fn slice_names_contain_their_parents() {
        let guaranteed = "/kubepods.slice/kubepods-pod1a_2b.slice";
        check(CgroupDriver::Systemd, "", QosClass::Guaranteed, guaranteed);
        let burstable = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1a_2b.slice";
        check(CgroupDriver::Systemd, "/", QosClass::Burstable, burstable);
    }

    #[test]
    fn configured_groups_follow_the_driver() {
        for (driver, text, path) in [
            (CgroupDriver::Cgroupfs, "/system", "/system"),
            (CgroupDriver::Cgroupfs, "system.slice/", "/system.slice"),
            (CgroupDriver::Systemd, "/system.slice", "/system.slice"),
            (CgroupDriver::Systemd, "/system.slice/system-kube.slice", "/system.slice/system-kube.slice"),
            (CgroupDriver::Systemd, "system-kube.slice", "/system.slice/system-kube.slice"),
        ] {
            assert_eq!(CgroupName::configured(text, driver).path(driver), path, "{text}");
        }
    }

    #[test]
    fn pod_groups_are_recognized() {
        let all = CgroupName::kubepods("");
        for (driver, directory, expected) in [
            (CgroupDriver::Cgroupfs, "pod1a-2b", true),
            (CgroupDriver::Cgroupfs, "burstable", false),
            (CgroupDriver::Cgroupfs, "pod", false),
            (CgroupDriver::Systemd, "kubepods-pod1a_2b.slice", true),
            (CgroupDriver::Systemd, "kubepods-burstable.slice", false),
            (CgroupDriver::Systemd, "kubepods-burstable-pod1a_2b.slice", false),
            (CgroupDriver::Systemd, "cri-containerd-1.scope", false),
        ] {
            assert_eq!(is_pod(&all, driver, directory), expected, "{directory}");
        }
    }
}
