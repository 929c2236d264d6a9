//! Pod-level resources. Pure.

use crate::types::api::{
    CPU, MEMORY, PodPhase, PodStatus, ResourceList, ResourceRequirements, pod_limits, pod_requests,
};

use super::{ResizeProgress, StatusInput};

/// Requests and limits of the pod (`convertToAPIPodLevelResourcesStatus` in pkg/kubelet/kubelet_pods.go).
///
/// While the API server has the pod as running, only CPU and memory are reported beside the pod's own resources. They
/// keep their previous values until a resize has taken effect.
pub(super) fn pod_resources(input: &StatusInput<'_>, previous: &PodStatus) -> ResourceRequirements {
    let spec = &input.pod.spec;
    let spec_resources = || spec.resources.as_deref().cloned().unwrap_or_default();
    if input.pod.status.phase != PodPhase::Running {
        return ResourceRequirements { requests: pod_requests(spec), limits: pod_limits(spec), ..spec_resources() };
    }
    let (requests, limits) = (pod_requests(spec), pod_limits(spec));
    let mut resources = spec_resources();
    if !resources.requests.contains_key(MEMORY) {
        if let Some(memory) = requests.get(MEMORY) {
            resources.requests.insert(MEMORY, *memory);
        }
    }
    let shown = previous.resources.as_deref().filter(|_| previous.phase == PodPhase::Running);
    let is_actuated = input.resize.progress == ResizeProgress::None;
    let keep = |list: &mut ResourceList, resource: &str, shown: Option<&ResourceList>, now: &ResourceList| match shown
        .and_then(|shown| shown.get(resource))
    {
        Some(quantity) => {
            let quantity = now.get(resource).filter(|_| is_actuated).unwrap_or(quantity);
            list.insert(resource, *quantity);
        }
        None => {
            if let (Some(quantity), Some(overhead)) = (list.get_mut(resource), spec.overhead.get(resource)) {
                *quantity = quantity.plus(*overhead);
            }
        }
    };
    keep(&mut resources.requests, CPU, shown.map(|shown| &shown.requests), &requests);
    for resource in [CPU, MEMORY] {
        keep(&mut resources.limits, resource, shown.map(|shown| &shown.limits), &limits);
    }
    resources
}
