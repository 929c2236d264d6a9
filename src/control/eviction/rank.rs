//! Ranks pods for eviction. Pure.
//!
//! The order of pkg/kubelet/eviction/helpers.go: usage above requests, then lower priority, then the largest excess.
//! Pods without measurements come first.

use std::cmp::{Ordering, Reverse};

use super::image_layout::CountedUsage;
use super::signals::Starved;
use super::usage::{Disk, MeasuredPod, PodUsage};
use crate::types::api::{EPHEMERAL_STORAGE, MEMORY, Pod, pod_requests};
use crate::types::sorted::SortOnce;

/// Sorts the pods to evict first to the front. `parts`: the disk usage that counts.
pub(crate) fn rank(pods: &mut [MeasuredPod<'_>], starved: Starved, parts: CountedUsage) {
    match starved {
        Starved::Memory => pods.sort_once_by(|a, b| by_excess(a, b, memory)),
        Starved::Storage => pods.sort_once_by(|a, b| by_excess(a, b, |pod, usage| storage(pod, usage, parts))),
        Starved::Inodes => pods.sort_once_by(|a, b| by_excess(a, b, |pod, usage| inodes(pod, usage, parts))),
        Starved::Pids => pods.sort_once_by(by_pids),
    }
}

/// Usage, request, and the value compared last.
struct RankedUsage {
    used: u64,
    requested: u64,
    deducted: u64,
}

fn by_excess(a: &MeasuredPod<'_>, b: &MeasuredPod<'_>, of: impl Fn(&Pod, &PodUsage) -> RankedUsage) -> Ordering {
    let (a_use, b_use) = match (a.usage, b.usage) {
        (Some(a_usage), Some(b_usage)) => (of(a.pod, a_usage), of(b.pod, b_usage)),
        (a_usage, b_usage) => return a_usage.is_some().cmp(&b_usage.is_some()),
    };
    let exceeds = |pod: &RankedUsage| Reverse(pod.used > pod.requested);
    let beyond = |pod: &RankedUsage| Reverse(i128::from(pod.used) - i128::from(pod.deducted));
    exceeds(&a_use)
        .cmp(&exceeds(&b_use))
        .then(priority(a.pod).cmp(&priority(b.pod)))
        .then(beyond(&a_use).cmp(&beyond(&b_use)))
}

fn by_pids(a: &MeasuredPod<'_>, b: &MeasuredPod<'_>) -> Ordering {
    let pids = |pod: &MeasuredPod<'_>| Reverse(pod.usage.map(|usage| usage.pids.unwrap_or(0)));
    let known = |pod: &MeasuredPod<'_>| pod.usage.is_some();
    priority(a.pod).cmp(&priority(b.pod)).then(known(a).cmp(&known(b))).then(pids(a).cmp(&pids(b)))
}

fn memory(pod: &Pod, usage: &PodUsage) -> RankedUsage {
    let requested = requested(pod, MEMORY);
    RankedUsage { used: usage.memory.unwrap_or(0), requested, deducted: requested }
}

fn storage(pod: &Pod, usage: &PodUsage, parts: CountedUsage) -> RankedUsage {
    let requested = requested(pod, EPHEMERAL_STORAGE);
    let beyond_claims = if parts.local { usage.beyond_claims() } else { 0 };
    let used = counted(usage, parts).bytes.saturating_add(beyond_claims);
    RankedUsage { used, requested, deducted: requested }
}

/// There are no inode requests; upstream compares inodes with the requested bytes.
fn inodes(pod: &Pod, usage: &PodUsage, parts: CountedUsage) -> RankedUsage {
    RankedUsage { used: counted(usage, parts).inodes, requested: 0, deducted: requested(pod, EPHEMERAL_STORAGE) }
}

fn counted(usage: &PodUsage, parts: CountedUsage) -> Disk {
    let layers = if parts.layers { usage.layers() } else { Disk::default() };
    let local = if parts.local { usage.local() } else { Disk::default() };
    layers.plus(local)
}

fn requested(pod: &Pod, resource: &str) -> u64 {
    let quantity = pod_requests(&pod.spec).get(resource).map_or(0, |quantity| quantity.value());
    u64::try_from(quantity).unwrap_or(0)
}

fn priority(pod: &Pod) -> i32 {
    pod.spec.priority.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::usage::{ClaimUsage, ContainerUsage, VolumeUsage};
    use super::*;
    use crate::types::api::Container;

    const ALL: CountedUsage = CountedUsage { layers: true, local: true };

    fn pod(name: &str, priority: i32, requests: &[(&'static str, &str)]) -> Pod {
        let mut container = Container::default();
        container.resources.requests = requests.iter().map(|(name, text)| (*name, text.parse().unwrap())).collect();
        let mut pod = Pod::default();
        pod.metadata.name = name.to_owned();
        pod.spec.priority = Some(priority);
        pod.spec.containers = vec![container];
        pod
    }

    #[track_caller]
    fn check(pods: &[(Pod, Option<PodUsage>)], starved: Starved, parts: CountedUsage, expected: &[&str]) {
        let mut ranked: Vec<_> = pods.iter().map(|(pod, usage)| MeasuredPod { pod, usage: usage.as_ref() }).collect();
        for _ in 0..ranked.len() {
            ranked.rotate_left(1);
            rank(&mut ranked, starved, parts);
            let names: Vec<_> = ranked.iter().map(|measured| measured.pod.metadata.name.as_str()).collect();
            assert_eq!(names, expected);
        }
    }

    #[test]
    fn data_beyond_a_claim_counts_on_the_node_disk_only() {
        let holds = |bytes, on_node_disk| {
            let disk = Disk { bytes, inodes: 1 };
            let claim = ClaimUsage { name: "data".to_owned(), disk, limit: 1000, on_node_disk };
            Some(PodUsage { claims: vec![claim], ..PodUsage::default() })
        };
        let pods = [
            (pod("beyond", 5, &[]), holds(1001, true)),
            (pod("apart", -2, &[]), holds(5000, false)),
            (pod("within", -1, &[]), holds(1000, true)),
        ];
        check(&pods, Starved::Storage, ALL, &["beyond", "apart", "within"]);
    }

    #[test]
    fn usage_above_requests_ranks_before_priority() {
        let uses = |memory| Some(PodUsage { memory: Some(memory), ..PodUsage::default() });
        let pods = [
            (pod("within", -5, &[(MEMORY, "1000")]), uses(900)),
            (pod("exact", -5, &[(MEMORY, "1000")]), uses(1000)),
            (pod("little", 0, &[(MEMORY, "100")]), uses(150)),
            (pod("much", 0, &[]), uses(60)),
            (pod("important", 7, &[]), uses(5000)),
            (pod("unknown", 100, &[]), None),
        ];
        let expected = ["unknown", "much", "little", "important", "exact", "within"];
        check(&pods, Starved::Memory, ALL, &expected);
    }

    #[test]
    fn only_usage_of_the_full_disk_counts() {
        let disk = |bytes| Disk { bytes, inodes: bytes };
        let uses = |layer, volume, in_memory| {
            let container = ContainerUsage { layer: Some(disk(layer)), ..ContainerUsage::default() };
            let volumes = vec![VolumeUsage { name: "v".to_owned(), disk: disk(volume), in_memory }];
            Some(PodUsage { containers: vec![container], volumes, ..PodUsage::default() })
        };
        let pods = [
            (pod("files", 0, &[]), Some(PodUsage { pod_files: disk(200), ..PodUsage::default() })),
            (pod("layer", 0, &[]), uses(100, 0, false)),
            (pod("volume", 0, &[]), uses(0, 70, false)),
            (pod("memory", 0, &[]), uses(1, 1000, true)),
            (pod("asked", 0, &[(EPHEMERAL_STORAGE, "1000")]), uses(500, 400, false)),
        ];
        check(&pods, Starved::Storage, ALL, &["files", "layer", "volume", "memory", "asked"]);
        let local = CountedUsage { layers: false, local: true };
        check(&pods[..3], Starved::Storage, local, &["files", "volume", "layer"]);
        check(&pods, Starved::Inodes, ALL, &["files", "layer", "volume", "memory", "asked"]);
    }

    #[test]
    fn process_count_ranks_after_priority() {
        let uses = |pids| Some(PodUsage { pids: Some(pids), ..PodUsage::default() });
        let pods = [
            (pod("low", -1, &[]), uses(1)),
            (pod("many", 0, &[]), uses(500)),
            (pod("few", 0, &[]), uses(5)),
            (pod("high", 1, &[]), uses(9000)),
        ];
        check(&pods, Starved::Pids, ALL, &["low", "many", "few", "high"]);
    }
}
