//! Validates the requests and limits of containers and of the pod. Pure.

use super::faults::Faults;
use super::names::{self, DNS_LABEL};
use super::scope::Scope;
use crate::types::api::decode::Path;
use crate::types::api::{
    CPU, Container, EPHEMERAL_STORAGE, HUGE_PAGES_PREFIX, MEMORY, PodSpec, Quantity, ResizeRestartPolicy,
    ResourceClaim, ResourceList, ResourceRequirements, RestartPolicy, container_requests,
};
use crate::types::sorted::Seen;

pub(super) fn check_container(container: &Container, scope: &Scope<'_>, path: &Path<'_>, faults: &mut Faults) {
    let resources = path.key("resources");
    check(&container.resources, Owner::Container, &resources, faults);
    check_claims(&container.resources.claims, scope, &resources.key("claims"), faults);
    let list = path.key("resizePolicy");
    let mut names = Seen::default();
    for (index, policy) in container.resize_policy.iter().enumerate() {
        let path = list.index(index);
        let name = policy.resource_name.as_str();
        match name {
            "" => faults.required(&path.key("resourceName")),
            CPU | MEMORY if !names.insert(name) => faults.duplicate(&path.key("resourceName"), name),
            CPU | MEMORY => {}
            other => faults.invalid(&path.key("resourceName"), other, "must be \"cpu\" or \"memory\""),
        }
        // A sidecar restarts whatever the pod's restart policy is.
        let restarts = scope.spec.restart_policy != RestartPolicy::Never || container.is_sidecar();
        if policy.restart_policy == ResizeRestartPolicy::RestartContainer && !restarts {
            let wanted = "must be \"NotRequired\" when the pod's restartPolicy is \"Never\"";
            faults.invalid(&path.key("restartPolicy"), policy.restart_policy.as_str(), wanted);
        }
    }
}

/// Checks pod-level resources and overhead.
pub(super) fn check_pod(spec: &PodSpec, path: &Path<'_>, faults: &mut Faults) {
    let overhead = path.key("overhead");
    for (resource, quantity) in spec.overhead.iter() {
        check_entry(resource, *quantity, Owner::Container, &overhead, faults);
    }
    let Some(resources) = &spec.resources else { return };
    let path = path.key("resources");
    if !resources.claims.is_empty() {
        faults.forbidden(&path.key("claims"), "for a whole pod");
    }
    check(resources, Owner::Pod, &path, faults);
    let sum = container_requests(spec);
    for (resource, wanted) in sum.iter().filter(|(resource, _)| is_pod_level(resource)) {
        let pod_request = resources.request(resource).unwrap_or(Quantity::ZERO);
        if *wanted > pod_request {
            let wanted = format_args!("must be at least the {wanted} that the containers request");
            faults.invalid(&path.key("requests").key(resource), &pod_request.to_string(), wanted);
        }
    }
    for (index, container) in spec.containers.iter().enumerate() {
        for (resource, limit) in container.resources.limits.iter() {
            if let Some(most) = resources.limit(resource).filter(|most| limit > most) {
                let (limits, wanted) = (path.key("limits"), format_args!("must be at least the {limit} that"));
                let wanted = format_args!("{wanted} containers[{index}] may use");
                faults.invalid(&limits.key(resource), &most.to_string(), wanted);
            }
        }
    }
}

/// A pod may have fewer kinds of resource than a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Container,
    Pod,
}

fn check(resources: &ResourceRequirements, owner: Owner, path: &Path<'_>, faults: &mut Faults) {
    let ResourceRequirements { limits, requests, .. } = resources;
    let path_of_limits = path.key("limits");
    for (resource, quantity) in limits.iter() {
        check_entry(resource, *quantity, owner, &path_of_limits, faults);
    }
    let path_of_requests = path.key("requests");
    for (resource, request) in requests.iter() {
        check_entry(resource, *request, owner, &path_of_requests, faults);
        check_request(resource, *request, limits, &path_of_requests, faults);
    }
    let has = |holds: fn(&str) -> bool| limits.iter().chain(requests.iter()).any(|(resource, _)| holds(resource));
    if has(is_huge_pages) && !has(|resource| resource == CPU || resource == MEMORY) {
        faults.other(path, "huge pages need cpu or memory beside them");
    }
}

fn check_request(resource: &str, request: Quantity, limits: &ResourceList, path: &Path<'_>, faults: &mut Faults) {
    let path = path.key(resource);
    // Only native resources other than huge pages can be overcommitted.
    let overcommit = is_native(resource) && !is_huge_pages(resource);
    match limits.get(resource) {
        Some(limit) if !overcommit && request != *limit => {
            faults.invalid(&path, &request.to_string(), format_args!("must be the limit, {limit}"));
        }
        Some(limit) if request > *limit => {
            faults.invalid(&path, &request.to_string(), format_args!("must be at most the limit, {limit}"));
        }
        None if !overcommit => faults.other(&path, "must have a limit as well, for it cannot be overcommitted"),
        Some(_) | None => {}
    }
}

/// Checks one entry of a list of limits or requests.
fn check_entry(resource: &str, quantity: Quantity, owner: Owner, path: &Path<'_>, faults: &mut Faults) {
    check_name(resource, owner, path, faults);
    let path = path.key(resource);
    let wanted = if quantity.is_negative() {
        "must not be negative"
    } else if is_extended_resource(resource) && quantity.nanos() % 1_000_000_000 != 0 {
        "must be a whole number"
    } else if is_huge_pages(resource) && !is_whole_pages(resource, quantity) {
        "must be a multiple of the page size"
    } else {
        return;
    };
    faults.invalid(&path, &quantity.to_string(), wanted);
}

fn check_name(resource: &str, owner: Owner, path: &Path<'_>, faults: &mut Faults) {
    let (holds, wanted) = match owner {
        Owner::Container => {
            let standard = is_pod_level(resource) || resource == EPHEMERAL_STORAGE;
            let with_domain = resource.contains('/') && names::is_qualified_name(resource);
            (standard || (with_domain && (is_native(resource) || is_extended_resource(resource))), CONTAINER_WANTED)
        }
        Owner::Pod => (is_pod_level(resource), POD_WANTED),
    };
    if !holds {
        faults.invalid(path, resource, wanted);
    }
}

const CONTAINER_WANTED: &str =
    "must be cpu, memory, ephemeral-storage, hugepages-<size> or a name with a domain such as example.com/device";
const POD_WANTED: &str = "must be cpu, memory or hugepages-<size>";

fn is_huge_pages(resource: &str) -> bool {
    resource.starts_with(HUGE_PAGES_PREFIX)
}

/// Whether a pod may have the resource at pod level.
fn is_pod_level(resource: &str) -> bool {
    [CPU, MEMORY].contains(&resource) || is_huge_pages(resource)
}

/// Whether the resource has no domain, or one of Kubernetes.
fn is_native(resource: &str) -> bool {
    !resource.contains('/') || resource.contains("kubernetes.io/")
}

/// Whether the resource belongs to a third party: counted in whole numbers, never overcommitted.
pub fn is_extended_resource(resource: &str) -> bool {
    // With a quota's prefix before it, the name must still be valid.
    const QUOTA: &str = "requests.";
    !is_native(resource)
        && !resource.starts_with(QUOTA)
        && resource.len() < 512
        && names::is_qualified_name(&[QUOTA, resource].concat())
}

fn is_whole_pages(resource: &str, quantity: Quantity) -> bool {
    let size = resource.strip_prefix(HUGE_PAGES_PREFIX).and_then(|size| size.parse::<Quantity>().ok());
    size.is_some_and(|size| {
        size > Quantity::ZERO && size.nanos() % 1_000_000_000 == 0 && quantity.value() % size.value() == 0
    })
}

fn check_claims(claims: &[ResourceClaim], scope: &Scope<'_>, path: &Path<'_>, faults: &mut Faults) {
    let mut taken = Seen::default();
    let mut taken_in_part = Seen::default();
    for (index, claim) in claims.iter().enumerate() {
        let path = path.index(index);
        let (name, request) = (claim.name.as_str(), claim.request.as_str());
        if name.is_empty() {
            faults.required(&path.key("name"));
            continue;
        }
        if !scope.claims.contains(name) {
            faults.invalid(&path.key("name"), name, "no entry of the pod's resourceClaims has this name");
        }
        faults.optional_name(&path.key("request"), request, &DNS_LABEL);
        // A claim without a request covers all requests of the claim.
        let again = taken.contains(&(name, "")) || (request.is_empty() && taken_in_part.contains(&name));
        if !taken.insert((name, request)) || again {
            faults.duplicate(&path.key("name"), name);
        }
        taken_in_part.insert(name);
    }
}
