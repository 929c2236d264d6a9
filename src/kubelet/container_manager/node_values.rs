//! Values of the cgroups above the pods and of the reserved cgroups. Pure.

use super::settings::{Amounts, Reserved, Settings};
use crate::platform::cgroups::{LEAST_SHARES, Limit, Values, cpu_shares, cpu_weight};
use crate::types::api::{CPU, Pod, QosClass, Quantity, pod_requests, qos_class};

/// The `kubepods` cgroup. If allocatable is not enforced, it is limited by the machine's capacity.
pub(crate) fn kubepods(settings: &Settings) -> Values {
    let all = if settings.enforced.pods { settings.allocatable() } else { settings.capacity.clone() };
    let Amounts { milli_cpu, memory, pids, huge_pages } = all;
    Values {
        cpu_weight: Some(cpu_weight(cpu_shares(milli_cpu))),
        cpu_max: None,
        memory_max: (memory > 0).then_some(Limit::At(memory)),
        pids_max: (pids > 0).then_some(Limit::At(pids)),
        huge_pages: huge_pages.into_iter().map(|(size, bytes)| (size, Limit::At(bytes))).collect(),
    }
}

/// The cgroup of a QoS class. Burstable has the weight of its pods' requests, the others the minimum.
pub(crate) fn class(settings: &Settings, shares: i64) -> Values {
    Values {
        cpu_weight: Some(cpu_weight(shares)),
        huge_pages: settings.capacity.huge_pages.iter().map(|(size, _)| (*size, Limit::Max)).collect(),
        ..Values::default()
    }
}

/// CPU shares of all burstable pods together.
pub(crate) fn burstable_shares<'a>(pods: impl Iterator<Item = &'a Pod>) -> i64 {
    let cpu = |pod: &Pod| pod_requests(&pod.spec).get(CPU).map_or(0, |cpu: &Quantity| cpu.milli_value());
    let burstable = pods.filter(|pod| qos_class(pod) == QosClass::Burstable);
    cpu_shares(burstable.fold(0i64, |sum, pod| sum.saturating_add(cpu(pod))))
}

/// CPU shares of all best-effort pods together.
pub(crate) const BEST_EFFORT_SHARES: i64 = LEAST_SHARES;

/// The cgroup of the system or of Kubernetes' services, limited to its reservation. `compressible_only`: limits CPU
/// only, whose shortage kills no process.
pub(crate) fn reserved(reserved: &Reserved, compressible_only: bool) -> Values {
    let limit = |amount: Option<u64>| amount.filter(|_| !compressible_only).map(Limit::At);
    Values {
        cpu_weight: reserved.milli_cpu.map(|milli| cpu_weight(cpu_shares(milli))),
        memory_max: limit(reserved.memory),
        pids_max: limit(reserved.pids),
        ..Values::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::tests::settings;
    use super::*;

    #[test]
    fn kubepods_is_limited_to_allocatable() {
        let values = kubepods(&settings());
        assert_eq!(values.cpu_weight, Some(cpu_weight(3584)));
        assert_eq!(values.memory_max, Some(Limit::At((1 << 30) - (96 << 20))));
        assert_eq!(values.pids_max, Some(Limit::At(31_000)));
        assert_eq!(values.huge_pages, [(2 << 20, Limit::At(8 << 20))]);
        let mut open = settings();
        open.enforced.pods = false;
        assert_eq!(kubepods(&open).memory_max, Some(Limit::At(1 << 30)));
    }

    #[test]
    fn unknown_capacity_sets_no_limit() {
        let mut unknown = settings();
        unknown.capacity = Amounts::default();
        let values = kubepods(&unknown);
        assert_eq!((values.memory_max, values.pids_max, values.huge_pages), (None, None, Vec::new()));
    }

    #[test]
    fn reserved_cgroup_is_limited_to_its_reservation() {
        let system = settings().system;
        let values = reserved(&system, false);
        assert_eq!((values.cpu_weight, values.memory_max), (Some(10), Some(Limit::At(64 << 20))));
        assert_eq!(values.pids_max, Some(Limit::At(1000)));
        let values = reserved(&system, true);
        assert_eq!((values.cpu_weight, values.memory_max, values.pids_max), (Some(10), None, None));
    }

    #[test]
    fn burstable_weight_is_the_sum_of_requests() {
        let pod = |cpu: &str, limit: bool| {
            let mut container = crate::types::api::Container::default();
            container.resources.requests.insert(CPU, cpu.parse().unwrap());
            if limit {
                container.resources.requests.insert("memory", "1Mi".parse().unwrap());
                container.resources.limits = container.resources.requests.clone();
            }
            let mut pod = Pod::default();
            pod.spec.containers = vec![container];
            pod
        };
        let pods = [pod("100m", false), pod("2", true), pod("400m", false), Pod::default()];
        assert_eq!(burstable_shares(pods.iter()), 512);
        assert_eq!(burstable_shares([].iter()), LEAST_SHARES);
    }
}
