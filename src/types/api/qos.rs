//! The quality of service class of a pod. Pure.

use super::container::Container;
use super::pod::Pod;
use super::pod_status::QosClass;
use super::resources::{CPU, MEMORY, ResourceList};

/// The class in the pod's status if it has one, or else computed from its spec.
pub fn qos_class(pod: &Pod) -> QosClass {
    pod.status.qos_class.unwrap_or_else(|| compute(pod))
}

fn compute(pod: &Pod) -> QosClass {
    let mut requests = Sum::default();
    let mut limits = Sum::default();
    // Guaranteed requires both limits on every container.
    let mut all_limited = true;
    if let Some(resources) = &pod.spec.resources {
        requests.add(&resources.requests);
        all_limited = limits.add(&resources.limits);
    } else {
        for container in pod.spec.containers.iter().chain(&pod.spec.init_containers) {
            requests.add(&container.resources.requests);
            all_limited &= limits.add(&container.resources.limits);
        }
    }
    if requests == Sum::default() && limits == Sum::default() {
        QosClass::BestEffort
    } else if all_limited && requests == limits {
        QosClass::Guaranteed
    } else {
        QosClass::Burstable
    }
}

/// Whether the container has the limits that make a pod guaranteed, whatever the class of its pod is.
pub fn is_guaranteed_container(container: &Container) -> bool {
    let (mut requests, mut limits) = (Sum::default(), Sum::default());
    requests.add(&container.resources.requests);
    limits.add(&container.resources.limits) && requests == limits
}

/// Sums of CPU and memory. 0 means not given, as only positive quantities count.
#[derive(Default, PartialEq, Eq)]
struct Sum {
    cpu: i128,
    memory: i128,
}

impl Sum {
    /// Adds a list and returns whether it names both resources.
    fn add(&mut self, list: &ResourceList) -> bool {
        let positive = |resource| list.get(resource).map(|quantity| quantity.nanos()).filter(|nanos| *nanos > 0);
        let (cpu, memory) = (positive(CPU), positive(MEMORY));
        self.cpu = self.cpu.saturating_add(cpu.unwrap_or(0));
        self.memory = self.memory.saturating_add(memory.unwrap_or(0));
        cpu.is_some() && memory.is_some()
    }
}
