//! Cgroup settings from the configuration and the machine. Pure.

use crate::kubelet::node::NodeInfo;
use crate::platform::config::{CgroupDriver, Config, EnforcedLimits, MemoryQos};
use crate::types::api::{CPU, MEMORY, Quantity, ResourceList};

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The configured driver; the runtime's own takes precedence.
    pub(crate) driver: CgroupDriver,
    /// The cgroup above `kubepods`; empty for the root of the hierarchy.
    pub(crate) root: String,
    pub(crate) capacity: Amounts,
    pub(crate) system: Reserved,
    pub(crate) kube: Reserved,
    pub(crate) enforced: EnforcedLimits,
    /// Process limit per pod; `None`: no limit.
    pub(crate) pod_pids: Option<u64>,
    /// CPU quota period in microseconds; `None`: CPU limits are not enforced by quotas.
    pub(crate) quota_period: Option<i64>,
    /// `None`: the feature gate is off.
    pub(crate) memory_qos: Option<MemoryQos>,
}

/// Capacity of the machine, or a reserved part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amounts {
    pub(crate) milli_cpu: i64,
    pub(crate) memory: u64,
    pub(crate) pids: u64,
    /// Bytes in huge pages, by page size.
    pub(crate) huge_pages: Vec<(u64, u64)>,
}

/// Resources reserved for the system or for Kubernetes' services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reserved {
    /// The configured cgroup; empty if there is none.
    pub(crate) group: String,
    /// `None`: not reserved.
    pub(crate) milli_cpu: Option<i64>,
    pub(crate) memory: Option<u64>,
    pub(crate) pids: Option<u64>,
}

/// Bytes of a request that are protected. The kernel rounds them down to pages: another value would be written again
/// and again.
pub(super) fn protected_bytes(requests: &ResourceList) -> u64 {
    const PAGE: u64 = 4096;
    let bytes = requests.get(MEMORY).and_then(|memory| u64::try_from(memory.value()).ok()).unwrap_or(0);
    bytes - bytes % PAGE
}

impl Settings {
    /// `None` if pods have no cgroups.
    pub(crate) fn new(config: &Config, node_info: &NodeInfo) -> Option<Self> {
        let period = i64::try_from(config.cgroups.cpu_cfs_quota_period.as_micros()).unwrap_or(i64::MAX);
        (node_info.cgroup_v2 && config.cgroups.per_qos).then(|| Self {
            driver: config.cgroups.driver,
            root: config.cgroups.root.clone(),
            capacity: Amounts {
                milli_cpu: i64::from(node_info.cpus) * 1000,
                memory: node_info.memory_bytes,
                pids: node_info.pid_max,
                huge_pages: node_info.huge_pages.clone(),
            },
            system: Reserved::new(&config.reserved.system, &config.reserved.system_cgroup),
            kube: Reserved::new(&config.reserved.kube, &config.reserved.kube_cgroup),
            enforced: config.reserved.enforced,
            pod_pids: config.pods.pids_limit.and_then(|limit| u64::try_from(limit).ok()),
            quota_period: config.cgroups.cpu_cfs_quota.then_some(period),
            memory_qos: config.cgroups.memory_qos,
        })
    }

    /// Whether requests are protected from reclaim.
    pub(super) fn is_memory_tiered(&self) -> bool {
        self.memory_qos.is_some_and(|qos| qos.is_tiered)
    }

    /// Allocatable for limits, without the eviction thresholds.
    pub(crate) fn allocatable(&self) -> Amounts {
        let kept = |amount: fn(&Reserved) -> Option<u64>| {
            amount(&self.system).unwrap_or(0).saturating_add(amount(&self.kube).unwrap_or(0))
        };
        let cpu = self.system.milli_cpu.unwrap_or(0).saturating_add(self.kube.milli_cpu.unwrap_or(0));
        Amounts {
            milli_cpu: self.capacity.milli_cpu.saturating_sub(cpu).max(0),
            memory: self.capacity.memory.saturating_sub(kept(|reserved| reserved.memory)),
            pids: self.capacity.pids.saturating_sub(kept(|reserved| reserved.pids)),
            huge_pages: self.capacity.huge_pages.clone(),
        }
    }
}

impl Reserved {
    fn new(list: &ResourceList, group: &str) -> Self {
        let bytes = |quantity: &Quantity| u64::try_from(quantity.value()).unwrap_or(0);
        Self {
            group: group.to_owned(),
            milli_cpu: list.get(CPU).map(|cpu| cpu.milli_value()),
            memory: list.get(MEMORY).map(bytes),
            pids: list.get("pid").map(bytes),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn settings() -> Settings {
        Settings {
            driver: CgroupDriver::Cgroupfs,
            root: String::new(),
            capacity: Amounts { milli_cpu: 4000, memory: 1 << 30, pids: 32_000, huge_pages: vec![(2 << 20, 8 << 20)] },
            system: Reserved {
                group: "/system".to_owned(),
                milli_cpu: Some(250),
                memory: Some(64 << 20),
                pids: Some(1000),
            },
            kube: Reserved { milli_cpu: Some(250), memory: Some(32 << 20), ..Reserved::default() },
            enforced: EnforcedLimits { pods: true, ..EnforcedLimits::default() },
            pod_pids: None,
            quota_period: Some(100_000),
            memory_qos: Some(MemoryQos::default()),
        }
    }

    #[test]
    fn reservation_above_capacity_leaves_nothing() {
        let mut settings = settings();
        settings.kube.memory = Some(u64::MAX);
        settings.kube.milli_cpu = Some(i64::MAX);
        let left = settings.allocatable();
        assert_eq!((left.milli_cpu, left.memory, left.pids), (0, 0, 31_000));
    }
}
