//! Pods that wait for other pods to end.

use std::rc::Rc;

use super::{Entry, Identity, PodWorkers, State};
use crate::platform::rt;
use crate::state::pods::{ObservedCache, ObservedPod};
use crate::types::api::annotations::{PULL_FIRST, yes_or_no};
use crate::types::api::{Pod, PodUid};

impl PodWorkers {
    /// Whether another pod with a worker has this pod's name.
    pub(crate) fn has_namesake(&self, observed: &ObservedPod) -> bool {
        self.iter().any(|worker| worker.identity.is_name_of(observed) && worker.identity.uid != observed.uid)
    }

    pub(super) fn touch_namesakes(&mut self, identity: &Identity) {
        let namesakes = self.iter().map(|worker| &worker.identity).filter(|namesake| namesake.is_namesake(identity));
        let namesakes: Vec<PodUid> = namesakes.map(|namesake| namesake.uid.clone()).collect();
        self.touched.extend(namesakes);
    }

    /// Two pods of the same name do not run side by side: the later one waits until nothing is left of the other but dead
    /// containers that the runtime fails to remove. A pod that ends before it has begun does not wait.
    pub(super) fn waits_for_namesake(&self, uid: &PodUid, cache: &ObservedCache) -> bool {
        // Also counts a pod that an earlier agent started and that has needed no work since.
        let has_begun = |entry: &Entry| entry.begun || cache.pod(&entry.worker.identity.uid).is_some();
        let waits = |entry: &&Entry| entry.worker.state == State::Sync && !has_begun(entry);
        let Some(entry) = self.workers.get(uid).filter(waits) else { return false };
        let identity = &entry.worker.identity;
        let counts = |other: &&Entry| has_begun(other) && !other.worker.is_stuck_garbage();
        let mut begun = self.workers.values().filter(counts).map(|other| &other.worker.identity);
        begun.any(|other| other.is_namesake(identity) && other.uid != identity.uid)
            || self.unseen.iter().any(|pod| identity.is_name_of(pod) && pod.uid != identity.uid)
    }

    /// Whether the pod's admission is not decided yet. A pod that ends does not wait for it.
    pub(super) fn waits_for_admission(&self, uid: &PodUid) -> bool {
        self.workers.get(uid).is_some_and(|entry| entry.is_held && entry.worker.state == State::Sync)
    }

    /// Whether pods that end to make room for this one are still running.
    /// Their room is free when their containers have stopped, so their clean-up is not waited for.
    pub(super) fn waits_for_room(&mut self, uid: &PodUid) -> bool {
        let waits_for = match self.workers.get(uid) {
            Some(entry) if !entry.waits_for.is_empty() && entry.worker.state == State::Sync => entry.waits_for.clone(),
            Some(_) | None => return false,
        };
        let is_ending = |uid: &PodUid| {
            let worker = self.worker(uid);
            worker.is_some_and(|worker| matches!(worker.state, State::Terminating { .. }))
        };
        let still_ending: Vec<PodUid> = waits_for.into_iter().filter(is_ending).collect();
        let waits = !still_ending.is_empty();
        if let Some(entry) = self.workers.get_mut(uid) {
            entry.waits_for = still_ending;
        }
        waits
    }

    /// Brings the images of a pod of the cluster, once, while it waits. A failure changes nothing: the pod's start pulls.
    /// Those of a manifest's next version are pulled before the present one ends (`versions/next_versions.rs`).
    pub(super) fn pull_early(&mut self, uid: &PodUid) {
        let Some(entry) = self.workers.get_mut(uid) else { return };
        if entry.early_pull.is_some() || entry.worker.state != State::Sync {
            return;
        }
        let pulls_first = |pod: &Pod| pod.annotation(PULL_FIRST).and_then(yes_or_no) != Some(false);
        let Some(pod) = entry.worker.pod.clone().filter(|pod| pod.is_of_cluster() && pulls_first(pod)) else { return };
        if !self.views.objects.read().are_known(&pod) {
            return;
        }
        let (runtime, objects) = (Rc::clone(&self.runtime), self.views.objects.clone());
        entry.early_pull = Some(rt::spawn(async move { runtime.images.pull_early(&pod, &objects).await }));
    }

    pub(super) fn touch_waiting(&mut self, uid: &PodUid) {
        let waiting = self.workers.iter().filter(|(_, entry)| entry.waits_for.contains(uid));
        let waiting: Vec<PodUid> = waiting.map(|(uid, _)| uid.clone()).collect();
        self.touched.extend(waiting);
    }
}
