//! What the sync loop does when the runtime was observed.

use std::time::Instant;

use crate::control::sync_loop::SyncLoop;
use crate::state::pods::{Look, ObservedPod, Relist};

impl SyncLoop {
    pub(super) fn on_relist(&mut self, relist: Relist, now: Instant) {
        let (observed, look) = self.pods.take_relist(relist);
        for pod in observed {
            self.observe(pod, &look);
        }
        if self.pods.relisted() {
            self.parts.cpus.on_first_relist(&self.pods);
            self.learn_devices();
            self.reconcile(now);
        } else {
            self.end_orphans(now);
            self.retry_resizes(now);
        }
        self.parts.cpus.look_again();
        self.look_after_groups();
        self.pods.refresh_republished_volumes();
        self.follow_growth();
        // Pods that need nothing are synced too: the relist is the one timer of all periodic syncs.
        self.pods.sync_all();
        self.image_garbage.relisted(now);
        self.parts.eviction.on_relisted();
        if self.parts.eviction.limits_storage() {
            self.parts.storage_limits.on_relisted();
        }
    }

    pub(super) fn observe(&mut self, mut pod: ObservedPod, look: &Look) {
        self.note_oom_kills(&mut pod);
        if self.pods.observe(pod, look) {
            self.parts.cpus.look_again();
        }
    }
}
