//! Which part decides about each event.

use std::time::Instant;

use crate::control::sync_loop::activity::doing;
use crate::control::sync_loop::effect::Effect;
use crate::control::sync_loop::{SyncLoop, pending_resizes};
use crate::state::pods::{RuntimeState, SyncEvent, WorkDone};

impl SyncLoop {
    pub(super) fn handle(&mut self, event: SyncEvent, now: Instant) {
        self.health.begin(doing(&event));
        let (pods, parts) = (&self.pods, &mut self.parts);
        let effects = match event {
            SyncEvent::Sources(update) => return self.on_sources(update, now),
            SyncEvent::Observed(observation) => return self.observe(observation.pod, &observation.look, now),
            SyncEvent::Relisted(relist) => return self.on_relist(relist, now),
            SyncEvent::Runtime(state) => return self.on_runtime(state, now),
            SyncEvent::WorkDone(done) => return self.on_work_done(done, now),
            SyncEvent::Probed(result) => return self.pods.probed(result),
            SyncEvent::Happened(event) => vec![Effect::Record(event)],
            SyncEvent::NodeHappened(event) => vec![Effect::RecordNode(event)],
            SyncEvent::NodeHeard(terms) => return self.on_node_heard(terms),
            SyncEvent::OomKilled(kill) => parts.oom.on_oom_kill(kill),
            SyncEvent::Groupless(uid, sandbox) => vec![Effect::ReplaceSandbox { uid, sandbox }],
            SyncEvent::MemoryStalled => return parts.eviction.on_memory_stalled(),
            SyncEvent::PressureLooked(seen) => parts.eviction.on_observation(seen, pods, now),
            SyncEvent::OverStorageLimits(evictions) => parts.eviction.on_evictions(evictions, pods, now),
            SyncEvent::Object(news) => return self.on_object(news),
            SyncEvent::ImagesCame => parts.image_garbage.on_images_came(pods, now),
            SyncEvent::DevicesChanged => parts.devices.on_changed(pods),
            SyncEvent::CsiDriversChanged => return self.on_csi_drivers_changed(),
            SyncEvent::DevicesRefused(uid, why) => parts.admission.on_devices_refused(&uid, &why, pods),
            SyncEvent::VolumesRefused(uid, message) => parts.admission.on_volumes_refused(&uid, message, pods),
            SyncEvent::Reported(done) => return self.on_reported(&done, now),
            // The status manager starts what waits in this round.
            SyncEvent::StatusesAdmitted => return self.on_statuses_admitted(),
            SyncEvent::Mirrored(done) => return self.on_mirrored(done, now),
            SyncEvent::RestartRequest(request) => vec![Effect::Restart(request)],
            SyncEvent::VersionAsked(asked) => return self.on_version_asked(asked, now),
            SyncEvent::VersionsKept(fault) => return self.on_versions_kept(fault, now),
            SyncEvent::Placed(placed) => return parts.cpus.on_placed(placed),
            SyncEvent::NodeShutsDown(shuts_down) => return self.on_node_shuts_down(shuts_down, now),
            SyncEvent::Beat => return,
        };
        self.pods.apply(effects, now);
    }

    fn on_runtime(&mut self, state: RuntimeState, now: Instant) {
        self.pods.record_runtime(state, now);
        self.parts.cgroups.on_runtime(&self.pods);
        self.parts.cgroups.look_after(&self.pods);
        self.pods.sync_all();
    }

    fn on_work_done(&mut self, WorkDone { uid, observation, result }: WorkDone, now: Instant) {
        let is_observed = observation.is_some();
        if let Some(observation) = observation {
            self.observe(observation.pod, &observation.look, now);
        }
        let resizing = self.pods.work_done(&uid, is_observed, &result, now);
        let event = pending_resizes::on_work_done(&uid, &resizing, self.pods.workers().resizing(&uid));
        self.pods.apply(event, now);
        self.parts.devices.release(&self.pods);
    }

    /// A cancelled shutdown lets the static pods run again that have ended for it.
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
