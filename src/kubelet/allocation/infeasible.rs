//! Whether a resize is possible at all, regardless of the node's free resources. Pure.
//!
//! `podResizesAdmitHandler` in pkg/kubelet/allocation.

use crate::types::api::{CPU, Container, MEMORY, Pod, QosClass, ResizeRestartPolicy, qos_class};
use crate::types::sorted::SortedMap;

/// Why a resize is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Infeasible {
    QosClass,
    Swap,
    StaticCpuManager,
    StaticMemoryManager,
}

/// Node settings that can make a resize impossible.
#[derive(Clone, Copy)]
pub(crate) struct ResizeTerms<'a> {
    pub(crate) has_static_cpu_manager: bool,
    pub(crate) has_static_memory_manager: bool,
    /// Whether a container with these resources may swap in the pod.
    pub(crate) swaps: &'a dyn Fn(&Container) -> bool,
}

impl Infeasible {
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::QosClass => "Pod QOS Class may not change as a result of resizing",
            Self::Swap => "In-place resize of containers with swap is not supported.",
            Self::StaticCpuManager => {
                "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\""
            }
            Self::StaticMemoryManager => {
                "Resize is infeasible for Guaranteed Pods alongside Memory Manager policy \"Static\""
            }
        }
    }

    /// The label of `kubelet_pod_infeasible_resizes_total`.
    pub(crate) fn detail(self) -> &'static str {
        match self {
            Self::QosClass => "qos_class",
            Self::Swap => "swap_limitation",
            Self::StaticCpuManager => "guaranteed_pod_cpu_manager_static_policy",
            Self::StaticMemoryManager => "guaranteed_pod_memory_manager_static_policy",
        }
    }
}

/// Why `wanted` cannot replace `allocated`, the same pod with other resources; `None` if it can once there is room.
pub(crate) fn infeasible(allocated: &Pod, wanted: &Pod, terms: ResizeTerms<'_>) -> Option<Infeasible> {
    let class = qos_class(wanted);
    if qos_class(allocated) != class {
        // The API server refuses such a resize; a manifest is not checked by it.
        return Some(Infeasible::QosClass);
    }
    if pairs(allocated, wanted).any(|(old, new)| {
        old.resources.request(MEMORY) != new.resources.request(MEMORY)
            && !restarts_for_memory(old)
            && ((terms.swaps)(old) || (terms.swaps)(new))
    }) {
        return Some(Infeasible::Swap);
    }
    let of_pod = |pod: &Pod, resource| pod.spec.resources.as_deref().and_then(|resources| resources.request(resource));
    let differs = |resource| {
        of_pod(allocated, resource) != of_pod(wanted, resource)
            || pairs(allocated, wanted)
                .any(|(old, new)| old.resources.request(resource) != new.resources.request(resource))
    };
    if class != QosClass::Guaranteed {
        None
    } else if terms.has_static_cpu_manager && differs(CPU) {
        Some(Infeasible::StaticCpuManager)
    } else if terms.has_static_memory_manager && differs(MEMORY) {
        Some(Infeasible::StaticMemoryManager)
    } else {
        None
    }
}

/// The containers of both pods, by name.
fn pairs<'a>(allocated: &'a Pod, wanted: &'a Pod) -> impl Iterator<Item = (&'a Container, &'a Container)> {
    let all_containers = |pod: &'a Pod| pod.spec.init_containers.iter().chain(&pod.spec.containers);
    let wanted: SortedMap<&str, &Container> = all_containers(wanted).map(|new| (new.name.as_str(), new)).collect();
    all_containers(allocated).filter_map(move |old| Some((old, *wanted.get(old.name.as_str())?)))
}

fn restarts_for_memory(container: &Container) -> bool {
    let policy = container.resize_policy.iter().find(|policy| policy.resource_name == MEMORY);
    policy.is_some_and(|policy| policy.restart_policy == ResizeRestartPolicy::RestartContainer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::{ContainerResizePolicy, ResourceList};

    fn list(cpu: &str, memory: &str) -> ResourceList {
        [(CPU, cpu.parse().unwrap()), (MEMORY, memory.parse().unwrap())].into_iter().collect()
    }

    fn pod(requests: (&str, &str), limits: Option<(&str, &str)>) -> Pod {
        let mut container = Container { name: "main".to_owned(), ..Container::default() };
        container.resources.requests = list(requests.0, requests.1);
        if let Some((cpu, memory)) = limits {
            container.resources.limits = list(cpu, memory);
        }
        let mut pod = Pod::default();
        pod.spec.containers = vec![container];
        pod
    }

    fn guaranteed(cpu: &str, memory: &str) -> Pod {
        pod((cpu, memory), Some((cpu, memory)))
    }

    const NO_SWAP: &dyn Fn(&Container) -> bool = &|_| false;

    fn verdict(allocated: &Pod, wanted: &Pod, statics: (bool, bool)) -> Option<Infeasible> {
        let (has_static_cpu_manager, has_static_memory_manager) = statics;
        infeasible(allocated, wanted, ResizeTerms { has_static_cpu_manager, has_static_memory_manager, swaps: NO_SWAP })
    }

    #[test]
    fn qos_class_may_not_change() {
        let (old, new) = (guaranteed("1", "8Mi"), pod(("1", "8Mi"), Some(("2", "8Mi"))));
        assert_eq!(verdict(&old, &new, (false, false)), Some(Infeasible::QosClass));
        assert_eq!(verdict(&old, &guaranteed("2", "9Mi"), (false, false)), None);
    }

    #[test]
    fn static_managers_prevent_resizes_of_guaranteed_pods() {
        let old = guaranteed("1", "8Mi");
        let check = |new: &Pod, statics| verdict(&old, new, statics);
        assert_eq!(check(&guaranteed("2", "8Mi"), (true, true)), Some(Infeasible::StaticCpuManager));
        assert_eq!(check(&guaranteed("2", "8Mi"), (false, true)), None);
        assert_eq!(check(&guaranteed("1", "9Mi"), (true, true)), Some(Infeasible::StaticMemoryManager));
        assert_eq!(check(&guaranteed("1", "9Mi"), (true, false)), None);
        let whole = |cpu: &str, memory: &str| {
            let mut pod = pod(("1", "8Mi"), None);
            pod.spec.resources = Some(Box::new(guaranteed(cpu, memory).spec.containers[0].resources.clone()));
            pod
        };
        let of_pod = |new: &Pod, statics| verdict(&whole("2", "9Mi"), new, statics);
        assert_eq!(of_pod(&whole("3", "9Mi"), (true, true)), Some(Infeasible::StaticCpuManager));
        assert_eq!(of_pod(&whole("2", "10Mi"), (true, true)), Some(Infeasible::StaticMemoryManager));
        assert_eq!(of_pod(&whole("3", "10Mi"), (false, false)), None);
        let burstable = |cpu: &str| pod((cpu, "8Mi"), None);
        assert_eq!(verdict(&burstable("1"), &burstable("2"), (true, true)), None);
    }

    #[test]
    fn memory_of_a_container_that_swaps_changes_only_with_a_restart() {
        let all_swap: &dyn Fn(&Container) -> bool = &|_| true;
        let terms = ResizeTerms { has_static_cpu_manager: false, has_static_memory_manager: false, swaps: all_swap };
        let (mut old, new) = (pod(("1", "8Mi"), None), pod(("2", "9Mi"), None));
        assert_eq!(infeasible(&old, &new, terms), Some(Infeasible::Swap));
        assert_eq!(infeasible(&old, &pod(("2", "8Mi"), None), terms), None, "only CPU changes");
        old.spec.containers[0].resize_policy = vec![ContainerResizePolicy {
            resource_name: MEMORY.to_owned(),
            restart_policy: ResizeRestartPolicy::RestartContainer,
        }];
        assert_eq!(infeasible(&old, &new, terms), None);
    }
}
