//! Which pods share a shim of the runtime. Pure.
//!
//! containerd's shim for runc serves every sandbox whose annotations have the same group: the first one starts the shim,
//! the others join it. A shim takes several megabytes, and a killed one ends the containers of its whole group. So only
//! static pods share shims, only with pods of their priority, and at most ten with each other.

use crate::types::api::annotations::{OWN_SHIM, yes_or_no};
use crate::types::api::{Pod, PodSpec};
use crate::types::sorted::SortedMap;

/// Annotation of a sandbox that the runtime passes to the shim, if it is configured to.
pub(crate) const SHIM_GROUP: &str = "io.containerd.runc.v2.group";

/// Most pods of one shim. It saves nine of ten shims, and a killed one ends less than a tenth of a full node.
pub(super) const SHIM_GROUP_PODS: usize = 10;

/// The group of a pod's next sandbox; `None`: a shim of its own.
///
/// The groups of a priority are numbered. A pod keeps its group, which is that of its newest sandbox (`present`), and
/// otherwise has the first one with a free place. So the groups depend only on what the runtime reports: they are the
/// same after a restart of the agent and after a boot. `taken_groups` are those of all other pods that run or start.
pub(super) fn shim_group<'a>(
    pod: &Pod,
    present: Option<&str>,
    taken_groups: impl Iterator<Item = &'a str>,
) -> Option<String> {
    let PodSpec { runtime_class_name, priority, .. } = &pod.spec;
    let has_own = pod.annotation(OWN_SHIM).and_then(yes_or_no) == Some(true);
    // The handler of a class may have another shim program, which would join the group at the same socket.
    if !pod.is_static() || has_own || runtime_class_name.is_some() {
        return None;
    }
    let prefix = format!("coracle-{}-", priority.unwrap_or_default());
    let number = |group: &str| group.strip_prefix(&prefix)?.parse::<u32>().ok();
    let mut pods: SortedMap<u32, usize> = SortedMap::new();
    for taken in taken_groups.filter_map(number) {
        *pods.entry(taken).or_default() += 1;
    }
    let has_room = |number: &u32| pods.get(number).is_none_or(|pods| *pods < SHIM_GROUP_PODS);
    let kept = present.and_then(number).filter(has_room);
    let number = kept.or_else(|| (0..=u32::MAX).find(has_room))?;
    Some(format!("{prefix}{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::annotations::CONFIG_SOURCE;

    fn pod(priority: Option<i32>, annotations: &[(&str, &str)]) -> Pod {
        let mut pod = Pod::default();
        pod.spec.priority = priority;
        let source = (CONFIG_SOURCE, "file");
        let all = std::iter::once(&source).chain(annotations);
        pod.metadata.annotations = all.map(|(key, value)| (*key, (*value).to_owned())).collect();
        pod
    }

    #[track_caller]
    fn check(pod: &Pod, present: Option<&str>, others: &[&str], expected: Option<&str>) {
        assert_eq!(shim_group(pod, present, others.iter().copied()).as_deref(), expected, "{others:?}");
    }

    #[test]
    fn static_pods_of_one_priority_share_a_shim() {
        check(&pod(None, &[]), None, &[], Some("coracle-0-0"));
        check(&pod(Some(0), &[]), None, &["coracle-0-0", "coracle-7-0"], Some("coracle-0-0"));
        check(&pod(Some(7), &[]), None, &["coracle-0-0"], Some("coracle-7-0"));
        check(&pod(Some(-7), &[]), None, &["coracle-7-0"], Some("coracle--7-0"));
    }

    #[test]
    fn eleventh_pod_begins_another_group_and_a_free_place_is_taken_first() {
        let full = ["coracle-0-0"; SHIM_GROUP_PODS];
        check(&pod(None, &[]), None, &full[1..], Some("coracle-0-0"));
        check(&pod(None, &[]), None, &full, Some("coracle-0-1"));
        let both = [&full[..], &["coracle-0-1"; SHIM_GROUP_PODS][..]].concat();
        check(&pod(None, &[]), None, &both, Some("coracle-0-2"));
        check(&pod(None, &[]), None, &both[1..], Some("coracle-0-0"));
    }

    #[test]
    fn pod_keeps_its_group_unless_it_is_full_or_of_another_priority() {
        check(&pod(None, &[]), Some("coracle-0-3"), &["coracle-0-0"], Some("coracle-0-3"));
        check(&pod(None, &[]), Some("coracle-0-0"), &["coracle-0-0"; SHIM_GROUP_PODS], Some("coracle-0-1"));
        check(&pod(None, &[]), Some("coracle-7-3"), &[], Some("coracle-0-0"));
        check(&pod(None, &[]), Some("of-another"), &["x", "coracle-0-", "coracle-0--1"], Some("coracle-0-0"));
    }

    #[test]
    fn groups_are_the_same_in_any_order_of_restarts() {
        let groups: Vec<String> = (0..25).map(|index| format!("coracle-0-{}", index / SHIM_GROUP_PODS)).collect();
        for own in 0..groups.len() {
            let others = groups.iter().enumerate().filter(|(index, _)| *index != own);
            let others: Vec<&str> = others.map(|(_, group)| group.as_str()).collect();
            check(&pod(None, &[]), Some(&groups[own]), &others, Some(&groups[own]));
        }
    }

    #[test]
    fn pods_of_the_cluster_of_a_runtime_class_and_with_the_annotation_have_their_own_shim() {
        check(&pod(None, &[(OWN_SHIM, "true")]), Some("coracle-0-0"), &[], None);
        check(&pod(None, &[(OWN_SHIM, "false")]), None, &[], Some("coracle-0-0"));
        check(&pod(None, &[(CONFIG_SOURCE, "api")]), None, &[], None);
        let mut classed = pod(None, &[]);
        classed.spec.runtime_class_name = Some("kata".to_owned());
        check(&classed, None, &[], None);
    }
}
