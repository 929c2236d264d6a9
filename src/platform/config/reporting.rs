//! Settings of node registration, node status, lease and events. Pure.

use std::time::Duration;

use super::check::Problem;
use super::coracle_file::{SyncMode, SyncSettings};
use super::fields::Fields;
use super::flag_values::FlagValues;
use super::taints;
use crate::types::api::Taint;

/// What the node reports to the API server, and how often.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reporting {
    /// Whether to create the Node object.
    pub(crate) register: bool,
    /// Whether to register as unschedulable.
    pub(crate) unschedulable: bool,
    pub(crate) taints: Vec<Taint>,
    /// Whether a cloud controller manager sets the addresses and removes its taint.
    pub(crate) external_cloud: bool,
    pub(crate) provider_id: String,
    /// The interval of node status updates without changes; changes are reported at once.
    pub(crate) status_period: Duration,
    /// Whole seconds.
    pub(crate) lease_duration: Duration,
    /// Most images in the node status; `None`: all.
    pub(crate) max_images: Option<usize>,
    /// Per second; 0: no limit.
    pub(crate) event_qps: u32,
    pub(crate) event_burst: u32,
}

impl Default for Reporting {
    fn default() -> Self {
        Self {
            register: true,
            unschedulable: false,
            taints: Vec::new(),
            external_cloud: false,
            provider_id: String::new(),
            status_period: Duration::from_secs(5 * 60),
            lease_duration: Duration::from_secs(40),
            max_images: Some(0),
            event_qps: 50,
            event_burst: 100,
        }
    }
}

impl Reporting {
    /// Adapts the lease duration and the node status interval to a node that polls. `is_given`: whether the status
    /// interval is configured.
    pub(super) fn fit(&mut self, sync: &SyncSettings, is_given: bool) {
        if let SyncMode::Poll { every } = sync.mode {
            self.lease_duration = every.saturating_mul(RENEWALS_PER_LEASE).max(self.lease_duration);
            if !is_given {
                self.status_period = every.saturating_mul(POLLS_PER_STATUS).max(self.status_period);
            }
        }
        self.lease_duration = sync.lease_duration.unwrap_or(self.lease_duration);
    }
}

/// Renewals per lease duration.
const RENEWALS_PER_LEASE: u32 = 4;
/// Polls per node status without changes. Between them, the lease shows that the node is alive.
const POLLS_PER_STATUS: u32 = 4;

pub(super) fn read(fields: &Fields<'_>, flags: &FlagValues) -> Result<Reporting, Problem> {
    let mut reporting = Reporting {
        unschedulable: flags.unschedulable,
        external_cloud: flags.external_cloud,
        taints: taints::read(fields)?,
        provider_id: fields.text("providerID").unwrap_or_default().to_owned(),
        ..Reporting::default()
    };
    fields.replace("registerNode", Fields::bool, &mut reporting.register);
    fields.replace("nodeStatusReportFrequency", Fields::period, &mut reporting.status_period);
    if let Some(seconds) = fields.positive("nodeLeaseDurationSeconds") {
        reporting.lease_duration = Duration::from_secs(seconds.into());
    }
    if let Some(images) = fields.int("nodeStatusMaxImages") {
        reporting.max_images = usize::try_from(images).ok();
    }
    fields.replace("eventRecordQPS", Fields::count, &mut reporting.event_qps);
    fields.replace("eventBurst", Fields::positive, &mut reporting.event_burst);
    Ok(reporting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_nodes_get_longer_leases_and_rarer_statuses() {
        let minute = Duration::from_secs(60);
        let fitted = |sync: &SyncSettings, is_given| {
            let mut reporting = Reporting::default();
            reporting.fit(sync, is_given);
            (reporting.lease_duration, reporting.status_period)
        };
        let mut sync = SyncSettings { mode: SyncMode::Poll { every: 15 * minute }, ..SyncSettings::default() };
        assert_eq!(fitted(&sync, false), (60 * minute, 60 * minute));
        assert_eq!(fitted(&sync, true), (60 * minute, 5 * minute));
        sync.lease_duration = Some(30 * minute);
        assert_eq!(fitted(&sync, true), (30 * minute, 5 * minute));
        sync = SyncSettings { mode: SyncMode::Manual, ..SyncSettings::default() };
        assert_eq!(fitted(&sync, false), (minute * 2 / 3, 5 * minute));
        sync.lease_duration = Some(24 * 60 * minute);
        assert_eq!(fitted(&sync, false), (24 * 60 * minute, 5 * minute));
    }
}
