//! Converts requests and limits to Linux resources. Pure.

use super::oom_score::oom_score_adj;
use super::pod_index::PodIndex;
use super::pod_requests::{List, of_containers, pod_level, quantity};
use crate::kubelet::node::NodeSettings;
use crate::platform::cgroups::{cpu_quota, cpu_shares, page_size_name};
use crate::platform::config::MemoryQos;
use crate::platform::cri::v1::{HugepageLimit, LinuxContainerResources};
use crate::types::api::{CPU, Container, MEMORY, PodSpec, QosClass, Quantity, ResourceRequirements, huge_pages};

/// Resources of a container; `is_init` distinguishes a sidecar from a main container with restartPolicy Always.
pub(crate) fn container_resources(
    index: &PodIndex<'_>,
    container: &Container,
    is_init: bool,
    node: &NodeSettings,
) -> LinuxContainerResources {
    let pod = index.pod;
    // Without its own limit, the pod-level limit applies.
    let limit = |resource| container.resources.limit(resource).or_else(|| pod_level(&pod.spec)?.limit(resource));
    let mut resources = linux_resources(container.resources.request(CPU), limit(CPU), limit(MEMORY), node);
    resources.oom_score_adj = oom_score_adj(index, container, is_init, node.memory_capacity);
    resources.hugepage_limits = huge_page_limits(&pod.spec, &container.resources, &node.huge_page_sizes);
    if let Some(qos) = node.memory_qos.filter(|_| node.cgroup_v2) {
        let files = memory_qos(qos, index.class(), &container.resources, node.allocatable_memory());
        let files = files.into_iter().flatten().map(|(file, bytes)| (file.to_owned(), bytes.to_string()));
        resources.unified.extend(files);
    }
    if node.swap_limits {
        // cgroup v1 limits the sum of memory and swap, v2 each of them.
        if node.cgroup_v2 {
            let swap = swap_limit(index, container, node);
            resources.unified.insert("memory.swap.max".to_owned(), swap.to_string());
        } else {
            resources.memory_swap_limit_in_bytes = resources.memory_limit_in_bytes;
        }
    }
    resources
}

/// The file of a cgroup with the bytes above which its processes are throttled.
pub(super) const MEMORY_HIGH: &str = "memory.high";

/// What protects and throttles the container's memory (`generateLinuxContainerResources` in pkg/kubelet/kuberuntime).
/// The pod's cgroup has no `memory.high`: a throttled container must not slow down the others of its pod.
fn memory_qos(
    qos: MemoryQos,
    class: QosClass,
    resources: &ResourceRequirements,
    allocatable: u64,
) -> [Option<(&'static str, u64)>; 2] {
    let bytes = |amount: Option<Quantity>| amount.and_then(|amount| u64::try_from(amount.value()).ok()).unwrap_or(0);
    let (request, limit) = (bytes(resources.request(MEMORY)), bytes(resources.limit(MEMORY)));
    let file = if class == QosClass::Guaranteed { "memory.min" } else { "memory.low" };
    let protection = (qos.is_tiered && request > 0).then_some((file, request));
    let high = qos.throttling.filter(|_| request != limit || request == 0).map(|thousandths| {
        let most = if limit > 0 { limit } else { allocatable };
        let above = u128::from(most.saturating_sub(request)) * u128::from(thousandths) / 1000;
        let high = request.saturating_add(u64::try_from(above).unwrap_or(u64::MAX));
        high - high % THROTTLING_STEP_BYTES
    });
    [protection, high.filter(|high| *high > request).map(|high| (MEMORY_HIGH, high))]
}

/// `memory.high` is rounded down to pages.
const THROTTLING_STEP_BYTES: u64 = 4096;

/// Swap limit of a container. Only burstable, non-critical containers that have a memory request below their limit
/// may swap (`ConfigureContainerSwapResources` in pkg/kubelet/kuberuntime).
fn swap_limit(index: &PodIndex<'_>, container: &Container, node: &NodeSettings) -> u64 {
    let Some(swap_capacity) = node.shared_swap else { return 0 };
    let requested = container.resources.request(MEMORY).filter(|requested| !requested.is_zero());
    let Some(requested) = requested.filter(|_| may_swap(index, container, node)) else { return 0 };
    let share = u128::try_from(requested.value()).unwrap_or(0) * u128::from(swap_capacity)
        / u128::from(node.memory_capacity.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// Whether the container has a share of the swap (`GetContainerSwapBehavior`).
pub(super) fn may_swap(index: &PodIndex<'_>, container: &Container, node: &NodeSettings) -> bool {
    let (request, limit) = (container.resources.request(MEMORY), container.resources.limit(MEMORY));
    node.shared_swap.is_some()
        && node.swap_limits
        && node.cgroup_v2
        && index.class() == QosClass::Burstable
        && !index.pod.is_critical()
        && request.unwrap_or_default() != limit.unwrap_or_default()
}

/// Resources of all containers of a pod together.
pub(crate) fn sandbox_resources(spec: &PodSpec, node: &NodeSettings) -> LinuxContainerResources {
    let total = |list: List, resource: &str| {
        let pod_amount = pod_level(spec).and_then(|pod| quantity(pod, list, resource));
        pod_amount.or_else(|| of_containers(spec, list, resource))
    };
    linux_resources(total(List::Requests, CPU), total(List::Limits, CPU), total(List::Limits, MEMORY), node)
}

/// The pod overhead from its RuntimeClass.
pub(crate) fn overhead(spec: &PodSpec, node: &NodeSettings) -> LinuxContainerResources {
    if spec.overhead.is_empty() {
        return LinuxContainerResources::default();
    }
    let overhead = |resource| Some(spec.overhead.get(resource).copied().unwrap_or_default());
    linux_resources(overhead(CPU), overhead(CPU), overhead(MEMORY), node)
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
        // Otherwise the kernel kills one process, and the rest of the container goes on without that one.
        resources.unified.insert("memory.oom.group".to_owned(), "1".to_owned());
    }
    resources
}

/// A limit for each huge page size of the machine: 0 without a limit of the container or pod. Huge pages are few and
/// fixed in number: a container that requests none must not take those of others.
fn huge_page_limits(spec: &PodSpec, resources: &ResourceRequirements, sizes: &[u64]) -> Vec<HugepageLimit> {
    let of_pod = |size| huge_pages(&pod_level(spec)?.limits, size);
    let of = |size| huge_pages(&resources.limits, size).or_else(|| of_pod(size)).unwrap_or(0);
    sizes.iter().map(|size| HugepageLimit { page_size: page_size_name(*size), limit: of(*size) }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::golden;
    use super::*;
    use crate::types::api::Pod;

    fn list(entries: &[(&str, &str)]) -> crate::types::api::ResourceList {
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
    fn limit_without_request_is_the_request() {
        let pod = pod(vec![container(&[], &[("cpu", "500m")])]);
        let resources = container_resources(&PodIndex::new(&pod), &pod.spec.containers[0], false, &golden::node());
        assert_eq!((resources.cpu_shares, resources.cpu_quota), (512, 50_000));
    }

    #[test]
    fn disabled_quota_sets_neither_period_nor_quota() {
        let pod = pod(vec![container(&[], &[("cpu", "500m")])]);
        let node = NodeSettings { cpu_cfs_quota: false, ..golden::node() };
        let resources = container_resources(&PodIndex::new(&pod), &pod.spec.containers[0], false, &node);
        assert_eq!((resources.cpu_shares, resources.cpu_period, resources.cpu_quota), (512, 0, 0));
    }

    #[test]
    fn cgroup_v2_container_has_group_oom_kill_and_no_swap() {
        let pod = pod(vec![container(&[], &[("memory", "64Mi")])]);
        let node = NodeSettings { cgroup_v2: true, single_process_oom_kill: false, ..golden::node() };
        let resources = container_resources(&PodIndex::new(&pod), &pod.spec.containers[0], false, &node);
        let unified: Vec<(&str, &str)> = resources.unified.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(unified, [("memory.oom.group", "1"), ("memory.swap.max", "0")]);
        assert_eq!((resources.memory_limit_in_bytes, resources.memory_swap_limit_in_bytes), (64 << 20, 0));
        let node = NodeSettings { single_process_oom_kill: true, swap_limits: false, ..node };
        let resources = container_resources(&PodIndex::new(&pod), &pod.spec.containers[0], false, &node);
        assert!(resources.unified.is_empty());
    }

    #[test]
    fn memory_is_protected_and_throttled_as_configured() {
        let unified = |qos: Option<MemoryQos>, containers: Vec<Container>| {
            let (pod, mut node) = (pod(containers), golden::node_with_memory(1000 << 20));
            (node.cgroup_v2, node.swap_limits, node.memory_qos) = (true, false, qos);
            let made = container_resources(&PodIndex::new(&pod), &pod.spec.containers[0], false, &node).unified;
            made.iter().map(|(file, value)| format!("{file}={value}")).collect::<Vec<_>>()
        };
        let qos = |throttling, is_tiered| Some(MemoryQos { throttling, is_tiered });
        let both: &[(&str, &str)] = &[("cpu", "1"), ("memory", "100Mi")];
        let part = || container(both, &[("memory", "1000Mi")]);
        // The values of the enhancement's table, of 1000Mi.
        assert_eq!(unified(qos(Some(900), false), vec![part()]), [format!("memory.high={}", 910 << 20)]);
        let high = format!("memory.high={}", 900 << 20);
        assert_eq!(unified(qos(Some(900), false), vec![container(&[], &[])]), [high.as_str()], "of the node's");
        assert_eq!(unified(qos(Some(900), true), vec![container(both, both)]), [format!("memory.min={}", 100 << 20)]);
        let expected = [format!("memory.high={}", 910 << 20), format!("memory.low={}", 100 << 20)];
        assert_eq!(unified(qos(Some(900), true), vec![part()]), expected);
        for nothing in [qos(None, false), None] {
            assert!(unified(nothing, vec![part()]).is_empty());
        }
        let over = container(&[("memory", "2000Mi")], &[]);
        assert!(unified(qos(Some(900), false), vec![over]).is_empty(), "more than the node has");
    }

    #[test]
    fn burstable_containers_share_swap_by_memory_request() {
        let node = NodeSettings { cgroup_v2: true, shared_swap: Some(1 << 30), ..golden::node() };
        let node = NodeSettings { memory_capacity: 4 << 30, ..node };
        let swap = |pod: &Pod| container_resources(&PodIndex::new(pod), &pod.spec.containers[0], false, &node).unified;
        let of = |container| swap(&pod(vec![container]))["memory.swap.max"].clone();
        assert_eq!(of(container(&[("memory", "512Mi")], &[])), (128 << 20).to_string());
        assert_eq!(of(container(&[("memory", "512Mi")], &[("memory", "512Mi")])), "0", "its request is its limit");
        assert_eq!(of(container(&[("cpu", "1")], &[])), "0", "it asks for no memory");
        assert_eq!(of(container(&[], &[])), "0", "best effort");
        let mut critical = pod(vec![container(&[("memory", "512Mi")], &[])]);
        critical.spec.priority = Some(2_000_001_000);
        assert_eq!(swap(&critical)["memory.swap.max"], "0", "critical");
    }

    #[test]
    fn each_page_size_has_a_limit() {
        let pod = pod(vec![container(&[], &[("hugepages-2Mi", "4Mi"), ("hugepages-64Ki", "1Mi")])]);
        let node = NodeSettings { huge_page_sizes: vec![64 << 10, 2 << 20, 1 << 30], ..golden::node() };
        let limits = container_resources(&PodIndex::new(&pod), &pod.spec.containers[0], false, &node).hugepage_limits;
        let limits: Vec<(&str, u64)> = limits.iter().map(|limit| (limit.page_size.as_str(), limit.limit)).collect();
        assert_eq!(limits, [("64KB", 1 << 20), ("2MB", 4 << 20), ("1GB", 0)]);
    }

    #[test]
    fn pod_resources_are_the_maximum_at_any_time() {
        let mut pod = pod(vec![container(&[("cpu", "100m")], &[("memory", "1Mi")])]);
        let mut sidecar = container(&[("cpu", "50m")], &[("memory", "2Mi")]);
        sidecar.restart_policy = Some(crate::types::api::RestartPolicy::Always);
        pod.spec.init_containers = vec![sidecar, container(&[("cpu", "1")], &[])];
        pod.spec.overhead = list(&[("cpu", "250m"), ("memory", "8Mi")]);
        let resources = sandbox_resources(&pod.spec, &golden::node());
        assert_eq!((resources.cpu_shares, resources.memory_limit_in_bytes), (1075, 3 << 20));
        let overhead = overhead(&pod.spec, &golden::node());
        assert_eq!((overhead.cpu_shares, overhead.cpu_quota, overhead.memory_limit_in_bytes), (256, 25_000, 8 << 20));
    }

    #[test]
    fn pod_level_resources_replace_missing_container_resources() {
        let mut pod = pod(vec![container(&[], &[])]);
        let whole = container(&[("cpu", "1")], &[("cpu", "2"), ("memory", "64Mi")]).resources;
        pod.spec.resources = Some(Box::new(whole));
        let sandbox = sandbox_resources(&pod.spec, &golden::node());
        assert_eq!((sandbox.cpu_shares, sandbox.cpu_quota, sandbox.memory_limit_in_bytes), (1024, 200_000, 64 << 20));
        let one = container_resources(&PodIndex::new(&pod), &pod.spec.containers[0], false, &golden::node());
        assert_eq!((one.cpu_quota, one.memory_limit_in_bytes), (200_000, 64 << 20));
    }
}
