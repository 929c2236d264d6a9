//! Other resources for pods that run: given when they fit, and kept in mind until then.

use std::sync::Arc;
use std::time::Instant;

use crate::control::pod_workers::{Resizing, State};
use crate::control::sync_loop::SyncLoop;
use crate::control::sync_loop::effect::Effect;
use crate::kubelet::container_manager::{Verdict, keep_resources, verdict};
use crate::kubelet::status::{Resize, ResizeProgress};
use crate::state::pods::PodEvent;
use crate::types::api::{CPU, Container, EventKind, MEMORY, Pod, PodUid, QosClass, Reason, qos_class};
use crate::types::sorted::SortedMap;

/// The pods whose sources ask for other resources than they have been given.
#[derive(Debug, Default)]
pub(super) struct PendingResizes {
    waiting: SortedMap<PodUid, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    wanted: Arc<Pod>,
    /// Deferred or Infeasible.
    reason: Reason,
    message: String,
}

impl PendingResizes {
    pub(super) fn forget(&mut self, uid: &PodUid) {
        self.waiting.remove(uid);
    }

    /// What the status of a pod has to tell.
    pub(super) fn of<'a>(&'a self, uid: &PodUid, resizing: &'a Resizing) -> Resize<'a> {
        Resize {
            pending: self.waiting.get(uid).map(|waiting| (&waiting.reason, waiting.message.as_str())),
            progress: match resizing {
                Resizing::No => ResizeProgress::None,
                Resizing::Goes => ResizeProgress::Goes,
                Resizing::Failed(failure) => ResizeProgress::Failed(failure),
            },
        }
    }
}

impl SyncLoop {
    /// The pod as its source has it now, but with the resources that it had if it cannot have others.
    pub(super) fn with_given_resources(&mut self, pod: &Arc<Pod>, now: Instant) -> Arc<Pod> {
        let uid = &pod.metadata.uid;
        let syncs = self.pods.worker(uid).filter(|worker| worker.state == State::Sync);
        let Some(allocated) = syncs.and_then(|worker| worker.pod.clone()) else { return Arc::clone(pod) };
        let (reason, told, message) = match self.verdict_on(&allocated, pod) {
            Verdict::NoResize => {
                self.resizes.forget(uid);
                return Arc::clone(pod);
            }
            Verdict::Fits => {
                self.resizes.forget(uid);
                self.tell_resize(uid, EventKind::Normal, Reason::RESIZE_STARTED, "Pod resize started", now);
                return Arc::clone(pod);
            }
            Verdict::Deferred(message) => (Reason::DEFERRED, Reason::RESIZE_DEFERRED, message),
            Verdict::Infeasible(message) => (Reason::INFEASIBLE, Reason::RESIZE_INFEASIBLE, message),
        };
        let waiting = Waiting { wanted: Arc::clone(pod), reason, message: message.clone() };
        let before = self.resizes.waiting.insert(uid.clone(), waiting);
        if before.is_none_or(|before| before.message != message) {
            self.tell_resize(uid, EventKind::Warning, told, &message, now);
        }
        Arc::new(keep_resources(pod, &allocated))
    }

    /// Something may have been given back: those that wait for it get it, the most important first.
    pub(super) fn retry_resizes(&mut self, now: Instant) {
        let deferred = self.resizes.waiting.values().filter(|waiting| waiting.reason == Reason::DEFERRED);
        let mut deferred: Vec<Arc<Pod>> = deferred.map(|waiting| Arc::clone(&waiting.wanted)).collect();
        deferred.sort_by_key(|pod| (-i64::from(pod.spec.priority.unwrap_or(0)), rank(qos_class(pod))));
        for pod in deferred {
            let given = self.with_given_resources(&pod, now);
            if Arc::ptr_eq(&given, &pod) {
                self.weigh = true;
                self.pods.apply([Effect::Update(pod)], now);
            }
        }
    }

    /// A piece of work of the pod has come to its end; `before` is what was going on then.
    pub(super) fn note_resizing(&mut self, uid: &PodUid, before: &Resizing, now: Instant) {
        let resizing = self.pods.workers().resizing(uid).clone();
        match (before, &resizing) {
            (Resizing::No, _) | (_, Resizing::Goes) => {}
            (_, Resizing::No) => {
                self.tell_resize(uid, EventKind::Normal, Reason::RESIZE_COMPLETED, "Pod resize completed", now);
            }
            (before, Resizing::Failed(failure)) if *before != resizing => {
                self.tell_resize(uid, EventKind::Warning, Reason::RESIZE_ERROR, failure, now);
            }
            (_, Resizing::Failed(_)) => {}
        }
    }

    fn verdict_on(&self, allocated: &Pod, wanted: &Pod) -> Verdict {
        let others = self.pods.workers().iter().filter(|worker| worker.state == State::Sync);
        let others = others.filter_map(|worker| worker.pod.as_deref());
        let others = others.filter(|other| other.metadata.uid != wanted.metadata.uid);
        let verdict = verdict(allocated, wanted, others, &self.pods.runtime().node.allocatable);
        let managers = self.parts.cpus.managers();
        let fits = matches!(verdict, Verdict::Fits | Verdict::Deferred(_));
        if !fits || qos_class(wanted) != QosClass::Guaranteed {
            return verdict;
        }
        let manager = if managers.is_static() && is_other(CPU, allocated, wanted) {
            "CPU Manager policy \"static\""
        } else if managers.has_static_memory() && is_other(MEMORY, allocated, wanted) {
            "Memory Manager policy \"Static\""
        } else {
            return verdict;
        };
        Verdict::Infeasible(format!("Resize is infeasible for Guaranteed Pods alongside {manager}"))
    }

    fn tell_resize(&mut self, uid: &PodUid, kind: EventKind, reason: Reason, message: &str, now: Instant) {
        let event = PodEvent::of_pod(uid, kind, reason, message.to_owned());
        self.pods.apply([Effect::Record(event)], now);
    }
}

/// One of its containers is to have more or less of the resource.
fn is_other(resource: &str, allocated: &Pod, wanted: &Pod) -> bool {
    let asked = |container: &Container| container.resources.request(resource);
    let lists = [&allocated.spec.init_containers, &allocated.spec.containers];
    let wanted = [&wanted.spec.init_containers, &wanted.spec.containers];
    lists.iter().zip(wanted).any(|(one, other)| one.iter().map(asked).ne(other.iter().map(asked)))
}

fn rank(class: QosClass) -> u8 {
    match class {
        QosClass::Guaranteed => 0,
        QosClass::Burstable => 1,
        QosClass::BestEffort => 2,
    }
}
