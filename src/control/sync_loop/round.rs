//! One round of the sync loop: calls the parts in order.

use std::time::Instant;

use crate::control::pod_admission::{ResizeContext, RetryTrigger};
use crate::control::pod_workers::State;
use crate::control::server::Activity;
use crate::control::sync_loop::SyncLoop;
use crate::control::sync_loop::parts::{Parts, admits_growth};
use crate::platform::host::clock;
use crate::platform::rt::{self, TurnWork};
use crate::types::api::{Pod, PodUid};

/// Containers whose statuses are generated in a turn of the executor. A pod with more has a turn of its own.
const STATUS_CONTAINERS_OF_A_TURN: usize = 500;

impl SyncLoop {
    /// Starts the next work of all pods, and updates the statuses.
    pub(super) async fn round(&mut self, now: Instant) {
        self.health.begin(Activity::Versions);
        let Parts { next_versions, versions, locks, .. } = &mut self.parts;
        let effects = next_versions.round(versions, locks, &self.pods, now);
        self.apply(effects, now);
        self.parts.tag_lookups.round(&self.parts.versions, &self.pods, now);
        self.health.begin(Activity::Deadlines);
        let effects = self.parts.deadlines.round(&self.pods, now);
        self.pods.apply(effects, now);
        self.health.begin(Activity::Shutdown);
        let effects = self.parts.shutdown.round(&mut self.parts.locks, &self.pods, now);
        self.pods.apply(effects, now);
        self.health.begin(Activity::Volumes);
        let effects = self.parts.objects.round(&self.pods, now);
        self.pods.apply(effects, now);
        self.health.begin(Activity::Probes);
        self.pods.update_probes(now);
        if self.pods.can_work() {
            self.health.begin(Activity::Readmissions);
            self.readmit(now);
            self.admit_waiting(now);
            self.start_work(now).await;
            self.health.begin(Activity::CpuAssignment);
            self.parts.cgroups.round(&self.pods);
            self.parts.cpus.round(&self.pods);
        }
        self.health.begin(Activity::Volumes);
        let effect = self.parts.csi_drivers.round(&self.pods);
        self.pods.apply(effect, now);
        self.health.begin(Activity::Images);
        self.parts.image_garbage.round(&self.pods, &self.parts.versions, now);
        self.health.begin(Activity::NodePressure);
        if self.parts.eviction.is_settled() {
            self.parts.storage_limits.round(&self.pods, &self.parts.eviction);
        }
        self.parts.eviction.round(&self.pods, &self.parts.versions, &self.parts.locks, now);
        self.health.begin(Activity::Statuses);
        let effects = self.parts.versions.show_trials(&self.pods);
        self.pods.apply(effects, now);
        // After all parts whose effects mark pods, so that a round generates one status for each of them.
        self.refresh_statuses(now).await;
        self.health.begin(Activity::Versions);
        let effects = self.parts.versions.round(&mut self.parts.locks, &self.pods, now);
        self.apply(effects, now);
        // After all parts that ask.
        let effects = self.parts.locks.round(&self.pods, now);
        self.pods.apply(effects, now);
        let effect = self.parts.versions.show_held_pods(&self.pods);
        self.pods.apply(effect, now);
        self.parts.hosts_files.round(&self.pods, now);
        self.parts.jobs.round(&self.pods, now);
        self.health.begin(Activity::Reporting);
        self.parts.status_manager.round(now);
        self.health.begin(Activity::ShutdownEnd);
        let is_reporting = self.parts.status_manager.is_reporting();
        self.parts.shutdown.release_inhibitor(is_reporting, now);
        self.errors.note_all(self.pods.take_errors());
    }

    /// Starts the pods' work. Repeats while pods end or shrink that other pods wait for.
    async fn start_work(&mut self, now: Instant) {
        loop {
            self.health.begin(Activity::StartingWork);
            let ended = self.pods.start_work(now);
            let trigger = match (ended.is_empty(), self.pods.take_resized()) {
                (false, _) => RetryTrigger::PodsRemoved,
                (true, true) => RetryTrigger::PodResized,
                (true, false) if self.pods.has_work_to_start() => {
                    self.pause(Activity::StartingWork).await;
                    continue;
                }
                (true, false) => return,
            };
            for (uid, successor) in ended {
                let was_static = self.pods.records().is_ending_static(&uid);
                self.forget(&uid);
                if let Some(pod) = successor {
                    self.add(&pod, now);
                }
                if was_static {
                    // A successor of the same uid has the same mirror pod.
                    self.update_mirror_pods();
                }
            }
            self.parts.readmissions.on_change(now);
            self.health.begin(Activity::PendingResizes);
            // Pods may have waited for the resources of these pods.
            self.retry_resizes(trigger, now);
        }
    }

    /// Retries the deferred resizes. Each resize that fits leaves less room for the next.
    pub(super) fn retry_resizes(&mut self, trigger: RetryTrigger, now: Instant) {
        for uid in self.parts.resizes.deferred(&self.pods) {
            let (pods, parts) = (&self.pods, &mut self.parts);
            let gate = |pod: &Pod| admits_growth(&parts.eviction, &parts.shutdown, pod);
            let deciders = ResizeContext { admission: &parts.admission, managers: parts.cpus.managers(), gate: &gate };
            let effects = parts.resizes.retry(&uid, pods, deciders, trigger);
            if !effects.is_empty() {
                self.parts.cgroups.on_pods_changed();
            }
            self.pods.apply(effects, now);
        }
    }

    fn forget(&mut self, uid: &PodUid) {
        self.pods.forget(uid);
        self.parts.status_manager.forget(uid);
        self.parts.deadlines.forget(uid);
        self.parts.resizes.forget(uid);
        self.parts.hosts_files.on_change();
        self.parts.cgroups.on_pods_changed();
    }

    /// The pod's status changed.
    fn report_status(&mut self, uid: &PodUid) {
        let (manager, records) = (&mut self.parts.status_manager, self.pods.records());
        let Some(worker) = self.pods.worker(uid) else { return };
        let Some(status) = records.statuses.status(uid) else { return };
        let may_run = matches!(worker.state, State::Sync | State::Terminating { .. });
        manager.set_pod_status(uid, status, may_run, clock::now());
        // A successor of the same uid: the API server was restored, and does not delete the pod in its present history.
        let deleted = worker.pod.as_ref().filter(|pod| !pod.is_static() && worker.successor.is_none());
        let deleted = deleted.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some());
        if deleted && worker.state == State::Finished {
            manager.finish_deletion(uid);
        }
    }

    /// Lets the other tasks run before the round goes on.
    async fn pause(&self, next: Activity) {
        // What others compute meanwhile is of the state that they see.
        self.health.end_round();
        rt::yield_now().await;
        self.health.begin(next);
    }

    async fn refresh_statuses(&mut self, now: Instant) {
        let mut turn = TurnWork::new(STATUS_CONTAINERS_OF_A_TURN);
        let dirty = self.pods.take_dirty();
        if !dirty.is_empty() {
            self.parts.hosts_files.on_change();
            self.parts.jobs.on_change();
        }
        for uid in dirty {
            // Before its first observation, the pod's status would report its containers as lost.
            if !self.pods.is_unknown(&uid) {
                let resizing = self.pods.workers().resizing(&uid).clone();
                let resize = self.parts.resizes.of(&uid, &resizing);
                let devices = self.parts.devices.shown(&uid, &self.pods);
                self.pods.refresh_status(&uid, resize, &devices);
                self.report_status(&uid);
            }
            self.parts.deadlines.on_status(&uid, &self.pods, now);
            let pod = self.pods.worker(&uid).and_then(|worker| worker.pod.as_ref());
            if turn.ends_with(pod.map_or(0, |pod| pod.spec.all_containers().count())) {
                self.pause(Activity::Statuses).await;
            }
        }
    }
}
