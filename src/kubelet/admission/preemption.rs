//! Selects the pods to preempt for a critical pod. Pure.
//!
//! `getPodsToPreempt` in pkg/kubelet/preemption: best-effort pods before burstable ones before guaranteed ones;
//! within a class, those that free most of what is missing, so that few pods are preempted.

use std::cmp::Ordering;

use super::fit::{InsufficientResource, takes};
use crate::types::api::{CPU, MEMORY, Pod, PodUid, QosClass, qos_class};

/// The pods to preempt so that `pod` fits; `None` if even all would not be enough. Upstream counts every static pod
/// as critical; with `static_pods_count` its priority decides.
pub(super) fn victims(
    pod: &Pod,
    other_pods: &[&Pod],
    lacks: &[InsufficientResource],
    static_pods_count: bool,
) -> Option<Vec<PodUid>> {
    let missing: Vec<MissingResources<'_>> =
        lacks.iter().map(|lack| MissingResources { resource: &lack.resource, amount: lack.missing() }).collect();
    let of_class = |class| -> Vec<&Pod> {
        let may_end = other_pods.iter().copied().filter(|other| is_preemptable(pod, other, static_pods_count));
        may_end.filter(|other| qos_class(other) == class).collect()
    };
    let [best_effort, burstable, guaranteed] =
        [QosClass::BestEffort, QosClass::Burstable, QosClass::Guaranteed].map(of_class);
    // A higher class loses pods only for what all pods of the lower classes could not free.
    let still_missing = without(&without(&missing, &best_effort), &burstable);
    let mut chosen = nearest(guaranteed, still_missing)?;
    let still_missing = without(&without(&missing, &best_effort), &chosen);
    chosen.append(&mut nearest(burstable, still_missing)?);
    let still_missing = without(&missing, &chosen);
    chosen.append(&mut nearest(best_effort, still_missing)?);
    Some(chosen.into_iter().map(|pod| pod.metadata.uid.clone()).collect())
}

/// `Preemptable` in pkg/kubelet/types: the other pod is not critical, or has a lower priority.
fn is_preemptable(pod: &Pod, other: &Pod, static_pods_count: bool) -> bool {
    let is_critical = |pod: &Pod| pod.is_spared(static_pods_count);
    let is_lower =
        || pod.spec.priority.zip(other.spec.priority).is_some_and(|(pod_priority, other)| pod_priority > other);
    (is_critical(pod) && !is_critical(other)) || is_lower()
}

/// How much of a resource still has to be freed.
#[derive(Clone, Copy, Debug)]
struct MissingResources<'a> {
    resource: &'a str,
    amount: i64,
}

fn without<'a>(missing: &[MissingResources<'a>], pods: &[&Pod]) -> Vec<MissingResources<'a>> {
    let still_missing = missing.iter().map(|missing| {
        let freed = pods.iter().fold(0i64, |sum, pod| sum.saturating_add(takes(pod, missing.resource)));
        MissingResources { amount: missing.amount.saturating_sub(freed), ..*missing }
    });
    still_missing.filter(|missing| missing.amount > 0).collect()
}

/// Repeatedly takes the pod that leaves least missing, until nothing is missing.
fn nearest<'p>(mut pods: Vec<&'p Pod>, mut missing: Vec<MissingResources<'_>>) -> Option<Vec<&'p Pod>> {
    let mut chosen = Vec::new();
    while !missing.is_empty() {
        let by_distance = |one: &(usize, &&Pod), other: &(usize, &&Pod)| {
            let distances = distance(one.1, &missing).total_cmp(&distance(other.1, &missing));
            distances.then_with(|| smaller(one.1, other.1))
        };
        let (index, _) = pods.iter().enumerate().min_by(by_distance)?;
        let pod = pods.swap_remove(index);
        missing = without(&missing, &[pod]);
        chosen.push(pod);
    }
    Some(chosen)
}

/// How far a pod is from freeing everything missing; each resource has the same weight whatever its unit.
#[expect(clippy::cast_precision_loss, reason = "only compared")]
fn distance(pod: &Pod, missing: &[MissingResources<'_>]) -> f64 {
    let shares = missing.iter().map(|missing| {
        let left = missing.amount.saturating_sub(takes(pod, missing.resource)).max(0);
        left as f64 / missing.amount as f64
    });
    shares.map(|share| share * share).sum()
}

fn smaller(one: &Pod, other: &Pod) -> Ordering {
    let by = |resource| takes(one, resource).cmp(&takes(other, resource));
    by(MEMORY).then_with(|| by(CPU))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::{Container, ResourceList};

    fn list(cpu: &str, memory: &str) -> ResourceList {
        [(CPU, cpu), (MEMORY, memory)].into_iter().map(|(name, value)| (name, value.parse().unwrap())).collect()
    }

    /// `class` is the first letter of the QoS class.
    fn pod(uid: &str, priority: Option<i32>, class: char, cpu: &str, memory: &str) -> Pod {
        let mut container = Container::default();
        if class != 'e' {
            container.resources.requests = list(cpu, memory);
        }
        if class == 'g' {
            container.resources.limits = list(cpu, memory);
        }
        let mut pod = Pod::default();
        pod.metadata.uid = uid.into();
        pod.spec.priority = priority;
        pod.spec.containers = vec![container];
        pod
    }

    fn lack(resource: &str, missing: i64) -> InsufficientResource {
        InsufficientResource { resource: resource.to_owned(), requested: missing, used: 0, capacity: 0 }
    }

    #[track_caller]
    fn check(pod: &Pod, others: &[Pod], lacks: &[InsufficientResource], expected: Option<&[&str]>) {
        let others: Vec<&Pod> = others.iter().collect();
        let found = victims(pod, &others, lacks, false);
        let found = found.as_ref().map(|uids| uids.iter().map(PodUid::as_str).collect::<Vec<_>>());
        assert_eq!(found.as_deref(), expected);
    }

    fn critical() -> Pod {
        pod("c", Some(2_000_000_000), 'b', "1", "1Gi")
    }

    #[test]
    fn few_pods_of_the_lowest_classes_are_preempted() {
        let others = [
            pod("g", None, 'g', "1", "1Gi"),
            pod("b-large", None, 'b', "1", "1Gi"),
            pod("b-small", None, 'b', "500m", "128Mi"),
            pod("b-tiny", None, 'b', "100m", "64Mi"),
        ];
        check(&critical(), &others, &[lack(CPU, 400)], Some(&["b-small"]));
        check(&critical(), &others, &[lack(CPU, 900)], Some(&["b-large"]));
        check(&critical(), &others, &[lack(CPU, 1100)], Some(&["b-large", "b-tiny"]));
        // All burstable pods are not enough: a guaranteed one is taken, and then only the burstable ones still
        // needed.
        check(&critical(), &others, &[lack(CPU, 2000)], Some(&["g", "b-large"]));
        check(&critical(), &others, &[lack(CPU, 3000)], None);
        check(&critical(), &others, &[lack(CPU, 300), lack(MEMORY, 1 << 30)], Some(&["b-large"]));
    }

    #[test]
    fn pod_slot_is_freed_by_a_best_effort_pod() {
        let others = [pod("b", None, 'b', "100m", "1Mi"), pod("e", None, 'e', "", "")];
        check(&critical(), &others, &[lack("pods", 1)], Some(&["e"]));
        check(&critical(), &others, &[lack("pods", 2)], Some(&["b", "e"]));
        check(&critical(), &others, &[lack(CPU, 100), lack("pods", 1)], Some(&["b"]));
    }

    #[test]
    fn pod_is_preempted_for_a_critical_or_higher_priority_one() {
        let others = |priority| [pod("o", priority, 'b', "1", "1Gi")];
        let lacks = [lack(CPU, 1)];
        check(&critical(), &others(Some(2_000_000_000)), &lacks, None);
        check(&critical(), &others(Some(1_999_999_999)), &lacks, Some(&["o"]));
        check(&pod("p", Some(5), 'b', "1", "1Gi"), &others(Some(4)), &lacks, Some(&["o"]));
        check(&pod("p", Some(5), 'b', "1", "1Gi"), &others(Some(5)), &lacks, None);
        check(&pod("p", Some(5), 'b', "1", "1Gi"), &others(None), &lacks, None);
        // A static pod is critical whatever its priority: it is preempted only if both have a priority.
        let mut of_file = pod("p", None, 'b', "1", "1Gi");
        of_file.metadata.annotations.insert("kubernetes.io/config.source", "file".to_owned());
        check(&of_file, &others(None), &lacks, Some(&["o"]));
        let mut other = others(None);
        other[0].metadata.annotations.insert("kubernetes.io/config.source", "file".to_owned());
        check(&of_file, &other, &lacks, None);
        // With `static_pods_count`, only system priorities are critical.
        let of_system = Pod { spec: critical().spec, ..of_file.clone() };
        for (pod, expected) in [(&of_system, Some(vec!["o".into()])), (&of_file, None)] {
            assert_eq!(victims(pod, &[&other[0]], &lacks, true), expected);
        }
    }
}
