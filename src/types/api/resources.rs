//! Requests and limits of containers and of whole pods. Pure.

use super::container::Container;
use super::map::Map;
use super::pod::PodSpec;
use super::quantity::Quantity;

pub const CPU: &str = "cpu";
pub const MEMORY: &str = "memory";
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// The number of pods that a node accepts.
pub const PODS: &str = "pods";
/// Prefix of the huge page resources, followed by the page size.
pub const HUGE_PAGES_PREFIX: &str = "hugepages-";

pub type ResourceList = Map<Quantity>;

object! {
    pub struct ResourceRequirements {
        limits: ResourceList,
        requests: ResourceList,
        claims: Vec<ResourceClaim>,
    }
}

object! {
    pub struct ResourceClaim {
        name: String,
        request: String,
    }
}

/// The bytes of huge pages of `page_size` bytes in the list; `None` if it does not name that size.
pub fn huge_pages(list: &ResourceList, page_size: u64) -> Option<u64> {
    list.iter().find_map(|(resource, quantity)| {
        let size: Quantity = resource.strip_prefix(HUGE_PAGES_PREFIX)?.parse().ok()?;
        (u64::try_from(size.value()) == Ok(page_size)).then(|| u64::try_from(quantity.value()).unwrap_or(0))
    })
}

impl ResourceRequirements {
    pub fn request(&self, resource: &str) -> Option<Quantity> {
        self.requests.get(resource).copied()
    }

    pub fn limit(&self, resource: &str) -> Option<Quantity> {
        self.limits.get(resource).copied()
    }
}

/// The requests of the pod, as the scheduler counts them.
pub fn pod_requests(spec: &PodSpec) -> ResourceList {
    let mut total = container_requests(spec);
    if let Some(pod) = &spec.resources {
        replace(&mut total, &pod.requests);
    }
    for (resource, overhead) in spec.overhead.iter() {
        add(&mut total, resource, *overhead);
    }
    total
}

/// The limits of the pod; a resource that no container limits has no entry.
pub fn pod_limits(spec: &PodSpec) -> ResourceList {
    let mut total = container_limits(spec);
    if let Some(pod) = &spec.resources {
        replace(&mut total, &pod.limits);
    }
    for (resource, overhead) in spec.overhead.iter() {
        // Overhead raises existing limits but sets no new ones.
        if total.contains_key(resource) {
            add(&mut total, resource, *overhead);
        }
    }
    total
}

/// The combined requests of the containers, without pod-level resources and overhead.
pub fn container_requests(spec: &PodSpec) -> ResourceList {
    total(spec, |container| &container.resources.requests)
}

/// The combined limits of the containers, without pod-level resources and overhead.
pub fn container_limits(spec: &PodSpec) -> ResourceList {
    total(spec, |container| &container.resources.limits)
}

/// The peak over the pod's life: each init container with the sidecars before it, then all main containers with all
/// sidecars.
fn total(spec: &PodSpec, list: fn(&Container) -> &ResourceList) -> ResourceList {
    let mut sidecars = ResourceList::new();
    let mut highest = ResourceList::new();
    for container in &spec.init_containers {
        // Skips resources that this container does not name: the final sum of the sidecars covers them.
        for (resource, quantity) in list(container).iter() {
            let before = sidecars.get(resource).copied().unwrap_or_default();
            raise(&mut highest, resource, before.plus(*quantity));
        }
        if container.is_sidecar() {
            add_all(&mut sidecars, list(container));
        }
    }
    let mut total = sidecars;
    for container in &spec.containers {
        add_all(&mut total, list(container));
    }
    for (resource, quantity) in highest.iter() {
        raise(&mut total, resource, *quantity);
    }
    total
}

fn add_all(total: &mut ResourceList, more: &ResourceList) {
    for (resource, quantity) in more.iter() {
        add(total, resource, *quantity);
    }
}

fn add(total: &mut ResourceList, resource: &str, quantity: Quantity) {
    match total.get_mut(resource) {
        Some(sum) => *sum = sum.plus(quantity),
        None => drop(total.insert(resource, quantity)),
    }
}

fn raise(total: &mut ResourceList, resource: &str, quantity: Quantity) {
    match total.get_mut(resource) {
        Some(highest) => *highest = (*highest).max(quantity),
        None => drop(total.insert(resource, quantity)),
    }
}

/// Pod-level CPU, memory and huge pages replace the containers' sum.
fn replace(total: &mut ResourceList, pod_level: &ResourceList) {
    for (resource, quantity) in pod_level.iter() {
        if resource == CPU || resource == MEMORY || resource.starts_with(HUGE_PAGES_PREFIX) {
            total.insert(resource, *quantity);
        }
    }
}
