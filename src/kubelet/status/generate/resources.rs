//! Pod-level resources. Pure.

use crate::types::api::{
    CPU, MEMORY, PodPhase, PodStatus, ResourceList, ResourceRequirements, pod_limits, pod_requests,
};

use super::StatusInput;

/// Requests and limits of the pod (`convertToAPIPodLevelResourcesStatus` in pkg/kubelet/kubelet_pods.go).
///
/// While the API server has the pod as running, only CPU and memory are reported beside the pod's own resources, with
/// their previous values: resources of a running pod change only by a resize.
pub(super) fn pod_resources(input: &StatusInput<'_>, previous: &PodStatus) -> ResourceRequirements {
    let spec = &input.pod.spec;
    let own = || spec.resources.as_deref().cloned().unwrap_or_default();
    if input.pod.status.phase != PodPhase::Running {
        return ResourceRequirements { requests: pod_requests(spec), limits: pod_limits(spec), ..own() };
    }
    let mut resources = own();
    if !resources.requests.contains_key(MEMORY) {
        if let Some(memory) = pod_requests(spec).get(MEMORY) {
            resources.requests.insert(MEMORY, *memory);
        }
    }
    let told = previous.resources.as_deref().filter(|_| previous.phase == PodPhase::Running);
    let keep = |list: &mut ResourceList, resource: &str, told: Option<&ResourceList>| match told
        .and_then(|told| told.get(resource))
    {
        Some(quantity) => drop(list.insert(resource, *quantity)),
        None => {
            if let (Some(quantity), Some(overhead)) = (list.get_mut(resource), spec.overhead.get(resource)) {
                *quantity = quantity.plus(*overhead);
            }
        }
    };
    keep(&mut resources.requests, CPU, told.map(|told| &told.requests));
    for resource in [CPU, MEMORY] {
        keep(&mut resources.limits, resource, told.map(|told| &told.limits));
    }
    resources
}
