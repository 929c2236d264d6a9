//! Handles observations of the runtime.

use std::time::Instant;

use crate::control::pod_admission::RetryTrigger;
use crate::control::sync_loop::SyncLoop;
use crate::state::pods::{ObservationTicket, ObservedPod, Relist};

impl SyncLoop {
    pub(super) fn on_relist(&mut self, relist: Relist, now: Instant) {
        let (observed, look) = self.pods.take_relist(relist);
        for pod in observed {
            self.observe(pod, &look, now);
        }
        if self.pods.relisted() {
            self.parts.cpus.on_first_relist(&self.pods);
            self.parts.devices.on_first_relist(&self.pods);
            self.reconcile(now);
        } else {
            self.end_orphans(now);
            self.retry_resizes(RetryTrigger::PeriodicRetry, now);
        }
        self.parts.cpus.recheck();
        self.parts.cgroups.maintain(&self.pods);
        self.pods.refresh_republished_volumes();
        self.parts.csi_drivers.on_relisted(&self.pods);
        // Relists also drive all periodic syncs, so that no other timer is needed.
        self.pods.sync_all();
        self.parts.image_garbage.on_relisted(now);
        self.parts.eviction.on_relisted();
        if self.parts.eviction.limits_storage() {
            self.parts.storage_limits.on_relisted();
        }
    }

    /// Ends pods that no source has, and removes what is left of former pods: directories, devices and claims. A node may
    /// finish all of its work before its sources are ready, so the end of work alone would leave them.
    pub(super) fn end_orphans(&mut self, now: Instant) {
        let effects = self.parts.orphans.round(&self.pods);
        self.pods.apply(effects, now);
        self.parts.orphans.remove_directories(&self.pods, now);
        self.parts.devices.release(&self.pods);
    }

    /// Handles the observation of one pod.
    pub(super) fn observe(&mut self, mut pod: ObservedPod, ticket: &ObservationTicket, now: Instant) {
        let effects = self.parts.oom.on_observed(&mut pod, &self.pods);
        self.pods.apply(effects, now);
        let uid = pod.uid.clone();
        if self.pods.observe(pod, ticket) {
            self.parts.cpus.recheck();
        }
        self.followers.on_observation(&uid, self.pods.observed().pod(&uid).map(|pod| &**pod));
    }
}
