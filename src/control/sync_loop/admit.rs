//! Pods that come are taken or refused.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::control::pod_sources::static_pod::is_own_uid;
use crate::control::pod_workers::State;
use crate::control::sync_loop::SyncLoop;
use crate::kubelet::admission::Rejection;
use crate::kubelet::status::Failed;
use crate::state::pods::PodEvent;
use crate::types::api::{EventKind, Pod, PodUid, Reason};
use crate::types::metrics::{self, Count};

/// As upstream tells the pod and whoever looks at its status.
const PREEMPTED: &str = "Preempted in order to admit critical pod";
const DISRUPTED: &str = "Pod was preempted by Kubelet to accommodate a critical pod.";

impl SyncLoop {
    /// Who had a place before keeps it: the pods that the runtime knows come first, in the order in which they were
    /// made. Of the others those of higher priority do, so that none is taken only to end for a later one.
    pub(super) fn in_order_of_admission(&self, pods: Vec<Arc<Pod>>) -> Vec<Arc<Pod>> {
        let seen = self.seen.borrow();
        let oldest = |uid: &PodUid| {
            let known = seen.iter().map(|pod| &**pod).chain(self.workers.all_unseen());
            let sandboxes = known.filter(|pod| pod.uid == *uid).flat_map(|pod| &pod.sandboxes);
            sandboxes.map(|sandbox| sandbox.created_at).min()
        };
        let mut pods = pods;
        pods.sort_by_cached_key(|pod| {
            let priority = -i64::from(pod.spec.priority.unwrap_or(0));
            (oldest(&pod.metadata.uid).unwrap_or(i64::MAX), priority, pod.full_name())
        });
        pods
    }

    /// A source has a pod that it had not before.
    pub(super) fn take_in_new(&mut self, pod: &Arc<Pod>, now: Instant) {
        let uid = &pod.metadata.uid;
        self.see_api_pod(pod);
        if !pod.is_static() && (pod.metadata.deletion_timestamp.is_some() || pod.status.phase.is_terminal()) {
            // What has ended once never begins again, whatever is left of it in the runtime.
            self.end_deleted(pod);
            return;
        }
        self.workers.wanted(pod);
        // One that is still ending under this uid has to be gone first.
        if self.workers.worker(uid).is_some_and(|worker| worker.successor.is_none()) {
            self.admit(pod, now);
        }
        self.dirty.insert(uid.clone());
    }

    /// The pod has come to its end, and its manifest asks for other resources: that is another pod, whose uid says no
    /// more than what cannot be changed while it runs.
    pub(super) fn begins_anew(&self, pod: &Pod) -> bool {
        let uid = &pod.metadata.uid;
        let has_ended = self.workers.worker(uid).is_some_and(|worker| worker.wanted && worker.state != State::Sync);
        has_ended && is_own_uid(uid.as_str())
    }

    /// A pod that the node does not take has failed, and ends before it has begun.
    fn admit(&mut self, pod: &Pod, now: Instant) {
        let uid = &pod.metadata.uid;
        let strict_groups = self.runtime.keeps_to_groups();
        let pressed = self.admit_under_pressure(pod);
        let own = self.plan(pod);
        let given = own.as_ref().map(drop).map_err(Rejection::clone);
        let is_device = |resource: &str| self.devices.is_known(resource);
        let others = self.others(uid);
        let verdict = pressed.and_then(|()| self.admission.admit(pod, &others, strict_groups, given, &is_device));
        let verdict = verdict.and_then(|victims| self.admit_in_shutdown().map(|()| victims));
        match verdict {
            Ok(victims) => {
                self.admitted.insert(uid.clone());
                self.placing.give(uid, own.unwrap_or_default());
                self.preempt(uid, victims, now);
            }
            Err(rejection) => self.reject(uid, rejection, now),
        }
    }

    /// The pod fails and ends.
    pub(super) fn reject(&mut self, uid: &PodUid, Rejection { reason, message }: Rejection, now: Instant) {
        metrics::count(Count::AdmissionRejections, &[reason.as_str()]);
        let told = format!("Pod was rejected: {message}");
        let failed = Failed { reason: reason.clone(), message: told.into(), disruption: None };
        self.on_happened(PodEvent::of_pod(uid, EventKind::Warning, reason, message), now);
        self.failed.insert(uid.clone(), failed);
        self.devices.give_up(uid);
        self.admitted.remove(uid);
        self.workers.end(uid);
    }

    /// The pods that have a place on the node, but for this one; upstream's active pods.
    fn others(&self, uid: &PodUid) -> Vec<&Pod> {
        let takes_room = |state| matches!(state, State::Sync | State::Terminating { .. });
        let active = self.workers.iter().filter(|worker| {
            let other = &worker.identity.uid;
            worker.wanted && takes_room(worker.state) && self.admitted.contains(other) && other != uid
        });
        active.filter_map(|worker| worker.pod.as_deref()).collect()
    }

    /// The victims fail and end, and `uid` begins when they have ended.
    fn preempt(&mut self, uid: &PodUid, victims: Vec<PodUid>, now: Instant) {
        for victim in &victims {
            self.on_happened(PodEvent::of_pod(victim, EventKind::Warning, Reason::PREEMPTING, PREEMPTED), now);
            let (message, disruption) = (PREEMPTED.into(), Some(DISRUPTED.into()));
            self.failed.insert(victim.clone(), Failed { reason: Reason::PREEMPTING, message, disruption });
            self.admitted.remove(victim);
            self.workers.kill(victim, Duration::MAX);
            self.dirty.insert(victim.clone());
        }
        self.workers.wait_for(uid, victims);
    }
}
