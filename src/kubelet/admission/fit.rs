//! Whether the node has enough resources for another pod. Pure.
//!
//! `fitsRequest` in pkg/scheduler/framework/plugins/noderesources.

use std::fmt;

use crate::state::objects::claimed_resources;
use crate::types::api::{
    CPU, EPHEMERAL_STORAGE, HUGE_PAGES_PREFIX, MEMORY, Pod, Quantity, Reason, ResourceList, is_extended_resource,
    pod_requests,
};

/// The number of pods, as a resource.
const PODS_RESOURCE: &str = "pods";

/// An insufficient resource; CPU in millicores, everything else in its own unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InsufficientResource {
    pub(super) resource: String,
    pub(super) requested: i64,
    pub(super) used: i64,
    pub(super) capacity: i64,
}

/// Allocatable resources; an unknown resource is not checked.
#[derive(Clone, Debug, Default)]
pub(super) struct FreeResources {
    pub(super) resources: ResourceList,
    /// Extended resources in the Node object, set by others; pods are checked against them.
    pub(super) extended: ResourceList,
    pub(super) pods: i64,
    /// The scheduler's claims provide extended resources.
    pub(super) claims_count: bool,
}

/// The resources missing for `pod` to run beside `other_pods`.
pub(super) fn insufficient_resources(
    pod: &Pod,
    other_pods: &[&Pod],
    free: &FreeResources,
    is_device: &dyn Fn(&str) -> bool,
) -> Vec<InsufficientResource> {
    let mut lacks = Vec::new();
    let count = i64::try_from(other_pods.len()).unwrap_or(i64::MAX);
    if count.saturating_add(1) > free.pods {
        lacks.push(InsufficientResource {
            resource: PODS_RESOURCE.to_owned(),
            requested: 1,
            used: count,
            capacity: free.pods,
        });
    }
    let wanted = pod_requests(&pod.spec);
    let used: Vec<ResourceList> = other_pods.iter().map(|other| pod_requests(&other.spec)).collect();
    let huge_pages = wanted.iter().map(|(name, _)| name).filter(|name| name.starts_with(HUGE_PAGES_PREFIX));
    let names = wanted.iter().map(|(name, _)| name);
    let claimed = claimed_resources(pod);
    let is_claimed = |name: &str| free.claims_count && claimed.contains(name);
    let extended = names.filter(|name| is_extended_resource(name) && !is_device(name) && !is_claimed(name));
    for resource in [CPU, MEMORY, EPHEMERAL_STORAGE].into_iter().chain(huge_pages).chain(extended) {
        let requested = amount(&wanted, resource);
        let Some(capacity) = capacity(free, resource).filter(|_| requested > 0) else { continue };
        let used = used.iter().fold(0i64, |sum, list| sum.saturating_add(amount(list, resource)));
        if requested > capacity.saturating_sub(used) {
            lacks.push(InsufficientResource { resource: resource.to_owned(), requested, used, capacity });
        }
    }
    lacks
}

/// The pod's share of a resource that another pod lacks.
pub(super) fn takes(pod: &Pod, resource: &str) -> i64 {
    if resource == PODS_RESOURCE { 1 } else { amount(&pod_requests(&pod.spec), resource) }
}

fn amount(list: &ResourceList, resource: &str) -> i64 {
    list.get(resource).copied().map_or(0, |quantity| counted(resource, quantity))
}

fn counted(resource: &str, quantity: Quantity) -> i64 {
    if resource == CPU { quantity.milli_value() } else { quantity.value() }
}

/// `None`: unknown. A huge page size that the machine does not have has a capacity of zero.
fn capacity(free: &FreeResources, resource: &str) -> Option<i64> {
    let available = free.resources.get(resource).or_else(|| free.extended.get(resource));
    let available = available.map(|quantity| counted(resource, *quantity));
    available.or_else(|| resource.starts_with(HUGE_PAGES_PREFIX).then_some(0))
}

impl InsufficientResource {
    pub(super) fn reason(&self) -> Reason {
        Reason::from(["OutOf", &self.resource].concat())
    }

    /// The amount that would have to be freed.
    pub(super) fn missing(&self) -> i64 {
        self.requested.saturating_sub(self.capacity.saturating_sub(self.used))
    }
}

impl fmt::Display for InsufficientResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, requested, used, capacity } = self;
        write!(
            f,
            "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::{Container, ResourceRequirements, RestartPolicy};

    type Asked<'a> = &'a [(&'static str, &'a str)];

    fn list(asked: Asked<'_>) -> ResourceList {
        asked.iter().map(|(name, value)| (*name, value.parse().unwrap())).collect()
    }

    fn container(asked: Asked<'_>) -> Container {
        let resources = ResourceRequirements { requests: list(asked), ..ResourceRequirements::default() };
        Container { resources, ..Container::default() }
    }

    fn pod(asked: Asked<'_>) -> Pod {
        let mut pod = Pod::default();
        pod.spec.containers = vec![container(asked)];
        pod
    }

    fn room() -> FreeResources {
        let known = [(CPU, "1"), (MEMORY, "1Gi"), (EPHEMERAL_STORAGE, "1G"), ("hugepages-2Mi", "4Mi")];
        FreeResources {
            resources: list(&known),
            extended: list(&[("example.com/fpga", "2")]),
            pods: 3,
            claims_count: true,
        }
    }

    #[track_caller]
    fn check(pod: &Pod, others: &[Pod], expected: &[&str]) {
        let others: Vec<&Pod> = others.iter().collect();
        let lacks = insufficient_resources(pod, &others, &room(), &|_| false);
        let told: Vec<String> = lacks.iter().map(|lack| format!("{}: {lack}", lack.reason())).collect();
        let expected: Vec<String> = expected
            .iter()
            .map(|line| {
                let (resource, numbers) = line.split_once(": ").unwrap();
                format!("OutOf{resource}: Node didn't have enough resource: {resource}, {numbers}")
            })
            .collect();
        assert_eq!(told, expected);
    }

    #[test]
    fn pod_fits_if_its_requests_are_free() {
        check(&pod(&[(CPU, "1"), (MEMORY, "1Gi")]), &[], &[]);
        check(&pod(&[(CPU, "500m")]), &[pod(&[(CPU, "500m")])], &[]);
        check(&pod(&[(CPU, "501m")]), &[pod(&[(CPU, "500m")])], &["cpu: requested: 501, used: 500, capacity: 1000"]);
        check(&pod(&[(CPU, "0.0001")]), &[pod(&[(CPU, "1")])], &["cpu: requested: 1, used: 1000, capacity: 1000"]);
        let many: Asked<'_> = &[(MEMORY, "2Gi"), (EPHEMERAL_STORAGE, "2G"), ("hugepages-2Mi", "6Mi")];
        let lacks = [
            "memory: requested: 2147483648, used: 0, capacity: 1073741824",
            "ephemeral-storage: requested: 2000000000, used: 0, capacity: 1000000000",
            "hugepages-2Mi: requested: 6291456, used: 0, capacity: 4194304",
        ];
        check(&pod(many), &[], &lacks);
    }

    #[test]
    fn pod_without_requests_needs_only_a_pod_slot() {
        let over = [pod(&[(CPU, "5")]), pod(&[])];
        check(&pod(&[]), &over, &[]);
        check(&pod(&[(CPU, "0")]), &over, &[]);
        let three = [pod(&[]), pod(&[]), pod(&[])];
        check(&pod(&[]), &three, &["pods: requested: 1, used: 3, capacity: 3"]);
    }

    #[test]
    fn unknown_extended_resource_is_ignored_and_huge_page_size_refused() {
        check(&pod(&[("example.com/gpu", "1")]), &[], &[]);
        let too_many = "example.com/fpga: requested: 2, used: 1, capacity: 2";
        check(&pod(&[("example.com/fpga", "2")]), &[pod(&[("example.com/fpga", "1")])], &[too_many]);
        let wanted = pod(&[("example.com/fpga", "9")]);
        assert_eq!(insufficient_resources(&wanted, &[], &room(), &|name| name == "example.com/fpga"), []);
        check(&pod(&[("hugepages-1Gi", "1Gi")]), &[], &["hugepages-1Gi: requested: 1073741824, used: 0, capacity: 0"]);
    }

    #[test]
    fn unknown_capacity_is_not_checked() {
        let unknown = FreeResources { pods: 1, ..FreeResources::default() };
        assert_eq!(insufficient_resources(&pod(&[(CPU, "5"), (MEMORY, "5Gi")]), &[], &unknown, &|_| false), []);
    }

    #[test]
    fn peak_usage_of_init_and_main_containers_counts() {
        let mut wanted = pod(&[(CPU, "400m")]);
        let sidecar = Container { restart_policy: Some(RestartPolicy::Always), ..container(&[(CPU, "200m")]) };
        wanted.spec.init_containers = vec![container(&[(CPU, "900m")]), sidecar];
        check(&wanted, &[pod(&[(CPU, "200m")])], &["cpu: requested: 900, used: 200, capacity: 1000"]);
        check(&wanted, &[pod(&[(CPU, "100m")])], &[]);
        wanted.spec.overhead = list(&[(CPU, "150m")]);
        check(&wanted, &[], &["cpu: requested: 1050, used: 0, capacity: 1000"]);
        let own = ResourceRequirements { requests: list(&[(CPU, "2")]), ..ResourceRequirements::default() };
        wanted.spec.resources = Some(Box::new(own));
        check(&wanted, &[], &["cpu: requested: 2150, used: 0, capacity: 1000"]);
    }

    #[test]
    fn missing_amount_is_what_must_be_freed() {
        let others = [pod(&[(CPU, "700m")])];
        let others: Vec<&Pod> = others.iter().collect();
        let lacks = insufficient_resources(&pod(&[(CPU, "400m")]), &others, &room(), &|_| false);
        assert_eq!(lacks.iter().map(InsufficientResource::missing).collect::<Vec<_>>(), [100]);
        assert_eq!((takes(others[0], CPU), takes(others[0], PODS_RESOURCE), takes(others[0], MEMORY)), (700, 1, 0));
    }
}
