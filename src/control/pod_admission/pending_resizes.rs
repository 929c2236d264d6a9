//! In-place resizes of running pods: allocated when they fit, pending until then.

use std::sync::Arc;
use std::time::Instant;

use crate::control::pod_admission::admission::{PodAdmission, preempt};
use crate::control::pod_table::{Effect, PodTable};
use crate::control::pod_workers::{Resizing, Worker};
use crate::control::versions::may_be_held;
use crate::kubelet::admission::Rejection;
use crate::kubelet::allocation::{PodResourceInfo, ResizeTerms, infeasible, resize_message};
use crate::kubelet::kuberuntime::PodIndex;
use crate::kubelet::resource_managers::ResourceManagers;
use crate::kubelet::status::{Resize, ResizeProgress};
use crate::state::pods::PodEvent;
use crate::types::api::{
    CPU, EventKind, MEMORY, Pod, PodUid, QosClass, Quantity, Reason, conditions, pod_limits, pod_requests, qos_class,
};
use crate::types::metrics::{self, Count};
use crate::types::sorted::{SortOnce, SortedMap};

/// Pods whose sources ask for other resources than those allocated.
#[derive(Debug, Default)]
pub(crate) struct PendingResizes {
    waiting: SortedMap<PodUid, PendingResize>,
}

#[derive(Debug)]
struct PendingResize {
    desired: PodResourceInfo,
    /// The generation of the pod that asks for them.
    generation: i64,
    /// Deferred or Infeasible; empty before the first attempt.
    reason: Reason,
    message: String,
    since: Instant,
}

/// Why deferred resizes are tried again, as in `kubelet_pod_deferred_accepted_resizes_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryTrigger {
    PeriodicRetry,
    PodResized,
    PodTerminated,
    PodUpdated,
    PodsAdded,
    PodsRemoved,
}

/// The parts that decide about a resize.
#[derive(Clone, Copy)]
pub(crate) struct ResizeContext<'a> {
    pub(crate) admission: &'a PodAdmission,
    pub(crate) managers: &'a ResourceManagers,
    /// Refuses more resources under node pressure and during a shutdown.
    pub(crate) gate: &'a dyn Fn(&Pod) -> Result<(), Rejection>,
}

impl PendingResizes {
    pub(crate) fn forget(&mut self, uid: &PodUid) {
        self.waiting.remove(uid);
    }

    /// The resize as the pod's status shows it.
    pub(crate) fn of<'a>(&'a self, uid: &PodUid, resizing: &'a Resizing) -> Resize<'a> {
        let waiting = self.waiting.get(uid).filter(|waiting| !waiting.reason.is_empty());
        Resize {
            pending: waiting.map(|waiting| (&waiting.reason, waiting.message.as_str(), waiting.generation)),
            progress: match resizing {
                Resizing::No => ResizeProgress::None,
                Resizing::InProgress { generation } => ResizeProgress::InProgress(*generation),
                Resizing::Failed { generation, failure } => ResizeProgress::Failed(failure, *generation),
            },
        }
    }

    /// A source added the pod, and it was admitted. If it asks for other resources than those allocated by an earlier
    /// run, the resize is pending, with the reason in the pod's status.
    pub(crate) fn on_added(&mut self, pod: &Pod, pods: &PodTable, now: Instant) {
        let uid = &pod.metadata.uid;
        let desired = PodResourceInfo::of(pod);
        if !pods.is_admitted(uid) || pods.allocated(uid).is_none_or(|allocated| allocated == desired) {
            return;
        }
        let condition = pod.status.conditions.iter().find(|condition| condition.kind == conditions::POD_RESIZE_PENDING);
        let (reason, message, generation) = match condition {
            Some(condition) => (condition.reason.clone(), condition.message.clone(), condition.observed_generation),
            None => (Reason::default(), String::new(), pod.metadata.generation),
        };
        self.waiting.insert(uid.clone(), PendingResize { desired, generation, reason, message, since: now });
    }

    /// The source changed the pod. Its allocated resources stay until the new ones fit.
    pub(crate) fn on_update(
        &mut self,
        pod: &Arc<Pod>,
        pods: &PodTable,
        deciders: ResizeContext<'_>,
        now: Instant,
    ) -> Vec<Effect> {
        let uid = &pod.metadata.uid;
        let update = Effect::Update(Arc::clone(pod));
        let allocated = pods.allocated(uid).filter(|_| pods.syncing(uid).is_some() && pods.is_admitted(uid));
        let Some(allocated) = allocated else { return vec![update] };
        let desired = PodResourceInfo::of(pod);
        let before = self.waiting.get(uid);
        count_requested(before.map_or(&allocated, |before| &before.desired), &desired);
        if allocated == desired {
            self.forget(uid);
            return vec![update];
        }
        let generation = pod.metadata.generation;
        match self.waiting.get_mut(uid) {
            Some(waiting) => waiting.desired = desired,
            None => {
                let (reason, message) = (Reason::default(), String::new());
                self.waiting.insert(uid.clone(), PendingResize { desired, generation, reason, message, since: now });
            }
        }
        let mut effects = vec![update];
        effects.extend(self.attempt(pod, generation, pods, deciders));
        effects
    }

    /// The pods with a resize that is not known to be infeasible, in the order in which they are tried: those that ask
    /// for no more than they have, then by priority, QoS class and age.
    pub(crate) fn deferred(&self, pods: &PodTable) -> Vec<PodUid> {
        let waiting = self.waiting.iter().filter(|(_, waiting)| waiting.reason != Reason::INFEASIBLE);
        let mut deferred: Vec<_> = waiting
            .filter_map(|(uid, waiting)| {
                let pod = pods.syncing(uid)?.pod.as_ref()?;
                let wanted = waiting.desired.put_on(pod);
                let priority = -i64::from(pod.spec.priority.unwrap_or(0));
                Some(((grows(pod, &wanted), priority, rank(qos_class(pod)), waiting.since), uid.clone()))
            })
            .collect();
        deferred.sort_once();
        deferred.into_iter().map(|(_, uid)| uid).collect()
    }

    /// Tries a deferred resize again.
    pub(crate) fn retry(
        &mut self,
        uid: &PodUid,
        pods: &PodTable,
        deciders: ResizeContext<'_>,
        trigger: RetryTrigger,
    ) -> Vec<Effect> {
        let Some(waiting) = self.waiting.get(uid) else { return Vec::new() };
        let Some(pod) = pods.syncing(uid).and_then(|worker| worker.pod.as_ref()) else { return Vec::new() };
        let was_deferred = waiting.reason == Reason::DEFERRED;
        let (wanted, generation) = (waiting.desired.put_on(pod), pod.metadata.generation);
        let effects = self.attempt(&wanted, generation, pods, deciders);
        if was_deferred && !self.waiting.contains_key(uid) {
            metrics::count(Count::DeferredAcceptedResizes, &[trigger.label()]);
        }
        effects
    }

    /// Allocates what `wanted` asks for, or records why that is not possible.
    fn attempt(&mut self, wanted: &Pod, generation: i64, pods: &PodTable, deciders: ResizeContext<'_>) -> Vec<Effect> {
        let uid = &wanted.metadata.uid;
        let Some(worker) = pods.syncing(uid) else { return Vec::new() };
        match decide(worker, wanted, pods, deciders) {
            Ok(victims) => {
                let Some(waiting) = self.waiting.remove(uid) else { return Vec::new() };
                let mut effects: Vec<Effect> = victims.iter().map(|victim| Effect::End(preempt(victim))).collect();
                effects.push(Effect::Resize { uid: uid.clone(), resources: waiting.desired, generation });
                let message = resize_message("Pod resize started", wanted, generation, None);
                effects.push(event(uid, EventKind::Normal, Reason::RESIZE_STARTED, message));
                effects
            }
            Err(Rejection { reason: named, message }) => {
                let Some(waiting) = self.waiting.get_mut(uid) else { return Vec::new() };
                let (reason, event_reason) = match named == Reason::INFEASIBLE {
                    true => (Reason::INFEASIBLE, Reason::RESIZE_INFEASIBLE),
                    false => (Reason::DEFERRED, Reason::RESIZE_DEFERRED),
                };
                let is_news = waiting.reason != reason || waiting.generation != generation;
                if !is_news && waiting.message == message {
                    return Vec::new();
                }
                let text = resize_message(&format!("Pod resize {named}"), wanted, generation, Some(&message));
                (waiting.reason, waiting.message, waiting.generation) = (reason, message, generation);
                let event = is_news.then(|| event(uid, EventKind::Warning, event_reason, text));
                event.into_iter().chain([Effect::MarkStatus(uid.clone())]).collect()
            }
        }
    }
}

impl RetryTrigger {
    fn label(self) -> &'static str {
        match self {
            Self::PeriodicRetry => "periodic_retry",
            Self::PodResized => "pod_resized",
            Self::PodTerminated => "pod_terminated",
            Self::PodUpdated => "pod_updated",
            Self::PodsAdded => "pods_added",
            Self::PodsRemoved => "pods_removed",
        }
    }
}

/// The event of a failed resize. `before` and `after` are its states around the work.
pub(crate) fn on_resize_work_done(worker: &Worker, before: &Resizing, after: &Resizing) -> Option<Effect> {
    let Resizing::Failed { generation, failure } = after else { return None };
    let pod = worker.pod.as_deref().filter(|_| before != after)?;
    let message = resize_message("Pod resize error", pod, *generation, Some(failure));
    Some(event(&pod.metadata.uid, EventKind::Warning, Reason::RESIZE_ERROR, message))
}

fn event(uid: &PodUid, kind: EventKind, reason: Reason, message: String) -> Effect {
    Effect::Record(PodEvent::of_pod(uid, kind, reason, message))
}

/// Whether `wanted` may replace the pod's allocated resources now; the pods that end for it.
fn decide(
    worker: &Worker,
    wanted: &Pod,
    pods: &PodTable,
    ResizeContext { admission, managers, gate }: ResizeContext<'_>,
) -> Result<Vec<PodUid>, Rejection> {
    let Some(allocated) = &worker.pod else { return Ok(Vec::new()) };
    // The resize of a pod whose QoS class changes is infeasible: one index is for both.
    let index = PodIndex::new(allocated);
    let terms = ResizeTerms {
        has_static_cpu_manager: managers.is_static(),
        has_static_memory_manager: managers.has_static_memory(),
        swaps: &|container| pods.runtime().resources.may_swap(&index, container),
    };
    if let Some(why) = infeasible(allocated, wanted, terms) {
        metrics::count(Count::InfeasibleResizes, &[why.detail()]);
        return Err(Rejection { reason: Reason::INFEASIBLE, message: why.message().to_owned() });
    }
    // A resize that lowers requests never waits; upstream may defer it on a node that is short of something.
    if raises(allocated, wanted) {
        gate(wanted)?;
    }
    let victims = admission.check_resize(allocated, wanted, pods)?;
    let pod = |uid: &PodUid| pods.worker(uid).and_then(|worker| worker.pod.as_ref());
    match victims.iter().filter_map(pod).find(|pod| may_be_held(pod)) {
        // A resize can wait for room, and so needs no look at the lock.
        Some(held) => {
            let message = format!("the pods to preempt include {}, which may hold an update lock", held.full_name());
            Err(Rejection { reason: Reason::DEFERRED, message })
        }
        None => Ok(victims),
    }
}

/// Whether a request or a limit of the pod would grow.
fn raises(allocated: &Pod, wanted: &Pod) -> bool {
    let (old, new) = (pod_limits(&allocated.spec), pod_limits(&wanted.spec));
    grows(allocated, wanted) || [CPU, MEMORY].into_iter().any(|resource| new.get(resource) > old.get(resource))
}

/// Whether the pod would request more CPU or memory.
fn grows(allocated: &Pod, wanted: &Pod) -> bool {
    let (old, new) = (pod_requests(&allocated.spec), pod_requests(&wanted.spec));
    [CPU, MEMORY].into_iter().any(|resource| new.get(resource) > old.get(resource))
}

fn rank(class: QosClass) -> u8 {
    match class {
        QosClass::Guaranteed => 0,
        QosClass::Burstable => 1,
        QosClass::BestEffort => 2,
    }
}

/// Counts the changes that a source asks for, each amount of each container.
fn count_requested(old: &PodResourceInfo, new: &PodResourceInfo) {
    for (name, new) in &new.containers {
        let Some(old) = old.containers.get(name) else { continue };
        for resource in [MEMORY, CPU] {
            for (requirement, old, new) in [
                ("requests", old.request(resource), new.request(resource)),
                ("limits", old.limit(resource), new.limit(resource)),
            ] {
                if let Some(operation) = operation(old.unwrap_or_default(), new.unwrap_or_default()) {
                    metrics::count(Count::RequestedResizes, &[operation, requirement, resource]);
                }
            }
        }
    }
}

fn operation(old: Quantity, new: Quantity) -> Option<&'static str> {
    match (old.is_zero(), new.is_zero()) {
        (false, true) => Some("remove"),
        (true, false) => Some("add"),
        _ if new < old => Some("decrease"),
        _ if new > old => Some("increase"),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
