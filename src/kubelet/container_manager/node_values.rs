//! Values of the cgroups above the pods and of the reserved cgroups. Pure.

use super::settings::{Amounts, Reserved, Settings, protected_bytes};
use crate::platform::cgroups::{Limit, MIN_CPU_SHARES, Values, cpu_shares, cpu_weight};
use crate::types::api::{CPU, Pod, QosClass, Quantity, pod_requests, qos_class};

/// What the pods of the node ask for together, by class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// CPU shares of the burstable pods.
    pub(crate) burstable_shares: i64,
    /// Memory that is protected from reclaim.
    burstable_memory: u64,
    guaranteed_memory: u64,
}

impl Demand {
    /// Of no pod.
    pub(crate) const NONE: Self = Self { burstable_shares: MIN_CPU_SHARES, burstable_memory: 0, guaranteed_memory: 0 };

    pub(crate) fn of<'a>(pods: impl Iterator<Item = &'a Pod>, settings: &Settings) -> Self {
        let (mut milli_cpu, mut demand) = (0i64, Self::NONE);
        for pod in pods {
            let requests = pod_requests(&pod.spec);
            let sum = match qos_class(pod) {
                QosClass::BestEffort => continue,
                QosClass::Burstable => {
                    milli_cpu =
                        milli_cpu.saturating_add(requests.get(CPU).map_or(0, |cpu: &Quantity| cpu.milli_value()));
                    &mut demand.burstable_memory
                }
                QosClass::Guaranteed => &mut demand.guaranteed_memory,
            };
            if settings.is_memory_tiered() {
                *sum = sum.saturating_add(protected_bytes(&requests));
            }
        }
        Self { burstable_shares: cpu_shares(milli_cpu), ..demand }
    }
}

/// The `kubepods` cgroup. If allocatable is not enforced, it is limited by the machine's capacity.
pub(crate) fn kubepods(settings: &Settings, demand: Demand) -> Values {
    let total = if settings.enforced.pods { settings.allocatable() } else { settings.capacity.clone() };
    let Amounts { milli_cpu, memory, pids, huge_pages } = total;
    Values {
        cpu_weight: Some(cpu_weight(cpu_shares(milli_cpu))),
        cpu_max: None,
        memory_max: (memory > 0).then_some(Limit::At(memory)),
        // A group protects no more than those above it. Zero undoes what a former configuration has set.
        memory_min: Some(demand.guaranteed_memory.saturating_add(demand.burstable_memory)),
        memory_low: None,
        pids_max: (pids > 0).then_some(Limit::At(pids)),
        huge_pages: huge_pages.into_iter().map(|(size, bytes)| (size, Limit::At(bytes))).collect(),
    }
}

/// The cgroup of a QoS class. Burstable has the weight of its pods' requests, the others the minimum.
pub(crate) fn class(settings: &Settings, class: QosClass, demand: Demand) -> Values {
    let is_burstable = class == QosClass::Burstable;
    Values {
        cpu_weight: Some(cpu_weight(if is_burstable { demand.burstable_shares } else { MIN_CPU_SHARES })),
        memory_low: is_burstable.then_some(demand.burstable_memory),
        huge_pages: settings.capacity.huge_pages.iter().map(|(size, _)| (*size, Limit::Max)).collect(),
        ..Values::default()
    }
}

/// The cgroup of the system or of Kubernetes' services, limited to its reservation. `compressible_only`: limits CPU
/// only, whose shortage kills no process. `is_protected`: its memory is not reclaimed.
pub(crate) fn reserved(reserved: &Reserved, compressible_only: bool, is_protected: bool) -> Values {
    let limit = |amount: Option<u64>| amount.filter(|_| !compressible_only).map(Limit::At);
    Values {
        cpu_weight: reserved.milli_cpu.map(|milli| cpu_weight(cpu_shares(milli))),
        memory_max: limit(reserved.memory),
        memory_min: reserved.memory.filter(|_| is_protected && !compressible_only),
        pids_max: limit(reserved.pids),
        ..Values::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::tests::settings;
    use super::*;
    use crate::platform::config::MemoryQos;

    #[test]
    fn kubepods_is_limited_to_allocatable() {
        let values = kubepods(&settings(), Demand::NONE);
        assert_eq!(values.cpu_weight, Some(cpu_weight(3584)));
        assert_eq!(values.memory_max, Some(Limit::At((1 << 30) - (96 << 20))));
        assert_eq!(values.pids_max, Some(Limit::At(31_000)));
        assert_eq!(values.huge_pages, [(2 << 20, Limit::At(8 << 20))]);
        let mut open = settings();
        open.enforced.pods = false;
        assert_eq!(kubepods(&open, Demand::NONE).memory_max, Some(Limit::At(1 << 30)));
    }

    #[test]
    fn unknown_capacity_sets_no_limit() {
        let mut unknown = settings();
        unknown.capacity = Amounts::default();
        let values = kubepods(&unknown, Demand::NONE);
        assert_eq!((values.memory_max, values.pids_max, values.huge_pages), (None, None, Vec::new()));
    }

    #[test]
    fn reserved_cgroup_is_limited_to_its_reservation() {
        let system = settings().system;
        let values = reserved(&system, false, false);
        assert_eq!((values.memory_min, reserved(&system, true, true).memory_min), (None, None));
        assert_eq!(reserved(&system, false, true).memory_min, Some(64 << 20));
        assert_eq!((values.cpu_weight, values.memory_max), (Some(10), Some(Limit::At(64 << 20))));
        assert_eq!(values.pids_max, Some(Limit::At(1000)));
        let values = reserved(&system, true, false);
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
        let mut settings = settings();
        assert_eq!(Demand::of(pods.iter(), &settings), Demand { burstable_shares: 512, ..Demand::NONE });
        assert_eq!(Demand::of([].iter(), &settings), Demand::NONE);
        settings.memory_qos = Some(MemoryQos { is_tiered: true, ..MemoryQos::default() });
        let demand = Demand::of(pods.iter(), &settings);
        assert_eq!((demand.burstable_memory, demand.guaranteed_memory), (0, 1 << 20));
        assert_eq!(kubepods(&settings, demand).memory_min, Some(1 << 20));
        assert_eq!(class(&settings, QosClass::BestEffort, demand).memory_low, None);
        assert_eq!(class(&settings, QosClass::Burstable, demand).memory_low, Some(0));
    }
}
