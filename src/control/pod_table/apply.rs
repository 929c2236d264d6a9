//! Carries out effects. Only this file admits and ends pods.

use std::sync::Arc;
use std::time::Instant;

use super::PodTable;
use crate::control::pod_table::{Effect, EndCause, EndPod};
use crate::kubelet::allocation::PodResourceInfo;
use crate::kubelet::status::OwnCondition;
use crate::platform::host::clock;
use crate::types::api::{Pod, PodUid};

impl PodTable {
    pub(crate) fn apply(&mut self, effects: impl IntoIterator<Item = Effect>, now: Instant) {
        for effect in effects {
            self.apply_one(effect, now);
        }
    }

    fn apply_one(&mut self, effect: Effect, now: Instant) {
        debug_assert_eq!(self.broken_by(&effect), None, "{effect:?}");
        match effect {
            Effect::Admit { uid, after } => self.admit(uid, after),
            Effect::Condition { uid, kind, condition } => self.set_condition(uid, kind, condition),
            Effect::Delete(pod) => self.delete(&pod),
            Effect::End(end) => self.end(end, now),
            Effect::EndOrphan(pod) => {
                log!(info, "ending orphaned pod", pod = pod.uid, name = pod.name);
                self.workers.orphan(&pod);
            }
            Effect::Hold(uid) => self.workers.hold(&uid),
            Effect::NodeStatus(change) => self.reports.node_status(change),
            Effect::ReferencesChanged(pods) => self.workers.objects_changed(|pod| pods.contains(&pod.metadata.uid)),
            Effect::MarkStatus(uid) => self.mark_status(uid),
            Effect::Record(event) => self.record(event, now),
            Effect::Reconcile => self.reconcile = true,
            Effect::RecordError(error) => self.errors.push(error),
            Effect::RecordNode(event) => self.record_node(event, now),
            Effect::RecordOf(object, event) => self.record_of(object, event, now),
            Effect::Remove(uid) => self.remove(uid),
            Effect::RemoveDeadContainers => self.workers.give_back(&self.observed.read()),
            Effect::ReplaceSandbox { uid, sandbox } => self.workers.found_without_cgroup(&uid, sandbox),
            Effect::Resize { uid, resources, generation } => self.resize(uid, resources, generation),
            Effect::Restart(request) => self.workers.restart(request),
            Effect::Supersede(uid) => {
                self.allocations.allocated.remove(&uid);
                self.workers.unwanted(&uid);
            }
            Effect::UpdateStatus(pod) => {
                self.workers.update_status(&self.with_allocation(&pod));
                self.mark_status(pod.metadata.uid.clone());
            }
            Effect::Update(pod) => {
                self.workers.update_pod(&self.with_allocation(&pod));
                self.mark_status(pod.metadata.uid.clone());
            }
        }
    }

    pub(crate) fn mark_all_statuses(&mut self) {
        for worker in self.workers.iter() {
            self.dirty.insert(worker.identity.uid.clone());
        }
    }

    pub(crate) fn mark_status(&mut self, uid: PodUid) {
        self.dirty.insert(uid);
    }

    fn set_condition(&mut self, uid: PodUid, kind: &'static str, condition: Option<OwnCondition>) {
        let mut conditions = self.own_conditions.remove(&uid).unwrap_or_default();
        conditions.retain(|condition| condition.kind != kind);
        conditions.extend(condition);
        if !conditions.is_empty() {
            self.own_conditions.insert(uid.clone(), conditions);
        }
        self.mark_status(uid);
    }

    fn admit(&mut self, uid: PodUid, after: Vec<PodUid>) {
        self.workers.wait_for(&uid, after);
        if let Some(pod) = self.workers.worker(&uid).and_then(|worker| worker.pod.as_ref()) {
            self.allocations.allocated.set(&uid, PodResourceInfo::of(pod));
        }
        self.admitted.insert(uid);
    }

    fn resize(&mut self, uid: PodUid, resources: PodResourceInfo, generation: i64) {
        let Some(pod) = self.workers.worker(&uid).and_then(|worker| worker.pod.as_ref()) else { return };
        let pod = resources.put_on(pod);
        self.allocations.allocated.set(&uid, resources);
        self.workers.resize(&pod, generation);
        self.mark_status(uid);
    }

    /// Ends a pod that its source still has. Whatever the cause, its CPUs, devices and volumes are released when the
    /// worker has stopped its containers.
    fn end(&mut self, end: EndPod, now: Instant) {
        let EndPod { uid, cause, failed, grace, event } = end;
        if let Some(event) = event {
            self.record(event, now);
        }
        if cause.replaces_reason() || self.syncing(&uid).is_some() {
            self.failed.insert(uid.clone(), failed);
        }
        if cause.gives_up_place() {
            self.admitted.remove(&uid);
        }
        if cause.watches_grace() {
            self.workers.kill(&uid, grace);
        } else {
            self.workers.end_within(&uid, grace);
        }
        self.mark_status(uid);
    }

    /// The pod is shown as ending until its worker has ended.
    fn remove(&mut self, uid: PodUid) {
        self.allocations.allocated.remove(&uid);
        self.workers.unwanted(&uid);
        if let Some(pod) = self.workers.worker(&uid).and_then(|worker| worker.pod.as_ref()) {
            let mut pod = Pod::clone(pod);
            pod.metadata.deletion_timestamp = Some(clock::now());
            self.records.write().ending.insert(uid.clone(), Arc::new(pod));
        }
        self.mark_status(uid);
    }

    /// Ends the worker, which stays until the API server no longer has the pod.
    fn delete(&mut self, pod: &Arc<Pod>) {
        self.workers.update_pod(&self.with_allocation(pod));
        self.workers.deleted(&pod.metadata.uid, pod.deletion_grace());
        self.mark_status(pod.metadata.uid.clone());
    }
}

impl EndCause {
    /// Upstream ends these pods with `killPodNow`, which records `ExceededGracePeriod`. The others end in `syncPod`.
    fn watches_grace(self) -> bool {
        match self {
            Self::Evicted | Self::NodeShutdown | Self::Preempted => true,
            Self::DeadlineExceeded | Self::Rejected => false,
        }
    }

    /// A pod keeps its place until its containers have stopped, like upstream's active pods. A rejected pod has no
    /// place, and the place of a preempted pod belongs to the pod that waits for its end.
    fn gives_up_place(self) -> bool {
        match self {
            Self::Preempted | Self::Rejected => true,
            Self::DeadlineExceeded | Self::Evicted | Self::NodeShutdown => false,
        }
    }

    /// As upstream does, preemption replaces the reason of a pod that was already ending.
    fn replaces_reason(self) -> bool {
        self == Self::Preempted
    }
}

#[cfg(test)]
mod tests;
