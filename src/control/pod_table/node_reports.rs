//! Events, errors and node status inputs that the node records.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use super::PodTable;
use super::event_dedup::EventDedup;
use crate::control::cluster::EventSender;
use crate::control::pod_table::NodeStatusChange;
use crate::control::pod_workers::Identity;
use crate::kubelet::node::{HELD_ANNOTATION, StatusInputs};
use crate::platform::host::clock;
use crate::state::pods::{
    ErrorSubject, EventObject, EventRing, NewEvent, NodeError, NodeEvent, PodEvent, RuntimeState, SourceProblem,
};
use crate::types::api::{EventKind, ObjectKind, ObjectMeta, Pod, Reason};

#[derive(Default)]
pub(super) struct NodeReports {
    pub(super) dedup: EventDedup,
    /// The event sender marks the events that the API server has.
    pub(super) events: Rc<RefCell<EventRing>>,
    /// `None` without a cluster.
    pub(super) sender: Option<EventSender>,
    pub(super) status: Rc<StatusInputs>,
}

impl NodeReports {
    pub(super) fn node_status(&self, change: NodeStatusChange) {
        match change {
            NodeStatusChange::Devices(amounts) => self.status.set_devices(amounts),
            NodeStatusChange::HeldPods(pods) => self.status.report(HELD_ANNOTATION, &pods),
            NodeStatusChange::Pressures(conditions) => self.status.set_pressures(conditions),
            NodeStatusChange::ShutsDown(shuts_down) => self.status.set_shuts_down(shuts_down),
            NodeStatusChange::VolumesInUse(names) => self.status.set_volumes_in_use(names),
        }
    }
}

impl PodTable {
    /// Drops events of pods that no longer have a worker.
    pub(super) fn record(&mut self, event: PodEvent, now: Instant) {
        let Some(worker) = self.workers.worker(&event.pod) else { return };
        let Identity { uid, namespace, name } = worker.identity.clone();
        self.reports.dedup.log_event(&worker.identity.to_string(), &event);
        let object = EventObject { kind: ObjectKind::Pod, namespace, name, uid };
        let new_event = NewEvent::of_pod(object, worker.pod.as_deref(), event);
        self.note(new_event, now);
    }

    pub(super) fn record_node(&mut self, event: NodeEvent, now: Instant) {
        match event.kind {
            EventKind::Normal => log!(info, &event.message, reason = event.reason),
            // It repeats with each sandbox.
            EventKind::Warning if event.reason == Reason::MISSING_CLUSTER_DNS => {
                log!(debug, &event.message, reason = event.reason);
            }
            EventKind::Warning => log!(warn, &event.message, reason = event.reason),
        }
        self.note(NewEvent::of_node(&self.runtime.node.node_name, event), now);
    }

    pub(super) fn record_of(&self, object: EventObject, event: PodEvent, now: Instant) {
        let EventObject { kind, namespace, name, .. } = &object;
        log!(info, &event.message, reason = event.reason, object = format!("{} {namespace}/{name}", kind.as_str()));
        self.note(NewEvent::of_pod(object, None, event), now);
    }

    /// Records that a pod of a source was not accepted. It has no worker.
    pub(crate) fn record_ignored(&mut self, pod: &Pod, problem: &SourceProblem, now: Instant) {
        log!(warn, "manifest problem", file = problem.origin, problem = problem.message);
        let ObjectMeta { uid, namespace, name, .. } = &pod.metadata;
        let object =
            EventObject { kind: ObjectKind::Pod, namespace: namespace.clone(), name: name.clone(), uid: uid.clone() };
        let event = PodEvent::of_pod(uid, EventKind::Warning, Reason::FAILED_VALIDATION, problem.message.as_str());
        self.note(NewEvent::of_pod(object, Some(pod), event), now);
    }

    pub(crate) fn record_runtime(&mut self, state: RuntimeState, now: Instant) {
        self.reports.status.set_runtime(state.clone(), now);
        self.errors.push(NodeError { subject: ErrorSubject::Runtime, message: state.message.clone() });
        self.records.write().runtime = state;
    }

    fn note(&self, event: NewEvent, now: Instant) {
        self.reports.events.borrow_mut().note(event, clock::now(), now);
        if let Some(sender) = &self.reports.sender {
            sender.on_new_events();
        }
    }
}
