//! Whether a pod that runs may have other resources than it has. Pure.
//!
//! `canResizePod` in pkg/kubelet/allocation. What a pod has been given stays until the new resources fit.

use crate::types::api::{CPU, Container, MEMORY, Pod, ResourceList, pod_requests, qos_class};

/// What becomes of the wish for other resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The pod asks for what it has, or for something else than other resources.
    NoResize,
    Fits,
    /// Not while the other pods have what they have.
    Deferred(String),
    /// Not on this node, or not for this pod.
    Infeasible(String),
}

/// Whether `wanted` may take the place of `allocated`, which is the same pod, beside `others`.
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
        // Who asks for less never waits.
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

/// `wanted`, but with the resources that `allocated` has.
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

/// A resource that can be resized, in the unit in which it is counted.
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
    fn what_fits_beside_the_others_is_given() {
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
    fn what_the_node_does_not_have_is_never_given() {
        let has = asks("100m", "64Mi");
        let message = "Node didn't have enough capacity: cpu, requested: 1001, capacity: 1000";
        check(&has, &asks("1001m", "64Mi"), &[], &Verdict::Infeasible(message.to_owned()));
        let message = "Node didn't have enough capacity: memory, requested: 2147483648, capacity: 1073741824";
        check(&has, &asks("2", "2Gi"), &[], &Verdict::Infeasible(message.to_owned()));
    }

    #[test]
    fn who_asks_for_less_never_waits() {
        check(&asks("500m", "64Mi"), &asks("400m", "32Mi"), &[asks("5", "5Gi")], &Verdict::Fits);
    }

    #[test]
    fn the_class_of_a_pod_stays() {
        let both: &[(&'static str, &str)] = &[(CPU, "100m"), (MEMORY, "64Mi")];
        let verdict = Verdict::Infeasible("Pod QOS Class may not change as a result of resizing".to_owned());
        check(&pod(both, both), &pod(both, &[(CPU, "200m"), (MEMORY, "64Mi")]), &[], &verdict);
    }

    #[test]
    fn what_is_not_given_yet_leaves_the_rest_of_a_change() {
        let mut wanted = asks("5", "64Mi");
        wanted.metadata.labels.insert("a", "b".to_owned());
        let kept = keep_resources(&wanted, &asks("1", "64Mi"));
        assert_eq!(kept.spec, asks("1", "64Mi").spec);
        assert_eq!(kept.metadata, wanted.metadata);
    }
}
