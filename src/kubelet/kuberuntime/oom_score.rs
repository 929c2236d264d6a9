//! OOM scores of containers. Pure.

use super::pod_index::{MemoryRequests, PodIndex, memory_request};
use crate::types::api::{Container, QosClass};

/// `oom_score_adj` of a container: the larger its memory request, the later it is killed.
pub(super) fn oom_score_adj(index: &PodIndex<'_>, container: &Container, is_init: bool, memory_capacity: u64) -> i64 {
    let pod = index.pod;
    let node_critical = pod.is_critical() && pod.spec.priority_class_name == "system-node-critical";
    match index.class() {
        _ if node_critical => GUARANTEED_SCORE_ADJ,
        QosClass::Guaranteed => GUARANTEED_SCORE_ADJ,
        QosClass::BestEffort => BEST_EFFORT_SCORE_ADJ,
        QosClass::Burstable => {
            let MemoryRequests { least, share } = index.memory();
            let mut score = score(memory_request(container).saturating_add(share), memory_capacity);
            if is_init && container.is_sidecar() {
                // A sidecar must not be killed before the main containers.
                score = score.min(self::score(least.saturating_add(share), memory_capacity));
            }
            score.clamp(BEST_EFFORT_SCORE_ADJ + GUARANTEED_SCORE_ADJ, BEST_EFFORT_SCORE_ADJ - 1)
        }
    }
}

fn score(memory_request: i64, memory_capacity: u64) -> i64 {
    let capacity = i128::from(memory_capacity.max(1));
    let share = i128::from(memory_request) * 1000 / capacity;
    1000 - i64::try_from(share).unwrap_or(1000)
}

// pkg/kubelet/qos/policy.go: almost never killed, but before the kubelet itself (-999).
const GUARANTEED_SCORE_ADJ: i64 = -997;
const BEST_EFFORT_SCORE_ADJ: i64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::{MEMORY, Pod, RestartPolicy, annotations};

    const GIB: u64 = 1 << 30;

    fn container(memory: &str) -> Container {
        let mut container = Container::default();
        container.resources.requests.insert(MEMORY, memory.parse().unwrap());
        container
    }

    fn pod(memory: &str) -> Pod {
        let mut pod = Pod::default();
        pod.spec.containers = vec![container(memory)];
        pod
    }

    fn first(pod: &Pod, capacity: u64) -> i64 {
        oom_score_adj(&PodIndex::new(pod), &pod.spec.containers[0], false, capacity)
    }

    #[test]
    fn burstable_score_depends_on_the_request() {
        assert_eq!(first(&pod("100Mi"), GIB), 903);
        assert_eq!(first(&pod("1"), GIB), 999);
        assert_eq!(first(&pod("1Gi"), GIB), 3);
        assert_eq!(first(&pod("8Ei"), GIB), 3);
        assert_eq!(first(&pod("1Mi"), 0), 3);
    }

    #[test]
    fn best_effort_is_killed_first_and_guaranteed_or_critical_last() {
        let mut pod = Pod::default();
        pod.spec.containers = vec![Container::default()];
        assert_eq!(first(&pod, GIB), 1000);
        pod.spec.priority_class_name = "system-node-critical".to_owned();
        assert_eq!(first(&pod, GIB), 1000);
        pod.metadata.annotations.insert(annotations::CONFIG_SOURCE, "file".to_owned());
        assert_eq!(first(&pod, GIB), -997);
        let limits = [("cpu", "1"), ("memory", "1Mi")].map(|(name, limit)| (name, limit.parse().unwrap()));
        let mut pod = Pod::default();
        let mut container = Container::default();
        container.resources.limits = limits.into_iter().collect();
        container.resources.requests = container.resources.limits.clone();
        pod.spec.containers = vec![container];
        assert_eq!(first(&pod, GIB), -997);
    }

    #[test]
    fn sidecar_is_not_killed_before_main_containers() {
        let mut pod = pod("512Mi");
        let mut sidecar = container("1Mi");
        sidecar.restart_policy = Some(RestartPolicy::Always);
        assert_eq!(oom_score_adj(&PodIndex::new(&pod), &sidecar, true, GIB), 500);
        assert_eq!(oom_score_adj(&PodIndex::new(&pod), &sidecar, false, GIB), 999);
        pod.spec.init_containers = vec![container("1Mi")];
        assert_eq!(oom_score_adj(&PodIndex::new(&pod), &pod.spec.init_containers[0], true, GIB), 999);
    }

    #[test]
    fn pod_level_request_is_shared() {
        let mut pod = pod("256Mi");
        pod.spec.containers.push(container("256Mi"));
        let whole = container("1Gi").resources;
        pod.spec.resources = Some(Box::new(whole));
        assert_eq!(first(&pod, 2 * GIB), 750);
    }
}
