//! Admission under node pressure. Pure.

use super::Rejection;
use crate::state::pods::Pressure;
use crate::types::api::{Pod, QosClass, Reason, TaintEffect, Toleration, qos_class};
use crate::types::sorted::SortedSet;

const MEMORY_PRESSURE_TAINT: &str = "node.kubernetes.io/memory-pressure";

/// `spared`: a pod that is exempt from eviction as well.
pub(crate) fn check_pressure(pod: &Pod, active: &SortedSet<Pressure>, spared: bool) -> Result<(), Rejection> {
    if active.is_empty() || spared {
        return Ok(());
    }
    let only_memory = active.iter().eq([&Pressure::Memory]);
    let asks_for_something = qos_class(pod) != QosClass::BestEffort;
    if only_memory && (asks_for_something || pod.spec.tolerations.iter().any(tolerates_memory_pressure)) {
        return Ok(());
    }
    let held: Vec<&str> = active.iter().map(|pressure| pressure.as_str()).collect();
    let message = format!("The node had condition: [{}]. ", held.join(" "));
    Err(Rejection { reason: Reason::EVICTED, message })
}

fn tolerates_memory_pressure(toleration: &Toleration) -> bool {
    toleration.tolerates(MEMORY_PRESSURE_TAINT, "", TaintEffect::NoSchedule.as_str(), false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::{Container, MEMORY, TolerationOperator};

    fn pod(request: bool, tolerations: Vec<Toleration>) -> Pod {
        let mut container = Container::default();
        if request {
            container.resources.requests = [(MEMORY, "1Mi".parse().unwrap())].into_iter().collect();
        }
        let mut pod = Pod::default();
        pod.spec.containers = vec![container];
        pod.spec.tolerations = tolerations;
        pod
    }

    #[track_caller]
    fn check(pod: &Pod, held: &[Pressure], expected: Option<&str>) {
        let found = check_pressure(pod, &held.iter().copied().collect(), false);
        let found = found.err().map(|rejection| {
            assert_eq!(rejection.reason, Reason::EVICTED);
            rejection.message
        });
        assert_eq!(found.as_deref(), expected);
        assert_eq!(check_pressure(pod, &held.iter().copied().collect(), true), Ok(()));
    }

    #[test]
    fn memory_pressure_rejects_only_intolerant_best_effort_pods() {
        let memory = "The node had condition: [MemoryPressure]. ";
        check(&pod(false, Vec::new()), &[], None);
        check(&pod(false, Vec::new()), &[Pressure::Memory], Some(memory));
        check(&pod(true, Vec::new()), &[Pressure::Memory], None);
        let toleration =
            |key: &str, operator, effect| Toleration { key: key.to_owned(), operator, effect, ..Toleration::default() };
        let exists = Some(TolerationOperator::Exists);
        for (toleration, takes) in [
            (toleration(MEMORY_PRESSURE_TAINT, exists, None), true),
            (toleration(MEMORY_PRESSURE_TAINT, None, Some(TaintEffect::NoSchedule)), true),
            (toleration("", exists, Some(TaintEffect::NoSchedule)), true),
            (toleration("", exists, Some(TaintEffect::NoExecute)), false),
            (toleration("node.kubernetes.io/disk-pressure", exists, None), false),
        ] {
            check(&pod(false, vec![toleration]), &[Pressure::Memory], (!takes).then_some(memory));
        }
    }

    #[test]
    fn other_pressure_rejects_all_pods() {
        let disk = "The node had condition: [DiskPressure]. ";
        check(&pod(true, Vec::new()), &[Pressure::Disk], Some(disk));
        let both = "The node had condition: [DiskPressure MemoryPressure]. ";
        check(&pod(true, Vec::new()), &[Pressure::Memory, Pressure::Disk], Some(both));
        check(&pod(true, Vec::new()), &[Pressure::Pid], Some("The node had condition: [PIDPressure]. "));
    }
}
