//! From requests and limits to what the kernel is told. Pure.

use super::oom_score::oom_score_adj;
use crate::api::{CPU, Container, HUGE_PAGES_PREFIX, MEMORY, Pod, PodSpec, Quantity, ResourceRequirements};
use crate::cri::v1::{HugepageLimit, LinuxContainerResources};
use crate::node::NodeSettings;

/// What a container gets; `is_init` tells a sidecar from a main container that restarts always.
pub(crate) fn container_resources(
    pod: &Pod,
    container: &Container,
    is_init: bool,
    node: &NodeSettings,
) -> LinuxContainerResources {
    // A container without a limit of its own has that of the pod as a whole.
    let limit = |resource| container.resources.limit(resource).or_else(|| pod_level(&pod.spec)?.limit(resource));
    let mut resources = linux_resources(container.resources.request(CPU), limit(CPU), limit(MEMORY), node);
    resources.oom_score_adj = oom_score_adj(pod, container, is_init, node.memory_capacity);
    resources.hugepage_limits = huge_page_limits(&pod.spec, &container.resources, &node.huge_page_sizes);
    if node.swap_limits {
        // No container swaps. v1 counts memory and swap together, v2 apart.
        if node.cgroup_v2 {
            resources.unified.insert("memory.swap.max".to_owned(), "0".to_owned());
        } else {
            resources.memory_swap_limit_in_bytes = resources.memory_limit_in_bytes;
        }
    }
    resources
}

/// What all containers of a pod get together.
pub(crate) fn sandbox_resources(spec: &PodSpec, node: &NodeSettings) -> LinuxContainerResources {
    let total = |list: List, resource: &str| {
        let whole = pod_level(spec).and_then(|pod| quantity(pod, list, resource));
        whole.or_else(|| of_containers(spec, list, resource))
    };
    linux_resources(total(List::Requests, CPU), total(List::Limits, CPU), total(List::Limits, MEMORY), node)
}

/// What a pod costs beside its containers, as its runtime class says.
pub(crate) fn overhead(spec: &PodSpec, node: &NodeSettings) -> LinuxContainerResources {
    if spec.overhead.is_empty() {
        return LinuxContainerResources::default();
    }
    let overhead = |resource| Some(spec.overhead.get(resource).copied().unwrap_or_default());
    linux_resources(overhead(CPU), overhead(CPU), overhead(MEMORY), node)
}

/// Requests or limits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum List {
    Requests,
    Limits,
}

fn quantity(resources: &ResourceRequirements, list: List, resource: &str) -> Option<Quantity> {
    match list {
        List::Requests => resources.request(resource),
        List::Limits => resources.limit(resource),
    }
}

/// The most of one resource that the containers take at any time, without the pod's overhead; `None` if none names it.
///
/// While an init container runs, the sidecars before it run too; then the main containers and every sidecar.
pub(crate) fn of_containers(spec: &PodSpec, list: List, resource: &str) -> Option<Quantity> {
    let add = |one: Option<Quantity>, other: Option<Quantity>| match (one, other) {
        (Some(one), Some(other)) => Some(one.plus(other)),
        (one, other) => one.or(other),
    };
    let of = |container: &Container| quantity(&container.resources, list, resource);
    let (mut sidecars, mut highest) = (None, None);
    for container in &spec.init_containers {
        let now = add(sidecars, of(container));
        if container.is_sidecar() {
            sidecars = now;
        }
        highest = highest.max(now);
    }
    spec.containers.iter().fold(sidecars, |sum, container| add(sum, of(container))).max(highest)
}

pub(super) fn pod_level(spec: &PodSpec) -> Option<&ResourceRequirements> {
    spec.resources.as_deref()
}

fn linux_resources(
    cpu_request: Option<Quantity>,
    cpu_limit: Option<Quantity>,
    memory_limit: Option<Quantity>,
    node: &NodeSettings,
) -> LinuxContainerResources {
    let milli = |cpu: Option<Quantity>| cpu.map_or(0, Quantity::milli_value);
    let mut resources = LinuxContainerResources {
        cpu_shares: cpu_shares(milli(cpu_request.or(cpu_limit))),
        memory_limit_in_bytes: memory_limit.map_or(0, Quantity::value),
        ..LinuxContainerResources::default()
    };
    if node.cpu_cfs_quota {
        let period = i64::try_from(node.cpu_cfs_quota_period.as_micros()).unwrap_or(i64::MAX);
        resources.cpu_period = period;
        resources.cpu_quota = cpu_quota(milli(cpu_limit), period);
    }
    if node.cgroup_v2 && !node.single_process_oom_kill {
        resources.unified.insert("memory.oom.group".to_owned(), "1".to_owned());
    }
    resources
}

/// `cpu.shares` of v1, which the runtime turns into a weight on v2: 1024 for a processor, within the kernel's bounds.
fn cpu_shares(milli: i64) -> i64 {
    (milli.saturating_mul(1024) / 1000).clamp(2, 262_144)
}

/// Microseconds of each period; 0 is no limit. The kernel takes no less than a millisecond.
fn cpu_quota(milli: i64, period: i64) -> i64 {
    if milli == 0 { 0 } else { (milli.saturating_mul(period) / 1000).max(1000) }
}

/// A limit for each size that the machine has: 0 unless the container, or else its pod, asks for such pages.
fn huge_page_limits(spec: &PodSpec, resources: &ResourceRequirements, sizes: &[u64]) -> Vec<HugepageLimit> {
    let limit = |resources: &ResourceRequirements, size: u64| {
        resources.limits.iter().find_map(|(resource, limit)| {
            let wanted: Quantity = resource.strip_prefix(HUGE_PAGES_PREFIX)?.parse().ok()?;
            (u64::try_from(wanted.value()) == Ok(size)).then(|| u64::try_from(limit.value()).unwrap_or(0))
        })
    };
    let of = |size| limit(resources, size).or_else(|| limit(pod_level(spec)?, size)).unwrap_or(0);
    sizes.iter().map(|size| HugepageLimit { page_size: page_size_name(*size), limit: of(*size) }).collect()
}

/// As the files of the hugetlb controller spell a size: `64KB`, `2MB`, `1GB`.
fn page_size_name(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 30 => format!("{}GB", bytes >> 30),
        bytes if bytes >= 1 << 20 => format!("{}MB", bytes >> 20),
        bytes => format!("{}KB", bytes >> 10),
    }
}

#[cfg(test)]
mod tests {
    use super::super::golden;
    use super::*;

    fn list(entries: &[(&str, &str)]) -> crate::api::ResourceList {
        entries.iter().map(|(resource, quantity)| (*resource, quantity.parse().unwrap())).collect()
    }

    fn container(requests: &[(&str, &str)], limits: &[(&str, &str)]) -> Container {
        let resources =
            ResourceRequirements { requests: list(requests), limits: list(limits), ..ResourceRequirements::default() };
        Container { resources, ..Container::default() }
    }

    fn pod(containers: Vec<Container>) -> Pod {
        let mut pod = Pod::default();
        pod.spec.containers = containers;
        pod
    }

    #[test]
    fn shares_and_quotas_keep_to_what_the_kernel_takes() {
        for (milli, shares, quota) in
            [(0, 2, 0), (1, 2, 1000), (10, 10, 1000), (100, 102, 10_000), (1500, 1536, 150_000)]
        {
            assert_eq!((cpu_shares(milli), cpu_quota(milli, 100_000)), (shares, quota), "{milli}m");
        }
        assert_eq!(cpu_shares(i64::MAX), 262_144);
    }

    #[test]
    fn a_limit_without_a_request_counts_as_the_request_too() {
        let pod = pod(vec![container(&[], &[("cpu", "500m")])]);
        let resources = container_resources(&pod, &pod.spec.containers[0], false, &golden::node());
        assert_eq!((resources.cpu_shares, resources.cpu_quota), (512, 50_000));
    }

    #[test]
    fn without_quotas_neither_period_nor_quota_is_set() {
        let pod = pod(vec![container(&[], &[("cpu", "500m")])]);
        let node = NodeSettings { cpu_cfs_quota: false, ..golden::node() };
        let resources = container_resources(&pod, &pod.spec.containers[0], false, &node);
        assert_eq!((resources.cpu_shares, resources.cpu_period, resources.cpu_quota), (512, 0, 0));
    }

    #[test]
    fn on_cgroup_v2_a_container_dies_as_a_whole_and_does_not_swap() {
        let pod = pod(vec![container(&[], &[("memory", "64Mi")])]);
        let node = NodeSettings { cgroup_v2: true, single_process_oom_kill: false, ..golden::node() };
        let resources = container_resources(&pod, &pod.spec.containers[0], false, &node);
        let unified: Vec<(&str, &str)> = resources.unified.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(unified, [("memory.oom.group", "1"), ("memory.swap.max", "0")]);
        assert_eq!((resources.memory_limit_in_bytes, resources.memory_swap_limit_in_bytes), (64 << 20, 0));
        let node = NodeSettings { single_process_oom_kill: true, swap_limits: false, ..node };
        let resources = container_resources(&pod, &pod.spec.containers[0], false, &node);
        assert!(resources.unified.is_empty());
    }

    #[test]
    fn each_page_size_of_the_machine_has_a_limit() {
        let pod = pod(vec![container(&[], &[("hugepages-2Mi", "4Mi"), ("hugepages-64Ki", "1Mi")])]);
        let node = NodeSettings { huge_page_sizes: vec![64 << 10, 2 << 20, 1 << 30], ..golden::node() };
        let limits = container_resources(&pod, &pod.spec.containers[0], false, &node).hugepage_limits;
        let limits: Vec<(&str, u64)> = limits.iter().map(|limit| (limit.page_size.as_str(), limit.limit)).collect();
        assert_eq!(limits, [("64KB", 1 << 20), ("2MB", 4 << 20), ("1GB", 0)]);
    }

    #[test]
    fn a_pods_resources_are_those_of_its_hungriest_moment() {
        let mut pod = pod(vec![container(&[("cpu", "100m")], &[("memory", "1Mi")])]);
        let mut sidecar = container(&[("cpu", "50m")], &[("memory", "2Mi")]);
        sidecar.restart_policy = Some(crate::api::RestartPolicy::Always);
        pod.spec.init_containers = vec![sidecar, container(&[("cpu", "1")], &[])];
        pod.spec.overhead = list(&[("cpu", "250m"), ("memory", "8Mi")]);
        let resources = sandbox_resources(&pod.spec, &golden::node());
        assert_eq!((resources.cpu_shares, resources.memory_limit_in_bytes), (1075, 3 << 20));
        let overhead = overhead(&pod.spec, &golden::node());
        assert_eq!((overhead.cpu_shares, overhead.cpu_quota, overhead.memory_limit_in_bytes), (256, 25_000, 8 << 20));
    }

    #[test]
    fn the_pods_own_resources_stand_in_for_its_containers() {
        let mut pod = pod(vec![container(&[], &[])]);
        let whole = container(&[("cpu", "1")], &[("cpu", "2"), ("memory", "64Mi")]).resources;
        pod.spec.resources = Some(Box::new(whole));
        let sandbox = sandbox_resources(&pod.spec, &golden::node());
        assert_eq!((sandbox.cpu_shares, sandbox.cpu_quota, sandbox.memory_limit_in_bytes), (1024, 200_000, 64 << 20));
        let one = container_resources(&pod, &pod.spec.containers[0], false, &golden::node());
        assert_eq!((one.cpu_quota, one.memory_limit_in_bytes), (200_000, 64 << 20));
    }
}
