//! Computes the statuses of pods.

use std::borrow::Cow;
use std::time::Instant;

use super::PodTable;
use super::unreplaced::runs_other_spec;
use crate::control::pod_sources::merge::config_seen;
use crate::control::pod_workers::{State, Worker};
use crate::kubelet::status::{Resize, StatusInput, new_terminations, pod_status, terminated};
use crate::platform::host::clock;
use crate::state::pods::AllocatedDevices;
use crate::types::api::{Pod, PodStatus, PodUid};
use crate::types::metrics::{self, Count};
use crate::types::sorted::SortedSet;

impl PodTable {
    pub(crate) fn take_dirty(&mut self) -> SortedSet<PodUid> {
        std::mem::take(&mut self.dirty)
    }

    /// Updates the probes of changed pods. Must run before the work, which depends on whether the containers count as
    /// started.
    pub(crate) fn update_probes(&mut self, now: Instant) {
        for uid in &self.dirty {
            let Some(worker) = self.workers.worker(uid) else { continue };
            let Some(pod) = &worker.pod else { continue };
            let observed = self.as_started(uid);
            self.probes.update(pod, &observed, worker.state != State::Sync, now);
        }
    }

    pub(crate) fn refresh_status(&mut self, uid: &PodUid, resize: Resize<'_>, devices: &[AllocatedDevices]) {
        let Some(worker) = self.workers.worker(uid) else { return };
        let Some(pod) = &worker.pod else { return };
        let observed = self.as_started(uid);
        let records = self.records.read();
        let status = pod_status(&StatusInput {
            pod,
            observed: &observed,
            previous: records.statuses.status(uid).map(|status| &**status),
            waiting: &worker.waiting,
            backing_off: self.workers.backing_off(uid),
            probed: self.probes.probed(uid),
            host_ips: &self.runtime.node.node_ips.current(),
            recursive_read_only: self.runtime.mounts_read_only_recursively(pod, &self.objects.read()),
            runtime_name: &records.runtime.name,
            now: clock::now(),
            ended: worker.state != State::Sync,
            failed: self.failed.get(uid),
            resize,
            actuated: self.allocations.actuated.get(uid).as_ref(),
            devices: &self.shown_devices(devices),
            replaced: self.workers.replaced(uid),
            shows_sandbox: self.shows_sandbox,
            own_conditions: self.own_conditions.get(uid).map(Vec::as_slice).unwrap_or_default(),
        });
        let status = self.last_status(worker, pod, status, observed.is_stopped());
        count_terminations(records.statuses.status(uid).map_or(&pod.status, |known| known), &status);
        drop(records);
        let is_unreplaced = worker.state == State::Sync && runs_other_spec(pod, &observed);
        let since = is_unreplaced.then(|| config_seen(pod));
        let mut records = self.records.write();
        records.statuses.set(uid, status);
        match since {
            Some(since) => drop(records.unreplaced.insert(uid.clone(), since)),
            None => drop(records.unreplaced.remove(uid)),
        }
        drop(records);
        self.reports.status.pods_changed();
    }

    /// Whether the pod runs with another spec than `pod` has, and is not replaced.
    pub(crate) fn is_unreplaced(&self, pod: &Pod) -> bool {
        self.observed.read().pod(&pod.metadata.uid).is_some_and(|observed| runs_other_spec(pod, observed))
    }

    fn shown_devices<'a>(&self, devices: &'a [AllocatedDevices]) -> Cow<'a, [AllocatedDevices]> {
        if !self.shows_device_health {
            return Cow::Borrowed(&[]);
        }
        let mut shown = Cow::Borrowed(devices);
        if !self.shows_health_messages && !devices.is_empty() {
            let all = shown.to_mut().iter_mut().flat_map(|allocated| &mut allocated.devices);
            all.for_each(|device| device.message.clear());
        }
        shown
    }

    /// For an ended pod, reports containers that were never observed to exit as lost. A pod that the node has refused
    /// keeps the status of its refusal; a pod that was deleted before the node decided fails, as upstream.
    fn last_status(&self, worker: &Worker, pod: &Pod, status: PodStatus, is_stopped: bool) -> PodStatus {
        let uid = &worker.identity.uid;
        let was_deleted_first = pod.metadata.deletion_timestamp.is_some()
            && !pod.status.phase.is_terminal()
            && !self.failed.contains_key(uid);
        match worker.has_ended_for_good(is_stopped) && (self.admitted.contains(uid) || was_deleted_first) {
            true => {
                let records = self.records.read();
                let previous = records.statuses.status(uid).map(|status| &**status);
                terminated(pod, &status, previous, clock::now())
            }
            false => status,
        }
    }
}

fn count_terminations(former: &PodStatus, status: &PodStatus) {
    for (kind, exit) in new_terminations(former, status) {
        metrics::count(Count::TerminatedContainers, &[kind, &exit.exit_code.to_string(), exit.reason.as_str()]);
    }
}
