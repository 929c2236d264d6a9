//! The resources of one pod: those of its containers and those of the pod itself. Pure.

use std::sync::Arc;

use crate::types::api::{CPU, Container, ContainerStatus, MEMORY, Pod, ResourceList, ResourceRequirements};
use crate::types::sorted::SortedMap;

/// `PodResourceInfo` in pkg/kubelet/allocation/state.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PodResourceInfo {
    /// By container; ephemeral containers have no resources.
    pub(crate) containers: SortedMap<String, ResourceRequirements>,
    pub(crate) pod_level: Option<Box<ResourceRequirements>>,
}

impl PodResourceInfo {
    /// The resources in the pod's spec.
    pub(crate) fn of(pod: &Pod) -> Self {
        let containers = pod.spec.init_containers.iter().chain(&pod.spec.containers);
        Self {
            containers: containers.map(|container| (container.name.clone(), container.resources.clone())).collect(),
            pod_level: pod.spec.resources.clone(),
        }
    }

    /// The allocated resources in the pod's status at the API server; `None` if it shows none. Amounts that the status
    /// does not show are those of the spec.
    pub(crate) fn of_status(pod: &Pod) -> Option<Self> {
        let mut info = Self::of(pod);
        let mut has_shown = false;
        let statuses = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
        for status in statuses {
            let Some(resources) = info.containers.get_mut(&status.name) else { continue };
            has_shown |= take_shown(resources, status);
        }
        has_shown.then_some(info)
    }

    /// The actual resources in the pod's status; `None` if it shows none.
    pub(crate) fn actual_of_status(pod: &Pod) -> Option<Self> {
        let specs = Self::of(pod).containers;
        let statuses = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
        let shown = statuses.filter_map(|status| {
            let mut resources = specs.get(&status.name)?.clone();
            let actual = status.resources.as_deref().filter(|_| !status.container_id.is_empty())?;
            put_shown(&mut resources, &actual.requests, &actual.limits);
            Some((status.name.clone(), resources))
        });
        let containers: SortedMap<String, ResourceRequirements> = shown.collect();
        (!containers.is_empty()).then_some(Self { containers, pod_level: None })
    }

    /// The pod with these resources in its spec.
    pub(crate) fn put_on(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        let is_same = |container: &Container| {
            self.containers.get(&container.name).is_none_or(|resources| *resources == container.resources)
        };
        let spec = &pod.spec;
        if spec.resources == self.pod_level && spec.init_containers.iter().chain(&spec.containers).all(is_same) {
            return Arc::clone(pod);
        }
        let mut pod = Pod::clone(pod);
        let spec = &mut pod.spec;
        spec.resources.clone_from(&self.pod_level);
        for container in spec.init_containers.iter_mut().chain(&mut spec.containers) {
            if let Some(resources) = self.containers.get(&container.name) {
                container.resources.clone_from(resources);
            }
        }
        Arc::new(pod)
    }

    /// These resources with the higher CPU and memory requests of both: the requests of a pod while its resize is in
    /// progress.
    pub(crate) fn with_higher_requests(&self, other: &Self) -> Self {
        let mut higher = self.clone();
        for (name, resources) in &mut higher.containers {
            if let Some(other) = other.containers.get(name) {
                raise(&mut resources.requests, &other.requests);
            }
        }
        if let (Some(own), Some(other)) = (&mut higher.pod_level, &other.pod_level) {
            raise(&mut own.requests, &other.requests);
        }
        higher
    }
}

/// CPU and memory as the container's status shows them. A status without resources shows nothing.
fn take_shown(resources: &mut ResourceRequirements, status: &ContainerStatus) -> bool {
    let Some(actual) = status.resources.as_deref().filter(|_| !status.container_id.is_empty()) else { return false };
    put_shown(resources, &status.allocated_resources, &actual.limits);
    true
}

/// Replaces CPU and memory; an amount that is not shown is removed.
fn put_shown(resources: &mut ResourceRequirements, requests: &ResourceList, limits: &ResourceList) {
    for resource in [CPU, MEMORY] {
        for (list, shown) in [(&mut resources.requests, requests), (&mut resources.limits, limits)] {
            match shown.get(resource) {
                Some(amount) => list.insert(resource, *amount),
                None => list.remove(resource),
            };
        }
    }
}

fn raise(requests: &mut ResourceList, other: &ResourceList) {
    for resource in [CPU, MEMORY] {
        let Some(amount) = other.get(resource) else { continue };
        if requests.get(resource).is_none_or(|current| current < amount) {
            requests.insert(resource, *amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(given: &[(&'static str, &str)]) -> ResourceList {
        given.iter().map(|(name, value)| (*name, value.parse().unwrap())).collect()
    }

    fn pod(cpu: &str) -> Arc<Pod> {
        let mut pod = Pod::default();
        let mut container = Container { name: "main".to_owned(), ..Container::default() };
        container.resources.requests = list(&[(CPU, cpu), (MEMORY, "8Mi"), ("example.com/cam", "1")]);
        container.resources.limits = list(&[(CPU, "2")]);
        pod.spec.containers = vec![container];
        Arc::new(pod)
    }

    #[test]
    fn pod_is_copied_only_if_its_resources_differ() {
        let (old, new) = (pod("1"), pod("2"));
        let merged = PodResourceInfo::of(&old).put_on(&new);
        assert_eq!(merged.spec, old.spec);
        let same = PodResourceInfo::of(&new).put_on(&new);
        assert!(Arc::ptr_eq(&same, &new));
    }

    #[test]
    fn status_shows_allocated_requests_and_actual_limits() {
        let mut wanted = Pod::clone(&pod("5"));
        assert_eq!(PodResourceInfo::of_status(&wanted), None);
        let resources = ResourceRequirements { limits: list(&[(CPU, "1")]), ..ResourceRequirements::default() };
        wanted.status.container_statuses = vec![ContainerStatus {
            name: "main".to_owned(),
            container_id: "containerd://1".to_owned(),
            allocated_resources: list(&[(CPU, "500m")]),
            resources: Some(Box::new(resources)),
            ..ContainerStatus::default()
        }];
        let info = PodResourceInfo::of_status(&wanted).unwrap();
        let main = info.containers.get("main").unwrap();
        assert_eq!(main.requests, list(&[(CPU, "500m"), ("example.com/cam", "1")]));
        assert_eq!(main.limits, list(&[(CPU, "1")]));
        let actual = PodResourceInfo::actual_of_status(&wanted).unwrap();
        let main = actual.containers.get("main").unwrap();
        assert_eq!((&main.requests, &main.limits), (&list(&[("example.com/cam", "1")]), &list(&[(CPU, "1")])));
        wanted.status.container_statuses[0].resources = None;
        assert_eq!(PodResourceInfo::actual_of_status(&wanted), None);
        assert_eq!(PodResourceInfo::of_status(&wanted), None, "written by a kubelet that does not resize");
    }

    #[test]
    fn pod_in_resize_has_the_higher_requests() {
        let (allocated, actuated) = (PodResourceInfo::of(&pod("1")), PodResourceInfo::of(&pod("2")));
        assert_eq!(allocated.with_higher_requests(&actuated), actuated);
        assert_eq!(actuated.with_higher_requests(&allocated), actuated);
    }
}
