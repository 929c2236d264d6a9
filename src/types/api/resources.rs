//! Requests and limits, of a container and of a pod as a whole. Pure.

use super::container::Container;
use super::map::Map;
use super::pod::PodSpec;
use super::quantity::Quantity;

pub const CPU: &str = "cpu";
pub const MEMORY: &str = "memory";
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// As many pods as a node takes.
pub const PODS: &str = "pods";
/// The beginning of the names of huge page resources; the page size follows.
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

/// The bytes of huge pages of this size, in bytes, that a list names; `None` if it names none of them.
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

/// What the pod as a whole asks for: what the scheduler and the node count.
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

/// What the pod as a whole may use at most; a resource that no container limits has no entry.
pub fn pod_limits(spec: &PodSpec) -> ResourceList {
    let mut total = container_limits(spec);
    if let Some(pod) = &spec.resources {
        replace(&mut total, &pod.limits);
    }
    for (resource, overhead) in spec.overhead.iter() {
        // A limit that is not there does not come into being for the overhead's sake.
        if total.contains_key(resource) {
            add(&mut total, resource, *overhead);
        }
    }
    total
}

/// What all containers together ask for, whatever the pod says of itself.
pub fn container_requests(spec: &PodSpec) -> ResourceList {
    total(spec, |container| &container.resources.requests)
}

/// What all containers together may use at most, whatever the pod says of itself.
pub fn container_limits(spec: &PodSpec) -> ResourceList {
    total(spec, |container| &container.resources.limits)
}

/// The most that the pod uses at any time: while an init container runs, it and the sidecars before it; then all main
/// containers and all sidecars.
fn total(spec: &PodSpec, list: fn(&Container) -> &ResourceList) -> ResourceList {
    let mut sidecars = ResourceList::new();
    let mut highest = ResourceList::new();
    for container in &spec.init_containers {
        // Of what the container does not name, the sidecars use no more now than in the end.
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

/// Pod-level resources stand in place of the containers' sum, where a pod may have them.
fn replace(total: &mut ResourceList, pod_level: &ResourceList) {
    for (resource, quantity) in pod_level.iter() {
        if resource == CPU || resource == MEMORY || resource.starts_with(HUGE_PAGES_PREFIX) {
            total.insert(resource, *quantity);
        }
    }
}
