//! Whether a running pod can be resized. Pure.
//!
//! `canResizePod` in pkg/kubelet/allocation. The allocated resources stay until the new ones fit.

use crate::types::api::{CPU, Container, MEMORY, Pod, ResourceList, pod_requests, qos_class};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No change of resources.
    NoResize,
    Fits,
    /// Not possible while the other pods have their resources.
    Deferred(String),
    /// Not possible on this node or for this pod.
    Infeasible(String),
}

/// Whether `wanted` may replace `allocated`, the same pod, beside `others`.
pub(crate) fn verdict<'a>(
    allocated: &Pod,
    wanted: &Pod,
    others: impl Iterator<Item = &'a Pod>,
    allocatable: &ResourceList,
) -> Verdict {
    if !differs(allocated, wanted) {
        return Verdict::NoResize;
    }
    if qos_class(allocated) != qos_class(wanted) {
        return Verdict::Infeasible("Pod QOS Class may not change as a result of resizing".to_owned());
    }
    let requests = pod_requests(&wanted.spec);
    let [cpu, memory] = Counted::BOTH;
    let over = [memory, cpu].into_iter().find(|resource| resource.of(&requests) > resource.of(allocatable));
    if let Some(resource) = over {
        let (name, asked, has) = (resource.name, resource.of(&requests), resource.of(allocatable));
        let message = format!("Node didn't have enough capacity: {name}, requested: {asked}, capacity: {has}");
        return Verdict::Infeasible(message);
    }
    let used: Vec<ResourceList> = others.map(|pod| pod_requests(&pod.spec)).collect();
    for resource in [cpu, memory] {
        let used = used.iter().fold(0i64, |sum, list| sum.saturating_add(resource.of(list)));
        let (asked, has) = (resource.of(&requests), resource.of(allocatable));
        // A decrease never waits.
        let grows = asked > resource.of(&pod_requests(&allocated.spec));
        if grows && used.saturating_add(asked) > has {
            return Verdict::Deferred(format!(
                "Node didn't have enough resource: {}, requested: {asked}, used: {used}, capacity: {has}",
                resource.name
            ));
        }
    }
    Verdict::Fits
}

/// `wanted` with the resources of `allocated`.
pub(crate) fn keep_resources(wanted: &Pod, allocated: &Pod) -> Pod {
    let mut pod = wanted.clone();
    let spec = &mut pod.spec;
    for container in spec.containers.iter_mut().chain(&mut spec.init_containers) {
        if let Some(old) = same(allocated, container) {
            container.resources.clone_from(&old.resources);
        }
    }
    pod
}

/// A resizable resource and its unit.
#[derive(Clone, Copy)]
struct Counted {
    name: &'static str,
    is_milli: bool,
}

impl Counted {
    const BOTH: [Self; 2] = [Self { name: CPU, is_milli: true }, Self { name: MEMORY, is_milli: false }];

    fn of(self, list: &ResourceList) -> i64 {
        list.get(self.name).map_or(0, |quantity| if self.is_milli { quantity.milli_value() } else { quantity.value() })
    }
}

fn differs(allocated: &Pod, wanted: &Pod) -> bool {
    let all = wanted.spec.containers.iter().chain(&wanted.spec.init_containers);
    all.into_iter().any(|container| same(allocated, container).is_some_and(|old| old.resources != container.resources))
}

fn same<'a>(pod: &'a Pod, container: &Container) -> Option<&'a Container> {
    pod.spec.containers.iter().chain(&pod.spec.init_containers).find(|other| other.name == container.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(requests: &[(&'static str, &str)], limits: &[(&'static str, &str)]) -> Pod {
        let list = |given: &[(&'static str, &str)]| -> ResourceList {
            given.iter().map(|(name, value)| (*name, value.parse().unwrap())).collect()
        };
        let mut container = Container { name: "main".to_owned(), ..Container::default() };
        container.resources.requests = list(requests);
        container.resources.limits = list(limits);
        let mut pod = Pod::default();
        pod.spec.containers = vec![container];
        pod
    }

    fn asks(cpu: &str, memory: &str) -> Pod {
        pod(&[(CPU, cpu), (MEMORY, memory)], &[])
    }

    #[track_caller]
    fn check(allocated: &Pod, wanted: &Pod, others: &[Pod], expected: &Verdict) {
        let allocatable = [(CPU, "1".parse().unwrap()), (MEMORY, "1Gi".parse().unwrap())].into_iter().collect();
        assert_eq!(verdict(allocated, wanted, others.iter(), &allocatable), *expected);
    }

    #[test]
    fn resize_that_fits_is_accepted() {
        let has = asks("100m", "64Mi");
        check(&has, &has, &[asks("5", "5Gi")], &Verdict::NoResize);
        check(&has, &asks("500m", "64Mi"), &[asks("500m", "64Mi")], &Verdict::Fits);
        let message = "Node didn't have enough resource: cpu, requested: 501, used: 500, capacity: 1000";
        check(&has, &asks("501m", "64Mi"), &[asks("500m", "64Mi")], &Verdict::Deferred(message.to_owned()));
        let message =
            "Node didn't have enough resource: memory, requested: 536870912, used: 1073741824, capacity: 1073741824";
        check(&has, &asks("100m", "512Mi"), &[asks("0", "1Gi")], &Verdict::Deferred(message.to_owned()));
    }

    #[test]
    fn resize_beyond_capacity_is_infeasible() {
        let has = asks("100m", "64Mi");
        let message = "Node didn't have enough capacity: cpu, requested: 1001, capacity: 1000";
        check(&has, &asks("1001m", "64Mi"), &[], &Verdict::Infeasible(message.to_owned()));
        let message = "Node didn't have enough capacity: memory, requested: 2147483648, capacity: 1073741824";
        check(&has, &asks("2", "2Gi"), &[], &Verdict::Infeasible(message.to_owned()));
    }

    #[test]
    fn decrease_is_never_deferred() {
        check(&asks("500m", "64Mi"), &asks("400m", "32Mi"), &[asks("5", "5Gi")], &Verdict::Fits);
    }

    #[test]
    fn qos_class_may_not_change() {
        let both: &[(&'static str, &str)] = &[(CPU, "100m"), (MEMORY, "64Mi")];
        let verdict = Verdict::Infeasible("Pod QOS Class may not change as a result of resizing".to_owned());
        check(&pod(both, both), &pod(both, &[(CPU, "200m"), (MEMORY, "64Mi")]), &[], &verdict);
    }

    #[test]
    fn deferred_resize_keeps_other_changes() {
        let mut wanted = asks("5", "64Mi");
        wanted.metadata.labels.insert("a", "b".to_owned());
        let kept = keep_resources(&wanted, &asks("1", "64Mi"));
        assert_eq!(kept.spec, asks("1", "64Mi").spec);
        assert_eq!(kept.metadata, wanted.metadata);
    }
}
