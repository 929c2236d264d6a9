//! Requests and limits of containers and of whole pods. Pure.

use super::container::Container;
use super::map::Map;
use super::pod::PodSpec;
use super::quantity::Quantity;
use crate::types::sorted::SortOnce as _;

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

/// When containers use a resource: an init container until the next one starts, a sidecar from its start to the pod's end.
#[derive(Clone, Copy)]
enum UsedBy {
    Init,
    Sidecar,
    Main,
}

/// The peak over the pod's life: each init container with the sidecars before it, then all main containers with all
/// sidecars.
fn total(spec: &PodSpec, list: fn(&Container) -> &ResourceList) -> ResourceList {
    let of_role = |container: &Container| if container.is_sidecar() { UsedBy::Sidecar } else { UsedBy::Init };
    let init = spec.init_containers.iter().map(|container| (container, of_role(container)));
    let main = spec.containers.iter().map(|container| (container, UsedBy::Main));
    let uses = init.chain(main).flat_map(|(container, role)| {
        list(container).iter().map(move |(resource, quantity)| (resource, role, *quantity))
    });
    // Each container may name resources of its own: those of each resource are added up together.
    let mut uses: Vec<_> = uses.collect();
    uses.sort_once_by_key(|(resource, ..)| *resource);
    uses.chunk_by(|one, other| one.0 == other.0).filter_map(|uses| Some((uses.first()?.0, peak(uses)?))).collect()
}

/// The peak of one resource.
fn peak(uses: &[(&str, UsedBy, Quantity)]) -> Option<Quantity> {
    let (mut lasting, mut highest): (Option<Quantity>, Option<Quantity>) = (None, None);
    let raised = |highest: Option<Quantity>, quantity| highest.map_or(quantity, |highest| highest.max(quantity));
    for (_, role, quantity) in uses {
        if !matches!(role, UsedBy::Main) {
            highest = Some(raised(highest, lasting.unwrap_or_default().plus(*quantity)));
        }
        if !matches!(role, UsedBy::Init) {
            lasting = Some(lasting.map_or(*quantity, |sum| sum.plus(*quantity)));
        }
    }
    match highest {
        Some(highest) => Some(raised(lasting, highest)),
        None => lasting,
    }
}

fn add(total: &mut ResourceList, resource: &str, quantity: Quantity) {
    match total.get_mut(resource) {
        Some(sum) => *sum = sum.plus(quantity),
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
