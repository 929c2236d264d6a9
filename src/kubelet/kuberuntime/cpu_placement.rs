//! CPU placement of containers: set at their creation, and updated when it changes.

use std::cell::RefCell;

use crate::kubelet::kuberuntime::network_results::ignore_not_found;
use crate::platform::cgroups::cpuset_of;
use crate::platform::cri::{self, RuntimeService, v1};
use crate::state::pods::{ObservedCache, Placements};
use crate::types::api::PodUid;
use crate::types::cpu_set::CpuSet;
use crate::types::sorted::SortedMap;

/// A running container with the wrong cpuset.
#[derive(Clone, Debug)]
pub(crate) struct MisplacedContainer {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) cpus: CpuSet,
}

/// The cpusets of running containers.
pub(crate) struct ContainerCpus {
    cri: RuntimeService,
    /// By container id, as far as this process knows.
    current: RefCell<SortedMap<String, CpuSet>>,
}

impl ContainerCpus {
    pub(super) fn new(cri: RuntimeService) -> Self {
        Self { cri, current: RefCell::default() }
    }

    /// The running containers with the wrong cpuset. The current cpuset is known from this process or read from the
    /// kernel; if it is unknown, the container counts as misplaced.
    pub(crate) fn misplaced(&self, placements: &Placements, observed: &ObservedCache) -> Vec<MisplacedContainer> {
        let mut current_sets = self.current.borrow_mut();
        let mut misplaced = Vec::new();
        for pod in observed.iter() {
            for container in pod.containers.iter().filter(|container| container.is_running()) {
                let cpus = placements.cpus(&pod.uid, &container.name);
                if cpus.is_empty() {
                    continue;
                }
                let current = current_sets.entry(container.id.clone());
                let current = current.or_insert_with(|| container.pid.and_then(cpuset_of).unwrap_or_default());
                if current != cpus {
                    let (id, name) = (container.id.clone(), container.name.clone());
                    misplaced.push(MisplacedContainer { id, name, cpus: cpus.clone() });
                }
            }
        }
        misplaced
    }

    /// Updates a container's cpuset in the runtime. A missing container is not an error.
    pub(crate) async fn update(&self, misplaced: &MisplacedContainer) -> Result<(), cri::Error> {
        let MisplacedContainer { id, cpus, .. } = misplaced;
        let request = v1::LinuxContainerResources { cpuset_cpus: cpus.to_string(), ..Default::default() };
        // Without an answer it is unknown whether the update has taken effect.
        self.current.borrow_mut().remove(id);
        ignore_not_found(self.cri.update_container_resources(id, &request).await)?;
        self.record(id, cpus.clone());
        Ok(())
    }

    pub(super) fn record(&self, id: &str, cpus: CpuSet) {
        self.current.borrow_mut().insert(id.to_owned(), cpus);
    }

    /// Forgets containers that no longer exist.
    pub(super) fn forget_unless(&self, exists: impl Fn(&str) -> bool) {
        self.current.borrow_mut().retain(|id, _| exists(id));
    }
}

/// The running containers with their pids.
pub(crate) fn processes(observed: &ObservedCache) -> Vec<(PodUid, String, u32)> {
    let mut processes = Vec::new();
    for pod in observed.iter() {
        let running = pod.containers.iter().filter(|container| container.is_running());
        processes
            .extend(running.filter_map(|container| Some((pod.uid.clone(), container.name.clone(), container.pid?))));
    }
    processes
}

/// Sets the container's cpuset. A container with exclusive CPUs has no quota, unless the node keeps quotas.
pub(super) fn put(resources: &mut v1::LinuxContainerResources, placements: &Placements, pod: &PodUid, container: &str) {
    resources.cpuset_cpus = placements.cpus(pod, container).to_string();
    resources.cpuset_mems = placements.mems(pod, container).to_string();
    if placements.lifts_quota(pod, container) {
        lift_quota(resources);
    }
}

pub(super) fn lift_quota(resources: &mut v1::LinuxContainerResources) {
    if resources.cpu_period != 0 {
        resources.cpu_quota = -1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put_on(placements: &Placements, quota: (i64, i64)) -> (String, i64) {
        let mut resources =
            v1::LinuxContainerResources { cpu_quota: quota.0, cpu_period: quota.1, ..Default::default() };
        put(&mut resources, placements, &"uid".into(), "main");
        (resources.cpuset_cpus, resources.cpu_quota)
    }

    #[test]
    fn container_with_exclusive_cpus_has_no_quota_unless_quotas_are_kept() {
        let set = |text| CpuSet::parse(text).unwrap();
        let mut placements = Placements::default();
        assert_eq!(put_on(&placements, (200_000, 100_000)), (String::new(), 200_000));
        placements.shared = set("0,3");
        assert_eq!(put_on(&placements, (200_000, 100_000)), ("0,3".to_owned(), 200_000));
        placements.exclusive.entry("uid".into()).or_default().containers.insert("main".to_owned(), set("1-2"));
        assert_eq!(put_on(&placements, (200_000, 100_000)), ("1-2".to_owned(), -1));
        assert_eq!(put_on(&placements, (0, 0)), ("1-2".to_owned(), 0), "quotas are disabled");
        placements.exclusive.get_mut("uid").unwrap().sharing.push("main".to_owned());
        assert_eq!(put_on(&placements, (200_000, 100_000)), ("1-2".to_owned(), 200_000), "shared with its pod");
        assert!(!placements.lifts_pod_quota(&"uid".into()));
        placements.exclusive.get_mut("uid").unwrap().sharing.clear();
        assert!(placements.lifts_pod_quota(&"uid".into()));
        placements.keeps_quota = true;
        assert_eq!(put_on(&placements, (200_000, 100_000)), ("1-2".to_owned(), 200_000));
        assert!(!placements.lifts_pod_quota(&"uid".into()));
    }
}
