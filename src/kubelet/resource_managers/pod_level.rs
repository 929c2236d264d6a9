//! Pods with resources of their own (`PodLevelResourceManagers`): which containers have exclusive CPUs and memory, and
//! which share the pool of their pod. Pure.

use super::rejection::AllocationRejection;
use crate::platform::config::{Config, Gate};
use crate::types::api::{
    CPU, Container, HUGE_PAGES_PREFIX, MEMORY, Pod, QosClass, Quantity, Reason, is_guaranteed_container, qos_class,
};

/// How the managers treat pods with resources of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PodLevel {
    /// They get nothing exclusive: the gate is off.
    #[default]
    Ignored,
    /// Their containers get exclusive resources of the node, as those of other pods.
    ByContainer,
    /// The pod gets resources as a whole, which its containers divide: the topology manager's scope is `pod`.
    Whole,
}

/// The containers in the order in which they start, and whether each one ends before the next one starts.
pub(super) fn all_containers(pod: &Pod) -> impl Iterator<Item = (&Container, bool)> {
    let init = pod.spec.init_containers.iter().map(|container| (container, !container.is_sidecar()));
    init.chain(pod.spec.containers.iter().map(|container| (container, false)))
}

impl PodLevel {
    pub(super) fn of(config: &Config) -> Self {
        let is_on = |gate| config.gates.is_on(gate);
        if !is_on(Gate::PodLevelResources) || !is_on(Gate::PodLevelResourceManagers) {
            Self::Ignored
        } else if config.managers.topology.is_some_and(|topology| topology.pod_scope) {
            Self::Whole
        } else {
            Self::ByContainer
        }
    }

    /// Whether a guaranteed pod gets its CPUs and memory as a whole.
    pub(super) fn is_whole(self, pod: &Pod) -> bool {
        self == Self::Whole && has_own_resources(pod) && qos_class(pod) == QosClass::Guaranteed
    }

    /// Whether the container may have exclusive resources.
    fn is_eligible(self, pod: &Pod, container: &Container) -> bool {
        let of_pod = has_own_resources(pod);
        qos_class(pod) == QosClass::Guaranteed
            && (!of_pod || self != Self::Ignored && is_guaranteed_container(container))
    }

    /// Number of exclusive CPUs of a container.
    pub(super) fn own_cpus(self, pod: &Pod, container: &Container) -> usize {
        if self.is_eligible(pod, container) { integer(container.resources.request(CPU)) } else { 0 }
    }

    /// Memory requests of a guaranteed container, by type.
    pub(super) fn own_memory(self, pod: &Pod, container: &Container) -> Vec<(String, u64)> {
        if !self.is_eligible(pod, container) {
            return Vec::new();
        }
        let mut requests = memory_of(container.resources.requests.iter());
        requests.retain(|(_, size)| !has_own_resources(pod) || *size > 0);
        requests
    }
}

fn has_own_resources(pod: &Pod) -> bool {
    pod.spec
        .resources
        .as_deref()
        .is_some_and(|resources| !resources.requests.is_empty() || !resources.limits.is_empty())
}

/// The CPUs of a pod as a whole; zero unless it requests an integer.
pub(super) fn cpus_of_pod(pod: &Pod) -> usize {
    integer(pod.spec.resources.as_deref().and_then(|resources| resources.requests.get(CPU).copied()))
}

/// The memory of a pod as a whole, by type.
pub(super) fn memory_of_pod(pod: &Pod) -> Vec<(String, u64)> {
    let mut requests = memory_of(pod.spec.resources.iter().flat_map(|resources| resources.requests.iter()));
    requests.retain(|(_, size)| *size > 0);
    requests
}

fn integer(cpus: Option<Quantity>) -> usize {
    let cpus = cpus.unwrap_or_default();
    let is_integer = i128::from(cpus.value()) * 1_000_000_000 == cpus.nanos();
    if is_integer { usize::try_from(cpus.value()).unwrap_or(0) } else { 0 }
}

fn memory_of<'a>(requests: impl Iterator<Item = (&'a str, &'a Quantity)>) -> Vec<(String, u64)> {
    let memory = requests.filter(|(kind, _)| *kind == MEMORY || kind.starts_with(HUGE_PAGES_PREFIX));
    memory.map(|(kind, size)| (kind.to_owned(), u64::try_from(size.value()).unwrap_or(0))).collect()
}

/// Rejects a pod whose exclusive containers leave nothing of its `total` for those that share its pool. `own`: what a
/// container has exclusively; `None`: it shares the pool. `kind`: `cpu` or a type of memory.
pub(super) fn check_pool(
    pod: &Pod,
    kind: &str,
    total: u64,
    requested: &dyn Fn(&Container) -> Option<u64>,
) -> Result<(), AllocationRejection> {
    let (of, noun, rest) =
        if kind == CPU { ("cpus".to_owned(), "cpus", "cpus") } else { (format!("of {kind}"), kind, MEMORY) };
    let rejected = |why: String| Err((Reason::EMPTY_POD_SHARED_POOL_ERROR, format!("pod rejected, {why}")));
    // What containers that do not end have exclusively.
    let (mut stays, mut shares) = (0u64, false);
    for (container, ends) in all_containers(pod) {
        let available = total.saturating_sub(stays);
        match (requested(container), ends) {
            (Some(requested), true) if requested > available => {
                return rejected(format!(
                    "largest exclusive init container requests {requested} {of}, but only {available} available"
                ));
            }
            (None, true) if available == 0 => {
                return rejected(format!("pod has shared init containers but no {noun} available for them"));
            }
            (_, true) => {}
            (Some(requested), false) => stays = stays.saturating_add(requested),
            (None, false) => shares = true,
        }
    }
    if shares && stays >= total {
        return rejected(format!(
            "sum of exclusive container {kind} requests equals pod budget, leaving no {rest} for shared containers"
        ));
    }
    Ok(())
}
