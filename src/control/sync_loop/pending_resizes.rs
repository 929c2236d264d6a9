//! In-place resizes of running pods: allocated when they fit, pending until then.

use std::sync::Arc;

use crate::control::pod_workers::{Resizing, State};
use crate::control::sync_loop::effect::Effect;
use crate::control::sync_loop::pod_table::PodTable;
use crate::kubelet::container_manager::{Verdict, keep_resources, verdict};
use crate::kubelet::resource_managers::ResourceManagers;
use crate::kubelet::status::{Resize, ResizeProgress};
use crate::state::pods::PodEvent;
use crate::types::api::{CPU, Container, EventKind, MEMORY, Pod, PodUid, QosClass, Reason, qos_class};
use crate::types::sorted::SortedMap;

/// Pods whose sources ask for other resources than those allocated.
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

    /// The resize as the pod's status shows it.
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

    /// The source changed the pod: updates it, with its allocated resources if the resize does not fit.
    pub(super) fn on_update(&mut self, pod: &Arc<Pod>, pods: &PodTable, managers: &ResourceManagers) -> Vec<Effect> {
        match self.try_resize(pod, pods, managers) {
            Outcome::Allocated(event) => event.into_iter().chain([Effect::Update(Arc::clone(pod))]).collect(),
            Outcome::Waits { event, kept } => event.into_iter().chain([Effect::Update(kept)]).collect(),
        }
    }

    /// Pods with a deferred resize, highest priority first.
    pub(super) fn deferred(&self) -> Vec<Arc<Pod>> {
        let deferred = self.waiting.values().filter(|waiting| waiting.reason == Reason::DEFERRED);
        let mut deferred: Vec<Arc<Pod>> = deferred.map(|waiting| Arc::clone(&waiting.wanted)).collect();
        deferred.sort_by_key(|pod| (-i64::from(pod.spec.priority.unwrap_or(0)), rank(qos_class(pod))));
        deferred
    }

    /// Retries a deferred resize.
    pub(super) fn retry(&mut self, pod: &Arc<Pod>, pods: &PodTable, managers: &ResourceManagers) -> Vec<Effect> {
        match self.try_resize(pod, pods, managers) {
            Outcome::Allocated(event) => event.into_iter().chain([Effect::Update(Arc::clone(pod))]).collect(),
            Outcome::Waits { event, .. } => event.into_iter().collect(),
        }
    }

    fn try_resize(&mut self, pod: &Arc<Pod>, pods: &PodTable, managers: &ResourceManagers) -> Outcome {
        let uid = &pod.metadata.uid;
        let Some(allocated) = pods.syncing(uid).and_then(|worker| worker.pod.clone()) else {
            return Outcome::Allocated(None);
        };
        let (reason, told, message) = match verdict_on(&allocated, pod, pods, managers) {
            Verdict::NoResize => {
                self.forget(uid);
                return Outcome::Allocated(None);
            }
            Verdict::Fits => {
                self.forget(uid);
                let started = event(uid, EventKind::Normal, Reason::RESIZE_STARTED, "Pod resize started");
                return Outcome::Allocated(Some(started));
            }
            Verdict::Deferred(message) => (Reason::DEFERRED, Reason::RESIZE_DEFERRED, message),
            Verdict::Infeasible(message) => (Reason::INFEASIBLE, Reason::RESIZE_INFEASIBLE, message),
        };
        let waiting = Waiting { wanted: Arc::clone(pod), reason, message: message.clone() };
        let before = self.waiting.insert(uid.clone(), waiting);
        let is_news = before.is_none_or(|before| before.message != message);
        let event = is_news.then(|| event(uid, EventKind::Warning, told, &message));
        Outcome::Waits { event, kept: Arc::new(keep_resources(pod, &allocated)) }
    }
}

/// The result of a resize attempt.
enum Outcome {
    /// The pod gets the requested resources, possibly with an event.
    Allocated(Option<Effect>),
    /// The pod keeps its allocated resources.
    Waits { event: Option<Effect>, kept: Arc<Pod> },
}

/// The pod's work has ended. `before` and `after` are the states of its resize around that.
pub(super) fn on_work_done(uid: &PodUid, before: &Resizing, after: &Resizing) -> Option<Effect> {
    match (before, after) {
        (Resizing::No, _) | (_, Resizing::Goes) => None,
        (_, Resizing::No) => Some(event(uid, EventKind::Normal, Reason::RESIZE_COMPLETED, "Pod resize completed")),
        (before, Resizing::Failed(failure)) => {
            (before != after).then(|| event(uid, EventKind::Warning, Reason::RESIZE_ERROR, failure))
        }
    }
}

fn event(uid: &PodUid, kind: EventKind, reason: Reason, message: &str) -> Effect {
    Effect::Record(PodEvent::of_pod(uid, kind, reason, message.to_owned()))
}

fn verdict_on(allocated: &Pod, wanted: &Pod, pods: &PodTable, managers: &ResourceManagers) -> Verdict {
    let others = pods.workers().iter().filter(|worker| worker.state == State::Sync);
    let others = others.filter_map(|worker| worker.pod.as_deref());
    let others = others.filter(|other| other.metadata.uid != wanted.metadata.uid);
    let verdict = verdict(allocated, wanted, others, &pods.runtime().node.allocatable);
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

/// Whether a container requests another amount of the resource.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_a_resize_is_recorded_once() {
        let uid = PodUid::from("a");
        let (no, goes, failed) = (Resizing::No, Resizing::Goes, Resizing::Failed("why".to_owned()));
        let completed = event(&uid, EventKind::Normal, Reason::RESIZE_COMPLETED, "Pod resize completed");
        assert_eq!(on_work_done(&uid, &goes, &no), Some(completed));
        let error = event(&uid, EventKind::Warning, Reason::RESIZE_ERROR, "why");
        assert_eq!(on_work_done(&uid, &goes, &failed), Some(error));
        for (before, after) in [(&no, &no), (&no, &goes), (&goes, &goes), (&failed, &failed), (&failed, &goes)] {
            assert_eq!(on_work_done(&uid, before, after), None);
        }
    }
}
