//! The control groups of pods and the limits in them. Pure.

use std::time::Duration;

use super::check::{Problem, conflict};
use super::fields::Fields;
use super::flag_values::FlagValues;
use crate::types::api::Quantity;

/// Control groups: `cgroupDriver`, `cgroupRoot`, `cgroupsPerQOS`, `cpuCFSQuota`, `cpuCFSQuotaPeriod`,
/// `singleProcessOOMKill`, `memorySwap`, `failCgroupV1`, `systemCgroups` and `--runtime-cgroups`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CgroupSettings {
    pub(crate) driver: CgroupDriver,
    /// Empty: the root of the hierarchy.
    pub(crate) root: String,
    pub(crate) per_qos: bool,
    pub(crate) cpu_cfs_quota: bool,
    pub(crate) cpu_cfs_quota_period: Duration,
    /// `None`: the hierarchy decides (v1: one process, v2: the whole container).
    pub(crate) single_process_oom_kill: Option<bool>,
    pub(crate) swap: SwapBehavior,
    /// `None`: the feature gate is off.
    pub(crate) memory_qos: Option<MemoryQos>,
    /// Refuses to start without cgroup v2.
    pub(crate) fail_v1: bool,
    /// The cgroup of the runtime, whose usage is reported; may be empty.
    pub(crate) runtime: String,
    /// The cgroup of the system's other processes, whose usage is reported; may be empty.
    pub(crate) system: String,
}

/// Creates the control groups of pods, and decides how they are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CgroupDriver {
    Cgroupfs,
    Systemd,
}

/// Whether containers may swap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SwapBehavior {
    #[default]
    NoSwap,
    /// Those of burstable pods may, in proportion to their memory requests.
    LimitedSwap,
}

/// How cgroup v2 protects and throttles the memory of containers (`MemoryQoS`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryQos {
    /// `memoryThrottlingFactor` in thousandths; `None`: nothing is throttled.
    pub(crate) throttling: Option<u64>,
    /// `memoryReservationPolicy: TieredReservation`: requests are protected from reclaim.
    pub(crate) is_tiered: bool,
}

impl Default for CgroupSettings {
    fn default() -> Self {
        Self {
            driver: CgroupDriver::Cgroupfs,
            root: String::new(),
            per_qos: true,
            cpu_cfs_quota: true,
            cpu_cfs_quota_period: Duration::from_millis(100),
            single_process_oom_kill: None,
            swap: SwapBehavior::NoSwap,
            memory_qos: Some(MemoryQos::default()),
            fail_v1: false,
            runtime: String::new(),
            system: String::new(),
        }
    }
}

/// The factor in thousandths, which must be above 0.
fn throttling(fields: &Fields<'_>) -> Result<Option<u64>, Problem> {
    const FACTOR: &str = "memoryThrottlingFactor";
    let number = fields.at(FACTOR).filter(|value| value.is_number());
    let factor = number.and_then(|factor| factor.to_string().parse::<Quantity>().ok());
    let thousandths = factor.and_then(|factor| u64::try_from(factor.milli_value()).ok());
    match thousandths {
        Some(0) => Err(conflict(FACTOR, "must be above 0".to_owned())),
        thousandths => Ok(thousandths),
    }
}

pub(super) fn read(fields: &Fields<'_>, flags: &FlagValues) -> Result<CgroupSettings, Problem> {
    const ROOT: &str = "cgroupRoot";
    const SYSTEM: &str = "systemCgroups";
    let mut cgroups = CgroupSettings {
        root: fields.text(ROOT).unwrap_or_default().to_owned(),
        runtime: flags.runtime_cgroups.clone(),
        system: fields.text(SYSTEM).unwrap_or_default().to_owned(),
        single_process_oom_kill: fields.bool("singleProcessOOMKill"),
        memory_qos: Some(MemoryQos {
            throttling: throttling(fields)?,
            is_tiered: fields.text("memoryReservationPolicy") == Some("TieredReservation"),
        }),
        ..CgroupSettings::default()
    };
    for (field, group) in [(ROOT, &cgroups.root), (SYSTEM, &cgroups.system), ("--runtime-cgroups", &cgroups.runtime)] {
        check_path(field, group)?;
    }
    if fields.text("cgroupDriver") == Some("systemd") {
        cgroups.driver = CgroupDriver::Systemd;
    }
    fields.replace("cgroupsPerQOS", Fields::bool, &mut cgroups.per_qos);
    fields.replace("failCgroupV1", Fields::bool, &mut cgroups.fail_v1);
    fields.replace("cpuCFSQuota", Fields::bool, &mut cgroups.cpu_cfs_quota);
    fields.replace("cpuCFSQuotaPeriod", Fields::duration, &mut cgroups.cpu_cfs_quota_period);
    if fields.text("memorySwap.swapBehavior") == Some("LimitedSwap") {
        cgroups.swap = SwapBehavior::LimitedSwap;
    }
    Ok(cgroups)
}

/// Refuses a `group` that leads out of its place in the hierarchy. `field`: where it is configured.
pub(super) fn check_path(field: &str, group: &str) -> Result<(), Problem> {
    match group.split('/').any(|part| matches!(part, "." | "..")) {
        true => Err(conflict(field, format!("expected a path without . and .., found {group:?}"))),
        false => Ok(()),
    }
}
