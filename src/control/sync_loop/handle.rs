//! Dispatches each event to the part that handles it. Where several parts handle an event, a method fixes their order.

use std::time::Instant;

use crate::control::pod_admission::{RetryTrigger, on_resize_work_done};
use crate::control::pod_table::Effect;
use crate::control::sync_loop::activity::doing;
use crate::control::sync_loop::{SyncLoop, csi_drivers};
use crate::state::pods::{NodeFields, RuntimeState, StoppedPods, SyncEvent, WorkDone, WorkResult};
use crate::types::api::PodUid;

impl SyncLoop {
    pub(super) fn handle(&mut self, event: SyncEvent, now: Instant) {
        self.health.begin(doing(&event));
        let (pods, parts) = (&self.pods, &mut self.parts);
        let effects = match event {
            SyncEvent::Sources(update) => return self.on_sources(update, now),
            SyncEvent::Observed(observation) => return self.observe(observation.pod, &observation.ticket, now),
            SyncEvent::Relisted(relist) => return self.on_relist(relist, now),
            SyncEvent::Runtime(state) => return self.on_runtime(state, now),
            SyncEvent::WorkDone(done) => return self.on_work_done(done, now),
            SyncEvent::Probed(result) => return self.pods.probed(result),
            SyncEvent::PodEvent(event) => vec![Effect::Record(event)],
            SyncEvent::NodeEvent(event) => vec![Effect::RecordNode(event)],
            SyncEvent::AddressesChanged => return self.pods.mark_all_statuses(),
            SyncEvent::NodeChanged(terms) => return self.on_node_fields(terms, now),
            SyncEvent::NodeRead => return self.on_node_read(now),
            SyncEvent::OomKilled(kill) => parts.oom.on_oom_kill(kill),
            SyncEvent::Groupless(uid, sandbox) => vec![Effect::ReplaceSandbox { uid, sandbox }],
            SyncEvent::MemoryStalled => return parts.eviction.on_memory_stalled(),
            SyncEvent::PressureChecked(seen) => parts.eviction.on_observation(seen, pods, now),
            SyncEvent::OverStorageLimits(evictions) => parts.eviction.on_evictions(evictions, pods, now),
            SyncEvent::Object(event) => parts.objects.on_object(event, pods, &parts.csi_drivers, now),
            SyncEvent::ImagesImported => {
                parts.next_versions.retry(now);
                parts.image_garbage.on_images_imported(pods, now)
            }
            SyncEvent::DevicesChanged => {
                parts.readmissions.on_change(now);
                parts.devices.on_changed(pods)
            }
            SyncEvent::CsiDriversChanged => return self.on_csi_drivers_changed(now),
            SyncEvent::DevicesRefused(uid, why) => parts.admission.on_devices_refused(&uid, &why, pods),
            SyncEvent::VolumesRefused(uid, message) => parts.admission.on_volumes_refused(&uid, message, pods),
            SyncEvent::Reported(done) => return parts.status_manager.reported(&done, now),
            SyncEvent::StatusesAdmitted => return parts.status_manager.admitted(),
            SyncEvent::Mirrored(done) => return parts.status_manager.mirrored(done, now),
            SyncEvent::RestartRequest(request) => vec![Effect::Restart(request)],
            SyncEvent::RerunRequest(pod) => return self.rerun(&pod, now),
            SyncEvent::StopRequest(request) => {
                return parts.stops.on_request(request, pods.records().sources.stopped_pods());
            }
            SyncEvent::StoppedPodsWritten(written) => return self.on_stopped_pods_written(written, now),
            SyncEvent::RecordsRead => return self.on_records_read(now),
            SyncEvent::JobsWritten(fault) => return self.on_jobs_written(fault, now),
            SyncEvent::ScheduleDue(zones) => return parts.jobs.on_schedule_due(zones),
            SyncEvent::HostsWritten => return parts.hosts_files.on_written(),
            SyncEvent::VersionRequest(request) => parts.versions.on_request(request),
            SyncEvent::NextVersionPulled { uid, pulled } => {
                parts.next_versions.on_pulled(&uid, pulled, &mut parts.versions, now)
            }
            SyncEvent::TagsLookedUp { pod, targets } => {
                parts.tag_lookups.on_looked_up(&pod, targets, &mut parts.versions, pods, now)
            }
            SyncEvent::UpdateLockTried(uid, tried) => parts.locks.on_tried(&uid, tried, now),
            SyncEvent::VersionsKept(fault) => parts.versions.on_written(fault, now),
            SyncEvent::CpusMoved(placed) => return parts.cpus.on_cpus_moved(placed),
            SyncEvent::NodeShutsDown(shuts_down) => return self.on_node_shuts_down(shuts_down, now),
            SyncEvent::Beat => return,
        };
        self.apply(effects, now);
    }

    pub(super) fn apply(&mut self, effects: Vec<Effect>, now: Instant) {
        self.pods.apply(effects, now);
        if self.pods.take_reconcile() {
            self.select_versions();
            if self.pods.is_relisted() {
                self.reconcile(now);
            }
        }
    }

    fn on_runtime(&mut self, state: RuntimeState, now: Instant) {
        self.pods.record_runtime(state, now);
        self.parts.cgroups.on_runtime(&self.pods);
        self.parts.cgroups.maintain(&self.pods);
        self.pods.sync_all();
    }

    fn on_node_fields(&mut self, fields: NodeFields, now: Instant) {
        self.parts.status_manager.set_node_uid(&fields.uid);
        let is_news = self.parts.objects.on_node_fields(&fields);
        self.parts.admission.on_node_fields(fields);
        self.parts.readmissions.on_change(now);
        if is_news {
            self.parts.objects.follow(&self.pods);
            self.pods.apply(csi_drivers::on_attached(&self.pods), now);
        }
    }

    /// Decides about the pods that waited for the labels that the node has now.
    fn on_node_read(&mut self, now: Instant) {
        for uid in self.parts.admission.on_node_read(now) {
            self.admit_undecided(&uid, now);
        }
    }

    fn on_csi_drivers_changed(&mut self, now: Instant) {
        self.parts.objects.follow(&self.pods);
        let effects = self.parts.csi_drivers.on_changed(&self.pods);
        self.pods.apply(effects, now);
    }

    fn on_work_done(&mut self, WorkDone { uid, observation, result }: WorkDone, now: Instant) {
        let is_observed = observation.is_some();
        if let Some(observation) = observation {
            self.observe(observation.pod, &observation.ticket, now);
        }
        if let WorkResult::Cleaned { purged: true, left } = &result {
            self.parts.orphans.add_leftovers(left);
        }
        self.parts.jobs.on_change();
        let resizing = self.pods.work_done(&uid, is_observed, &result, now);
        if matches!(result, WorkResult::Stopped) {
            self.static_pod_ended(&uid);
        }
        if matches!(result, WorkResult::Cleaned { .. }) {
            self.parts.readmissions.on_ended_pod();
        }
        let after = self.pods.workers().resizing(&uid);
        let event = self.pods.worker(&uid).and_then(|worker| on_resize_work_done(worker, &resizing, after));
        self.pods.apply(event, now);
        if matches!(result, WorkResult::Stopped) {
            self.parts.readmissions.on_change(now);
            self.retry_resizes(RetryTrigger::PodTerminated, now);
        }
        self.parts.devices.release(&self.pods);
    }

    /// What the sources reported meanwhile is handled.
    fn on_records_read(&mut self, now: Instant) {
        for update in self.parts.jobs.take_read() {
            self.on_sources(update, now);
        }
        for update in self.parts.versions.take_read() {
            self.on_sources(update, now);
        }
        self.pods.set_job_pods(self.parts.jobs.pods());
        if self.pods.is_relisted() {
            self.reconcile(now);
        }
    }

    /// What was decided about Jobs takes effect.
    fn on_jobs_written(&mut self, fault: Option<String>, now: Instant) {
        let effects = self.parts.jobs.on_written(fault, now);
        self.pods.apply(effects, now);
        self.pods.set_job_pods(self.parts.jobs.pods());
        if self.pods.is_relisted() {
            self.reconcile(now);
        }
    }

    /// Users are answered when the pod table knows their change.
    fn on_stopped_pods_written(&mut self, written: Result<StoppedPods, String>, now: Instant) {
        let fault = match written {
            Ok(stopped) => {
                self.pods.set_stopped_pods(stopped);
                self.parts.versions.set_stopped_pods(&self.pods);
                if self.pods.is_relisted() {
                    self.reconcile(now);
                }
                None
            }
            Err(fault) => Some(fault),
        };
        self.parts.stops.on_written(fault, self.pods.records().sources.stopped_pods());
    }

    /// Deletes the mirror pod of a removed static pod, which has ended now.
    fn static_pod_ended(&mut self, uid: &PodUid) {
        if self.pods.records().is_ending_static(uid) {
            self.update_mirror_pods();
        }
    }

    /// A cancelled shutdown restarts the static pods that it ended.
    fn on_node_shuts_down(&mut self, shuts_down: bool, now: Instant) {
        let effects = self.parts.shutdown.on_node_shuts_down(shuts_down, now);
        let is_cancelled = !effects.is_empty() && !shuts_down;
        self.pods.apply(effects, now);
        if is_cancelled {
            for pod in self.parts.shutdown.ended_static_pods(&self.pods) {
                self.recreate(&pod, now);
            }
        }
    }
}
