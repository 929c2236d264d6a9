//! Starts and finishes the work of the pod workers.

use std::sync::Arc;
use std::time::Instant;

use super::PodTable;
use crate::control::pod_workers::{Kind, Resizing, State};
use crate::kubelet::allocation::resize_message;
use crate::state::objects::{WritableClaim, writable_claims};
use crate::state::pods::{ErrorSubject, NodeError, PodEvent, WorkResult};
use crate::types::api::{EventKind, Pod, PodUid, Reason};

impl PodTable {
    /// Starts the next work of the workers, as far as it fits into a turn of the executor. Returns the pods whose workers
    /// have ended, each with its successor of the same uid, if any.
    pub(crate) fn start_work(&mut self, now: Instant) -> Vec<(PodUid, Option<Arc<Pod>>)> {
        let ended = {
            let runtime = &self.records.read().runtime;
            self.workers.start_work(&self.observed.read(), &self.probes, runtime, now)
        };
        for (uid, generation) in self.workers.take_resized() {
            let Some(pod) = self.workers.worker(&uid).and_then(|worker| worker.pod.clone()) else { continue };
            let message = resize_message("Pod resize completed", &pod, generation, None);
            self.record(PodEvent::of_pod(&uid, EventKind::Normal, Reason::RESIZE_COMPLETED, message), now);
            self.resized = true;
            self.mark_status(uid);
        }
        // The pods that have ended are forgotten next.
        debug_assert_eq!(self.broken().filter(|_| ended.is_empty()), None);
        ended
    }

    pub(crate) fn has_work_to_start(&self) -> bool {
        self.workers.has_work_to_start()
    }

    /// Handles the end of a worker's work. Returns the previous state of the pod's resize.
    pub(crate) fn work_done(&mut self, uid: &PodUid, is_observed: bool, result: &WorkResult, now: Instant) -> Resizing {
        if let WorkResult::Synced { failure: Some(failure), .. }
        | WorkResult::NotPurged { failure }
        | WorkResult::Failed { failure } = result
        {
            let name = self.workers.worker(uid).map_or_else(|| uid.to_string(), |worker| worker.identity.to_string());
            if !matches!(result, WorkResult::Synced { warnings, .. } if !warnings.is_empty()) {
                log!(warn, "failed to sync pod", pod = name, error = failure);
            }
            let subject = match self.workers.worker(uid).map(|worker| &worker.identity) {
                Some(identity) => [&*identity.namespace, "/", &*identity.name].concat(),
                None => name,
            };
            self.errors.push(NodeError { subject: ErrorSubject::Pod(subject), message: failure.clone() });
        }
        if let WorkResult::Cleaned { left: leftovers, .. } = result {
            self.note_leftovers(uid, leftovers, now);
        }
        self.record_failure(uid, result, now);
        if let WorkResult::Synced { warnings, .. } | WorkResult::Refreshed { warnings, .. } = result {
            for (reason, message) in warnings {
                self.record(PodEvent::of_pod(uid, EventKind::Warning, reason.clone(), message.as_str()), now);
            }
        }
        let resizing = self.workers.resizing(uid).clone();
        self.workers.work_done(uid, is_observed, result, now);
        self.mark_status(uid.clone());
        resizing
    }

    /// Logs what could not be removed of an ended pod, and records an event. Once no source has the pod, the removal of
    /// orphaned directories tries again.
    fn note_leftovers(&mut self, uid: &PodUid, leftovers: &[String], now: Instant) {
        // Not again when a pod is purged that was cleaned up before.
        let is_first = self.workers.worker(uid).is_some_and(|worker| worker.state == State::Terminated);
        if let Some(error) = leftovers.first().filter(|_| is_first) {
            let message = format!("Failed to remove files of the ended pod, trying again later: {error}");
            self.record(PodEvent::of_pod(uid, EventKind::Warning, Reason::FAILED_CLEAN_UP, message), now);
        }
        let name = self.workers.worker(uid).map_or_else(|| uid.to_string(), |worker| worker.identity.to_string());
        for error in leftovers {
            log!(warn, "failed to remove files of ended pod, trying again later", pod = name, error = error);
        }
    }

    /// Records upstream's events for failed work, in addition to the warnings that the work itself recorded.
    fn record_failure(&mut self, uid: &PodUid, result: &WorkResult, now: Instant) {
        let busy = self.workers.worker(uid).and_then(|worker| worker.busy);
        let (reason, message) = match (busy, result) {
            (Some(Kind::Relist), WorkResult::Synced { failure: Some(failure), .. }) => {
                (Reason::FAILED_SYNC, format!("error determining status: {failure}"))
            }
            (Some(Kind::Stop), WorkResult::Failed { failure }) => {
                (Reason::FAILED_KILL_POD, format!("error killing pod: {failure}"))
            }
            _ => return,
        };
        self.record(PodEvent::of_pod(uid, EventKind::Warning, reason, message), now);
    }

    /// Refreshes volumes whose contents are republished periodically.
    pub(crate) fn refresh_republished_volumes(&mut self) {
        let objects = self.objects.read();
        self.workers.volumes_due(|pod| objects.is_republished(pod));
    }

    /// The claims from manifests that the pod can write to.
    pub(crate) fn writable_claims(&self, pod: &Pod) -> Vec<WritableClaim> {
        writable_claims(pod, &self.runtime.node.claims_dir, &self.objects.read())
    }

    /// Makes every worker check for work in this round.
    pub(crate) fn sync_all(&mut self) {
        self.workers.touch_all();
    }

    /// Forgets a pod whose worker has ended.
    pub(crate) fn forget(&mut self, uid: &PodUid) {
        self.pleg.forget(uid);
        self.probes.forget(uid);
        self.reports.dedup.forget(uid);
        let mut records = self.records.write();
        records.statuses.forget(uid);
        records.ending.remove(uid);
        records.unreplaced.remove(uid);
        drop(records);
        self.reports.status.pods_changed();
        self.dirty.remove(uid);
        self.failed.remove(uid);
        self.own_conditions.remove(uid);
        self.admitted.remove(uid);
        self.allocations.allocated.remove(uid);
        self.allocations.actuated.remove(uid);
        log!(info, "pod gone", uid = uid);
    }
}
