//! How control groups are named, by either driver. Pure.

use crate::platform::config::CgroupDriver;
use crate::types::api::{PodUid, QosClass};

/// A group by the parts of its name, from the root of the hierarchy down; the drivers spell them differently.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CgroupName(Vec<String>);

impl CgroupName {
    /// The group of all pods, below the configured root.
    pub(crate) fn kubepods(root: &str) -> Self {
        let root = root.split('/').filter(|part| !part.is_empty()).map(str::to_owned);
        Self(root.chain([KUBEPODS.to_owned()]).collect())
    }

    /// The group in which the pods of a class are: guaranteed ones have none of their own.
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
        name.0.push([POD, uid.as_str()].concat());
        name
    }

    /// A group that is there already, as a configuration names it: `/system`, or with systemd `/system.slice` or
    /// `/system-kube.slice`.
    pub(crate) fn configured(text: &str, driver: CgroupDriver) -> Self {
        let mut parts = text.split('/').filter(|part| !part.is_empty());
        match driver {
            CgroupDriver::Cgroupfs => Self(parts.map(str::to_owned).collect()),
            CgroupDriver::Systemd => {
                // The last slice carries the names of those above it.
                let last = parts.next_back().unwrap_or_default();
                let last = last.strip_suffix(SLICE).unwrap_or(last);
                Self(last.split('-').filter(|part| !part.is_empty()).map(str::to_owned).collect())
            }
        }
    }

    /// The path below the root of the hierarchy, as a runtime is told it too.
    pub(crate) fn path(&self, driver: CgroupDriver) -> String {
        match driver {
            CgroupDriver::Cgroupfs => self.0.iter().flat_map(|part| ["/", part.as_str()]).collect(),
            CgroupDriver::Systemd => (1..=self.0.len()).flat_map(|depth| ["/".to_owned(), self.slice(depth)]).collect(),
        }
    }

    /// The group's unit of systemd.
    pub(crate) fn unit(&self) -> String {
        self.slice(self.0.len())
    }

    /// The units of the group and of those above it, the uppermost first.
    pub(crate) fn units(&self) -> impl Iterator<Item = (String, String)> + '_ {
        let path = |depth| (1..=depth).flat_map(|depth| ["/".to_owned(), self.slice(depth)]).collect();
        (1..=self.0.len()).map(move |depth| (self.slice(depth), path(depth)))
    }

    /// A slice carries the names of all slices above it, and a dash of its own would read as one more.
    fn slice(&self, depth: usize) -> String {
        let parts = self.0.iter().take(depth).map(|part| part.replace('-', "_"));
        let mut slice = parts.collect::<Vec<_>>().join("-");
        slice.push_str(SLICE);
        slice
    }
}

/// The last part of a group's path.
pub(crate) fn directory(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether a directory in the group `class` is that of a pod.
pub(crate) fn is_pod(class: &CgroupName, driver: CgroupDriver, directory: &str) -> bool {
    match driver {
        CgroupDriver::Cgroupfs => directory.strip_prefix(POD).is_some_and(|uid| !uid.is_empty()),
        CgroupDriver::Systemd => {
            let unit = class.unit();
            let above = unit.strip_suffix(SLICE).unwrap_or(&unit);
            let own = directory.strip_prefix(above).and_then(|rest| rest.strip_prefix('-'));
            own.is_some_and(|own| own.starts_with(POD) && own.ends_with(SLICE))
        }
    }
}

const KUBEPODS: &str = "kubepods";
const POD: &str = "pod";
const SLICE: &str = ".slice";

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(driver: CgroupDriver, root: &str, qos: QosClass, expected: &str) {
        assert_eq!(CgroupName::pod(root, qos, &PodUid::from("1a-2b")).path(driver), expected);
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

    #[test]
    fn a_configured_group_is_where_the_driver_puts_it() {
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
    fn the_groups_of_pods_are_told_from_those_of_classes_and_of_others() {
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
