//! Values of a pod's cgroup. Pure.
//!
//! `ResourceConfigForPod` in pkg/kubelet/cm/helpers_linux.go.

use super::settings::{Settings, protected_bytes};
use crate::platform::cgroups::{CpuMax, Limit, MIN_CPU_SHARES, Values, cpu_quota, cpu_shares, cpu_weight};
use crate::types::api::{
    CPU, MEMORY, Pod, PodSpec, QosClass, Quantity, ResourceList, huge_pages, pod_limits, pod_requests, qos_class,
};

pub(crate) fn pod_values(pod: &Pod, settings: &Settings) -> Values {
    let spec = &pod.spec;
    let (requests, limits) = (pod_requests(spec), pod_limits(spec));
    let class = qos_class(pod);
    let shares = match class {
        QosClass::BestEffort => MIN_CPU_SHARES,
        QosClass::Burstable | QosClass::Guaranteed => {
            let named = requests.get(CPU).or(limits.get(CPU));
            cpu_shares(named.map_or(0, |cpu| cpu.milli_value()))
        }
    };
    // If one container has no limit, the pod has none.
    let limit = |resource| limits.get(resource).filter(|_| class == QosClass::Guaranteed || is_limited(spec, resource));
    let memory = limit(MEMORY).and_then(|memory| u64::try_from(memory.value()).ok()).filter(|bytes| *bytes > 0);
    let protected = if settings.is_memory_tiered() { protected_bytes(&requests) } else { 0 };
    let is_guaranteed = class == QosClass::Guaranteed;
    // Zero undoes what a former configuration or class has set.
    let [memory_min, memory_low] = if is_guaranteed { [protected, 0] } else { [0, protected] };
    Values {
        memory_min: Some(memory_min),
        memory_low: Some(memory_low),
        cpu_weight: Some(cpu_weight(shares)),
        cpu_max: Some(cpu_max(limit(CPU), settings.quota_period)),
        memory_max: Some(memory.map_or(Limit::Max, Limit::At)),
        pids_max: Some(settings.pod_pids.map_or(Limit::Max, Limit::At)),
        huge_pages: huge_page_limits(&requests, settings),
    }
}

fn cpu_max(limit: Option<&Quantity>, period: Option<i64>) -> CpuMax {
    let quota = |period| {
        let quota = cpu_quota(limit.map_or(0, |cpu| cpu.milli_value()), period);
        u64::try_from(quota).ok().filter(|quota| *quota > 0).map_or(Limit::Max, Limit::At)
    };
    CpuMax {
        quota: period.map_or(Limit::Max, quota),
        period: period.and_then(|period| u64::try_from(period).ok()).unwrap_or(KERNEL_CPU_PERIOD_MICROS),
    }
}

/// Whether the pod or each of its containers limits the resource.
fn is_limited(spec: &PodSpec, resource: &str) -> bool {
    let positive = |limits: &ResourceList| limits.get(resource).is_some_and(|limit| !limit.is_zero());
    let pod_is_limited = spec.resources.as_deref().is_some_and(|pod| positive(&pod.limits));
    pod_is_limited
        || spec.containers.iter().chain(&spec.init_containers).all(|container| positive(&container.resources.limits))
}

/// The pod's request for each huge page size of the machine, zero without a request.
fn huge_page_limits(requests: &ResourceList, settings: &Settings) -> Vec<(u64, Limit)> {
    let requested = |size: u64| Limit::At(huge_pages(requests, size).unwrap_or(0));
    settings.capacity.huge_pages.iter().map(|(size, _)| (*size, requested(*size))).collect()
}

/// The kernel's default period in `cpu.max`, in microseconds.
const KERNEL_CPU_PERIOD_MICROS: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::super::settings::tests::settings;
    use super::*;
    use crate::platform::config::MemoryQos;
    use crate::types::api::{Container, ResourceRequirements};

    type Given<'a> = &'a [(&'static str, &'a str)];

    fn container(requests: Given<'_>, limits: Given<'_>) -> Container {
        let list = |given: Given<'_>| given.iter().map(|(name, value)| (*name, value.parse().unwrap())).collect();
        let resources =
            ResourceRequirements { requests: list(requests), limits: list(limits), ..ResourceRequirements::default() };
        Container { resources, ..Container::default() }
    }

    fn pod(containers: Vec<Container>) -> Pod {
        let mut pod = Pod::default();
        pod.spec.containers = containers;
        pod
    }

    #[track_caller]
    fn check(pod: &Pod, expected: [&str; 5]) {
        let files = pod_values(pod, &settings()).files();
        let limits = files.iter().filter(|(file, _)| !["memory.min", "memory.low"].contains(&&**file));
        let values: Vec<&str> = limits.map(|(_, value)| value.as_str()).collect();
        assert_eq!(values, expected);
    }

    #[test]
    fn guaranteed_pod_is_limited_to_its_requests() {
        let both: Given<'_> = &[("cpu", "250m"), ("memory", "32Mi")];
        check(&pod(vec![container(both, both)]), ["10", "25000 100000", "33554432", "max", "0"]);
    }

    #[test]
    fn burstable_pod_is_limited_if_all_its_containers_are() {
        let asks: Given<'_> = &[("cpu", "100m"), ("memory", "16Mi")];
        let memory: Given<'_> = &[("memory", "48Mi")];
        let limited = pod(vec![container(asks, memory), container(&[], memory)]);
        check(&limited, ["4", "max 100000", "100663296", "max", "0"]);
        let open = pod(vec![container(asks, memory), container(&[], &[])]);
        check(&open, ["4", "max 100000", "max", "max", "0"]);
    }

    #[test]
    fn best_effort_pod_has_minimum_weight_and_no_limit() {
        check(&pod(vec![container(&[], &[])]), ["1", "max 100000", "max", "max", "0"]);
    }

    #[test]
    fn pod_level_limits_and_overhead_count() {
        let mut whole = pod(vec![container(&[], &[])]);
        let own = container(&[("cpu", "1")], &[("cpu", "2"), ("memory", "64Mi")]).resources;
        whole.spec.resources = Some(Box::new(own));
        whole.spec.overhead.insert(CPU, "500m".parse().unwrap());
        check(&whole, ["59", "250000 100000", "67108864", "max", "0"]);
    }

    #[test]
    fn huge_page_limits_are_the_requests() {
        let pages: Given<'_> = &[("hugepages-2Mi", "4Mi"), ("memory", "8Mi")];
        check(&pod(vec![container(pages, pages)]), ["1", "max 100000", "8388608", "max", "4194304"]);
    }

    #[test]
    fn tiered_reservation_protects_requests_by_class() {
        let both: Given<'_> = &[("cpu", "250m"), ("memory", "32Mi")];
        let qos = |is_tiered| Some(MemoryQos { is_tiered, ..MemoryQos::default() });
        let protected = |pod: &Pod, memory_qos| {
            let values = pod_values(pod, &Settings { memory_qos, ..settings() });
            (values.memory_min.unwrap(), values.memory_low.unwrap())
        };
        let guaranteed = pod(vec![container(both, both)]);
        let burstable = pod(vec![container(both, &[]), container(both, &[])]);
        assert_eq!(protected(&guaranteed, qos(true)), (32 << 20, 0));
        let odd: Given<'_> = &[("cpu", "250m"), ("memory", "4097")];
        assert_eq!(protected(&pod(vec![container(odd, odd)]), qos(true)), (4096, 0));
        assert_eq!(protected(&burstable, qos(true)), (0, 64 << 20));
        assert_eq!(protected(&pod(vec![container(&[], &[])]), qos(true)), (0, 0));
        for off in [qos(false), None] {
            // As a former configuration may have protected them.
            assert_eq!((protected(&guaranteed, off), protected(&burstable, off)), ((0, 0), (0, 0)));
        }
    }

    #[test]
    fn disabled_quota_and_pod_pid_limit_apply() {
        let both: Given<'_> = &[("cpu", "250m"), ("memory", "32Mi")];
        let settings = Settings { quota_period: None, pod_pids: Some(100), ..settings() };
        let values = pod_values(&pod(vec![container(both, both)]), &settings);
        assert_eq!(values.cpu_max, Some(CpuMax { quota: Limit::Max, period: 100_000 }));
        assert_eq!(values.pids_max, Some(Limit::At(100)));
    }
}
