//! Requests and limits of a pod: pod-level ones, and the totals of its containers. Pure.

use crate::types::api::{Container, PodSpec, Quantity, ResourceRequirements};

/// Pod-level resources.
pub(super) fn pod_level(spec: &PodSpec) -> Option<&ResourceRequirements> {
    spec.resources.as_deref()
}

#[derive(Clone, Copy, Debug)]
pub(super) enum List {
    Requests,
    Limits,
}

pub(super) fn quantity(resources: &ResourceRequirements, list: List, resource: &str) -> Option<Quantity> {
    match list {
        List::Requests => resources.request(resource),
        List::Limits => resources.limit(resource),
    }
}

/// The maximum total of a resource over the containers at any time, without overhead; `None` if no container has it.
///
/// While an init container runs, the sidecars before it run too; later the main containers and all sidecars run.
pub(super) fn of_containers(spec: &PodSpec, list: List, resource: &str) -> Option<Quantity> {
    let add = |one: Option<Quantity>, other: Option<Quantity>| match (one, other) {
        (Some(one), Some(other)) => Some(one.plus(other)),
        (one, other) => one.or(other),
    };
    let of = |container: &Container| quantity(&container.resources, list, resource);
    let (mut sidecars, mut highest) = (None, None);
    for container in &spec.init_containers {
        let now = add(sidecars, of(container));
        if container.is_sidecar() {
            sidecars = now;
        }
        highest = highest.max(now);
    }
    spec.containers.iter().fold(sidecars, |sum, container| add(sum, of(container))).max(highest)
}
