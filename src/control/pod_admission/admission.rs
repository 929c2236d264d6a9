//! Admits or rejects the pods of the sources.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::control::pod_admission::cpu_assignment::CpuAssignment;
use crate::control::pod_admission::device_allocations;
use crate::control::pod_admission::node_reads::NodeReads;
use crate::control::pod_table::{Effect, EndCause, EndPod, PodTable};
use crate::control::pod_workers::State;
use crate::control::versions::{Decision, UpdateLocks};
use crate::kubelet::admission::{Admission, Rejection};
use crate::kubelet::devices::{Devices, InsufficientDevices};
use crate::kubelet::resource_managers::{PodAllocation, Provider, unexpected};
use crate::kubelet::status::PodFailure;
use crate::platform::rt;
use crate::state::pods::{NodeFields, PodEvent};
use crate::types::api::{EventKind, Pod, PodUid, Reason};
use crate::types::metrics::{self, Count, Timed};
use crate::types::sorted::SortOnce;

/// Upstream's messages in the event and in the pod's status.
const PREEMPTED: &str = "Preempted in order to admit critical pod";
const DISRUPTED: &str = "Pod was preempted by Kubelet to accommodate a critical pod.";

/// The decisions of other parts about new pods.
pub(crate) struct Gates {
    pub(crate) eviction: Result<(), Rejection>,
    pub(crate) shutdown: Result<(), Rejection>,
}

/// Whether the labels of the node that are known now decide about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Labels {
    /// The Node object is read again before they reject a pod of the cluster: its rejection would be final.
    MayChange,
    Final,
}

pub(crate) struct PodAdmission {
    admission: Admission,
    devices: Rc<Devices>,
    /// `None` without a cluster.
    reads: Option<NodeReads>,
    /// Pods that wait until the node may stop the pods that they preempt.
    waiting: Vec<PodUid>,
}

impl PodAdmission {
    pub(crate) fn new(admission: Admission, devices: Rc<Devices>) -> Self {
        Self { admission, devices, reads: None, waiting: Vec::new() }
    }

    pub(crate) fn set_node_reads(&mut self, reads: NodeReads) {
        self.reads = Some(reads);
    }

    /// The API server sent the Node object's scheduling terms.
    pub(crate) fn on_node_fields(&mut self, fields: NodeFields) {
        self.admission.in_cluster(fields);
    }

    /// The Node object has been read again. Returns the pods to decide about.
    pub(crate) fn on_node_read(&mut self, now: Instant) -> Vec<PodUid> {
        self.reads.as_mut().map(|reads| reads.on_read(now)).unwrap_or_default()
    }

    /// The pods to decide about again, as their decision waits for other pods.
    pub(crate) fn take_waiting(&mut self) -> Vec<PodUid> {
        std::mem::take(&mut self.waiting)
    }

    /// Admits or rejects a pod whose worker has not started it, or has it wait: for the labels that the node has now, or
    /// for the applications of the pods that it preempts.
    pub(crate) fn on_new_pod(
        &mut self,
        pod: &Pod,
        pods: &PodTable,
        cpus: &mut CpuAssignment,
        locks: &mut UpdateLocks,
        gates: Gates,
        (labels, now): (Labels, Instant),
    ) -> Vec<Effect> {
        let uid = &pod.metadata.uid;
        match self.verdict(pod, pods, cpus, gates) {
            Ok((_, victims)) if !locks.permit_all(&victims, Decision::Preemption, pods, now) => {
                self.devices.release(uid);
                self.waiting.push(uid.clone());
                vec![Effect::Hold(uid.clone())]
            }
            Ok((allocation, victims)) => {
                cpus.allocate(uid, allocation);
                admit(uid, victims)
            }
            Err(rejection) if labels == Labels::MayChange && self.reads_for(pod, &rejection, now) => {
                self.devices.release(uid);
                vec![Effect::Hold(uid.clone())]
            }
            Err(rejection) => vec![self.reject(uid, rejection)],
        }
    }

    fn reads_for(&mut self, pod: &Pod, rejection: &Rejection, now: Instant) -> bool {
        let is_by_labels = rejection.reason == Reason::NODE_AFFINITY && pod.is_of_cluster();
        is_by_labels && self.reads.as_mut().is_some_and(|reads| reads.wait(&pod.metadata.uid, now))
    }

    /// Whether a rejected pod would be admitted now.
    pub(crate) fn would_admit(&self, pod: &Pod, pods: &PodTable, cpus: &CpuAssignment, gates: Gates) -> bool {
        let verdict = self.verdict(pod, pods, cpus, gates);
        self.devices.release(&pod.metadata.uid);
        verdict.is_ok()
    }

    /// The pod's CPUs and memory, and the pods to preempt; or why the node rejects it. Chooses the devices.
    fn verdict(
        &self,
        pod: &Pod,
        pods: &PodTable,
        cpus: &CpuAssignment,
        Gates { eviction, shutdown }: Gates,
    ) -> Result<(PodAllocation, Vec<PodUid>), Rejection> {
        let planned = self.plan(pod, pods, cpus);
        let allocation = planned.as_ref().map(drop).map_err(Rejection::clone);
        let is_device = |resource: &str| self.devices.is_known(resource);
        let (others, strict_groups) = (others(&pod.metadata.uid, pods), pods.runtime().supports_strict_groups());
        let others: Vec<&Pod> = others.iter().map(|other| &**other).collect();
        // In the order of upstream's admit handlers: of several reasons, the pod shows the first.
        eviction?;
        let victims = self.admission.admit(pod, &others, strict_groups, allocation, &is_device)?;
        shutdown?;
        Ok((planned.unwrap_or_default(), victims))
    }

    /// Whether the node has room for `wanted`, the resized pod. Returns the pods to preempt for it.
    pub(super) fn check_resize(
        &self,
        allocated: &Pod,
        wanted: &Pod,
        pods: &PodTable,
    ) -> Result<Vec<PodUid>, Rejection> {
        let others = others(&wanted.metadata.uid, pods);
        let others: Vec<&Pod> = others.iter().map(|other| &**other).collect();
        self.admission.check_resize(allocated, wanted, &others, &|resource: &str| self.devices.is_known(resource))
    }

    /// A device plugin refused the devices of an admitted pod.
    pub(crate) fn on_devices_refused(&self, uid: &PodUid, why: &str, pods: &PodTable) -> Vec<Effect> {
        let (reason, message) = unexpected(why);
        self.refuse(uid, Rejection { reason, message }, pods)
    }

    /// The node has no room left for the volumes of an admitted pod.
    pub(crate) fn on_volumes_refused(&self, uid: &PodUid, message: String, pods: &PodTable) -> Vec<Effect> {
        self.refuse(uid, Rejection { reason: Reason::VOLUME_ATTACHMENT_LIMIT_EXCEEDED, message }, pods)
    }

    fn refuse(&self, uid: &PodUid, rejection: Rejection, pods: &PodTable) -> Vec<Effect> {
        pods.syncing(uid).map(|_| self.reject(uid, rejection)).into_iter().collect()
    }

    /// Ends the pod. Resources planned for it and not allocated yet stay free.
    fn reject(&self, uid: &PodUid, rejection: Rejection) -> Effect {
        metrics::count(Count::AdmissionRejections, &[rejection.counted_reason()]);
        self.devices.release(uid);
        reject(uid, rejection)
    }

    /// Plans the pod's exclusive CPUs, memory and devices. Chooses the devices.
    fn plan(&self, pod: &Pod, pods: &PodTable, cpus: &CpuAssignment) -> Result<PodAllocation, Rejection> {
        if let Err(InsufficientDevices(why)) = self.devices.check_selectors(pod) {
            let (reason, message) = unexpected(&why);
            return Err(Rejection { reason, message });
        }
        let observed = pods.observed().pod(&pod.metadata.uid).cloned();
        let runs = |name: &str| {
            observed.as_ref().is_some_and(|pod| pod.container(name).is_some_and(|container| container.is_running()))
        };
        let managers = cpus.managers();
        let mut choosing = self.devices.choosing(pod, &runs, managers.nodes());
        let mut providers: Vec<&mut dyn Provider> = Vec::new();
        if self.devices.concerns(pod) {
            device_allocations::release(&self.devices, pods);
            providers.push(&mut choosing);
        }
        let begun = rt::now();
        let planned = managers.plan(pod, providers);
        // Upstream's metric counts milliseconds: `topology_manager_admission_duration_ms`.
        metrics::took_millis(Timed::TopologyAdmissions, &[], rt::elapsed(begun));
        metrics::count(Count::TopologyAdmissions, &[]);
        if planned.is_err() && managers.has_topology() {
            metrics::count(Count::TopologyErrors, &[]);
        }
        planned.map_err(|(reason, message)| Rejection { reason, message })
    }
}

/// Ends the victims. The pod starts after they have ended.
fn admit(uid: &PodUid, victims: Vec<PodUid>) -> Vec<Effect> {
    let ends = victims.iter().map(|victim| Effect::End(preempt(victim)));
    let mut effects: Vec<Effect> = ends.collect();
    effects.push(Effect::Admit { uid: uid.clone(), after: victims });
    effects
}

pub(super) fn preempt(uid: &PodUid) -> EndPod {
    EndPod {
        uid: uid.clone(),
        cause: EndCause::Preempted,
        failed: PodFailure {
            reason: Reason::PREEMPTING,
            message: PREEMPTED.into(),
            disruption: Some(DISRUPTED.into()),
        },
        grace: Duration::MAX,
        event: Some(PodEvent::of_pod(uid, EventKind::Warning, Reason::PREEMPTING, PREEMPTED)),
    }
}

pub(super) fn reject(uid: &PodUid, Rejection { reason, message }: Rejection) -> Effect {
    Effect::End(EndPod {
        uid: uid.clone(),
        cause: EndCause::Rejected,
        failed: PodFailure::rejection(reason.clone(), &message),
        grace: Duration::MAX,
        event: Some(PodEvent::of_pod(uid, EventKind::Warning, reason, message)),
    })
}

/// The other pods that use resources of the node: upstream's active pods. A pod that is being resized counts with its
/// higher requests.
fn others(uid: &PodUid, pods: &PodTable) -> Vec<Arc<Pod>> {
    let takes_room = |state| matches!(state, State::Sync | State::Terminating { .. });
    let active = pods.workers().iter().filter(|worker| {
        let other = &worker.identity.uid;
        worker.wanted && takes_room(worker.state) && pods.is_admitted(other) && other != uid
    });
    active.filter_map(|worker| pods.with_room_in_use(worker)).collect()
}

/// Pods that already run come first, in creation order, and so keep their places. The others follow by priority, so
/// that no pod is admitted only to be preempted.
pub(crate) fn in_order_of_admission(mut added: Vec<Arc<Pod>>, pods: &PodTable) -> Vec<Arc<Pod>> {
    let observed = pods.observed();
    let oldest = |uid: &PodUid| {
        let running_pods = observed.iter().map(|pod| &**pod).chain(pods.workers().all_unseen());
        let sandboxes = running_pods.filter(|pod| pod.uid == *uid).flat_map(|pod| &pod.sandboxes);
        sandboxes.map(|sandbox| sandbox.created_at).min()
    };
    added.sort_once_by_cached_key(|pod| {
        let priority = -i64::from(pod.spec.priority.unwrap_or(0));
        (oldest(&pod.metadata.uid).unwrap_or(i64::MAX), priority, pod.full_name())
    });
    added
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn victims_end_before_pod_is_admitted() {
        let [uid, victim] = ["critical", "victim"].map(PodUid::from);
        let effects = admit(&uid, vec![victim.clone()]);
        assert_eq!(effects, [Effect::End(preempt(&victim)), Effect::Admit { uid, after: vec![victim] }]);
    }

    #[test]
    fn rejection_names_the_reason_in_event_and_status() {
        let rejection = Rejection { reason: Reason::NODE_SHUTDOWN, message: "why".to_owned() };
        let Effect::End(end) = reject(&"a".into(), rejection) else { panic!("the pod ends") };
        assert_eq!(end.failed.message, "Pod was rejected: why");
        let event = PodEvent::of_pod(&end.uid, EventKind::Warning, Reason::NODE_SHUTDOWN, "why");
        assert_eq!(end.event, Some(event));
    }
}
