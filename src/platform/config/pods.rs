//! How many pods a node has, and what they may do. Pure.

use std::time::Duration;

use serde_json::Value;

use super::check::{Problem, conflict};
use super::fields::Fields;

/// Limits of pods: `maxPods`, `podsPerCore`, `podPidsLimit`, `userNamespaces`, `seccompDefault`, `allowedUnsafeSysctls`,
/// `crashLoopBackOff` and `syncFrequency`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodSettings {
    pub(crate) max_pods: u32,
    pub(crate) per_core: Option<u32>,
    /// `None`: as many as the node has.
    pub(crate) pids_limit: Option<i64>,
    /// Of a pod with a user namespace; a multiple of 65536.
    pub(crate) user_ids_per_pod: u32,
    pub(crate) seccomp_default: bool,
    /// Kernel parameters that pods may set beside the safe ones: names, or prefixes that end in `*`.
    pub(crate) allowed_unsafe_sysctls: Vec<String>,
    pub(crate) first_container_restart_period: Duration,
    pub(crate) max_container_restart_period: Duration,
    pub(crate) sync_frequency: Duration,
}

impl Default for PodSettings {
    fn default() -> Self {
        Self {
            max_pods: 110,
            per_core: None,
            pids_limit: None,
            user_ids_per_pod: 65536,
            seccomp_default: false,
            allowed_unsafe_sysctls: Vec::new(),
            first_container_restart_period: Duration::from_secs(10),
            max_container_restart_period: Duration::from_secs(300),
            sync_frequency: Duration::from_secs(60),
        }
    }
}

pub(super) const MAX_PODS_FIELD: &str = "maxPods";
const MAX_RESTART_PERIOD: &str = "crashLoopBackOff.maxContainerRestartPeriod";

impl PodSettings {
    /// Shortens the waits between restarts (`ReduceDefaultCrashLoopBackOffDecay`).
    pub(super) fn reduce_restart_periods(&mut self, fields: &Fields<'_>) {
        self.first_container_restart_period = Duration::from_secs(1);
        self.max_container_restart_period = Duration::from_secs(60);
        fields.replace(MAX_RESTART_PERIOD, Fields::duration, &mut self.max_container_restart_period);
    }
}

pub(super) fn read(fields: &Fields<'_>) -> Result<PodSettings, Problem> {
    const IDS: &str = "userNamespaces.idsPerPod";
    let mut pods = PodSettings {
        per_core: fields.positive("podsPerCore"),
        pids_limit: fields.int("podPidsLimit").filter(|limit| *limit > 0),
        ..PodSettings::default()
    };
    fields.replace(MAX_PODS_FIELD, Fields::count, &mut pods.max_pods);
    fields.replace("seccompDefault", Fields::bool, &mut pods.seccomp_default);
    if let Some(Value::Array(names)) = fields.at("allowedUnsafeSysctls") {
        pods.allowed_unsafe_sysctls = names.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect();
    }
    fields.replace(MAX_RESTART_PERIOD, Fields::duration, &mut pods.max_container_restart_period);
    fields.replace("syncFrequency", Fields::period, &mut pods.sync_frequency);
    fields.replace(IDS, Fields::positive, &mut pods.user_ids_per_pod);
    if pods.user_ids_per_pod % 65536 != 0 {
        return Err(conflict(IDS, format!("expected a multiple of 65536, found {}", pods.user_ids_per_pod)));
    }
    Ok(pods)
}
