//! State machine of the Node object at the API server. Pure: time is an argument.
//!
//! ```text
//!   Unknown --listed, none--> Absent --created--> Registered
//!      |                       |  ^                   ^
//!      |        already exists |  | not found         | in order
//!      |                       v  |                   |
//!      |                     Unseen ---found---> Unreconciled
//!      '----------listed, found------------------------^
//! ```
//!
//! From every state but Deleted, a list without the object leads to Absent; a watched deletion always leads to
//! Deleted. The object comes through a watch. One request is under way at a time; its outcome must be passed to
//! `done` before the next call of `next`. As upstream, a node that is deleted while it is watched registers again
//! only after a restart of the kubelet; one that is missing from a list registers again.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::kubelet::node::patch::{PatchReason, StatusPatch};
use crate::kubelet::node::report_times::ReportTimes;
use crate::kubelet::node::status::READY;
use crate::kubelet::node::{NodeObservation, NodeProfile};
use crate::state::pods::{NodeEvent, NodeFields};
use crate::types::api::{EventKind, Map, Node, NodeAddress, NodeStatus, Reason, encode, is_extended_resource};
use crate::types::time::{Backoff, TokenBucket};

#[derive(Debug)]
pub(crate) struct NodeObjectState {
    profile: NodeProfile,
    /// `registerNode`: create the object and reconcile it.
    registers: bool,
    object_state: ObjectState,
    /// The object at the server, as last seen or written.
    server: Node,
    times: ReportTimes,
    /// Rate limit of changes between heartbeats, for conditions that flap.
    changes: TokenBucket,
    backoff: Backoff,
    refusals: Backoff,
    not_before: Option<Instant>,
    under_way: Option<PendingUpdate>,
    /// The last change that was sent. A server that drops an unknown field must not get that field again with every
    /// change of the object.
    reported: Option<Value>,
    begun: Instant,
    events: NodeEventState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObjectState {
    Unknown,
    Absent,
    /// Creation was refused because it may exist; it has to be read.
    Unseen,
    Unreconciled,
    Registered,
    Deleted,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NodeStep {
    Create(Value),
    Get,
    /// A strategic merge patch of the status.
    Patch(Value),
    /// Nothing to do before this time or a change.
    Wait(Option<Instant>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// The object at the server, after a creation or a read.
    Seen(Box<Node>),
    Patched,
    NotFound,
    /// The name is taken, or creation is forbidden; in both cases the object may exist.
    Exists,
    Failed {
        /// A retry may succeed soon.
        is_retryable: bool,
    },
}

#[derive(Debug)]
struct PendingUpdate {
    wanted: NodeStatus,
    patch: Option<StatusPatch>,
}

/// State for the node's events, so that each is sent once.
#[derive(Debug, Default)]
struct NodeEventState {
    rebooted: bool,
    unschedulable: bool,
    /// The readiness that was reported as an event and has not reached the server yet.
    ready: Option<bool>,
    waiting: Vec<NodeEvent>,
}

const FIRST_NODE_RETRY_DELAY: Duration = Duration::from_millis(100);
/// `registerWithAPIServer`.
const MAX_NODE_RETRY_DELAY: Duration = Duration::from_secs(7);
/// Of a refused request: it is refused again until a role or a webhook changes.
const MAX_REFUSED_BACKOFF: Duration = Duration::from_secs(5 * 60);
/// Burst and then interval of change reports; the interval is upstream's `nodeStatusUpdateFrequency`.
const NODE_REPORT_BURST: u32 = 5;
const NODE_REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// How long the first registration waits for the runtime's state, which saves a patch right after it.
const FIRST_RUNTIME_WAIT: Duration = Duration::from_secs(5);

impl NodeObjectState {
    pub(crate) fn new(profile: NodeProfile, registers: bool, report_period: Duration, now: Instant) -> Self {
        Self {
            profile,
            registers,
            object_state: ObjectState::Unknown,
            server: Node::default(),
            times: ReportTimes::new(report_period),
            changes: TokenBucket::each(NODE_REPORT_INTERVAL, NODE_REPORT_BURST, now),
            backoff: Backoff::new(FIRST_NODE_RETRY_DELAY, MAX_NODE_RETRY_DELAY),
            refusals: Backoff::new(NODE_REPORT_INTERVAL, MAX_REFUSED_BACKOFF),
            not_before: None,
            under_way: None,
            reported: None,
            begun: now,
            events: NodeEventState::default(),
        }
    }

    /// Takes the annotations with what the node reports of itself.
    pub(crate) fn set_reports(&mut self, reports: &Map<String>) {
        if self.profile.reports != *reports {
            self.profile.reports = reports.clone();
        }
    }

    /// Takes a list, which has at most one node.
    pub(crate) fn on_list(&mut self, node: Option<Node>) {
        match node {
            Some(node) => {
                // A server that was restored from a backup has lost the change.
                self.reported = None;
                self.on_server_object(node);
            }
            None if self.object_state != ObjectState::Deleted => self.object_state = ObjectState::Absent,
            None => {}
        }
    }

    /// Takes a new version of the object.
    pub(crate) fn on_server_object(&mut self, node: Node) {
        if self.object_state != ObjectState::Registered || node.metadata.uid != self.server.metadata.uid {
            self.object_state = ObjectState::Unreconciled;
        }
        self.set_server_object(node);
    }

    /// Takes the deletion of the object.
    pub(crate) fn on_deletion(&mut self) {
        self.object_state = ObjectState::Deleted;
    }

    /// The object at the server; `None` while it does not exist or is not known.
    pub(crate) fn server(&self) -> Option<&Node> {
        matches!(self.object_state, ObjectState::Unreconciled | ObjectState::Registered).then_some(&self.server)
    }

    /// The fields of the object that admission needs, with the node's own labels added until they are reconciled.
    pub(crate) fn terms(&self) -> Option<NodeFields> {
        let Node { metadata, spec, status, .. } = self.server()?;
        let mut labels = metadata.labels.clone();
        if self.object_state == ObjectState::Unreconciled {
            for (name, value) in self.profile.metadata.labels.iter() {
                if labels.get(name).is_none() {
                    labels.insert(name, value.clone());
                }
            }
        }
        let extended = status.allocatable.iter().filter(|(name, _)| is_extended_resource(name));
        let extended = extended.map(|(name, quantity)| (name, *quantity)).collect();
        // A volume not reported as in use may be detached at any moment.
        let names = status.volumes_attached.iter().filter_map(|volume| volume.get("name")?.as_str());
        let attached = names.filter(|name| status.volumes_in_use.iter().any(|used| used == name));
        let attached = attached.map(str::to_owned).collect();
        Some(NodeFields { uid: metadata.uid.to_string(), labels, taints: spec.taints.clone(), extended, attached })
    }

    /// Whether the object does not exist and this node does not create it.
    pub(crate) fn is_created_elsewhere(&self) -> bool {
        self.object_state == ObjectState::Deleted || self.object_state == ObjectState::Absent && !self.registers
    }

    /// The addresses at the server.
    pub(super) fn addresses(&self) -> &[NodeAddress] {
        self.server().map_or(&[], |node| &node.status.addresses)
    }

    /// Whether a full report is due, so that expensive observations are worthwhile.
    pub(crate) fn report_is_due(&self, now: Instant) -> bool {
        !matches!(self.object_state, ObjectState::Unknown | ObjectState::Deleted) && self.times.is_due(now)
    }

    fn set_server_object(&mut self, node: Node) {
        let (old, new) = (&node.status.node_info.boot_id, &self.profile.info.boot_id);
        let name = &self.profile.metadata.name;
        if !old.is_empty() && old != new && !std::mem::replace(&mut self.events.rebooted, true) {
            let message = format!("Node {name} has been rebooted, boot id: {new}");
            self.events.waiting.push(NodeEvent::new(EventKind::Warning, Reason::REBOOTED, message));
        }
        let unschedulable = node.spec.unschedulable;
        if std::mem::replace(&mut self.events.unschedulable, unschedulable) != unschedulable {
            let reason = if unschedulable { Reason::NODE_NOT_SCHEDULABLE } else { Reason::NODE_SCHEDULABLE };
            self.events.waiting.push(status_event(name, reason));
        }
        self.server = node;
    }

    /// The events since the last call.
    pub(crate) fn take_events(&mut self) -> Vec<NodeEvent> {
        std::mem::take(&mut self.events.waiting)
    }

    /// The next request. Must not be called again before `done`.
    pub(crate) fn next(&mut self, observation: &NodeObservation<'_>) -> NodeStep {
        let now = observation.instant;
        if self.not_before.is_some_and(|time| now < time) {
            return NodeStep::Wait(self.not_before);
        }
        match self.object_state {
            ObjectState::Unknown | ObjectState::Deleted => NodeStep::Wait(None),
            ObjectState::Unseen => {
                self.under_way = None;
                NodeStep::Get
            }
            ObjectState::Absent if !self.registers => NodeStep::Wait(None),
            ObjectState::Absent => self.create(observation),
            ObjectState::Unreconciled => self.reconcile(observation),
            ObjectState::Registered => self.report(observation),
        }
    }

    fn create(&mut self, observation: &NodeObservation<'_>) -> NodeStep {
        let runtime_first = self.begun + FIRST_RUNTIME_WAIT;
        if observation.runtime.last_reported().is_none() && observation.instant < runtime_first {
            return NodeStep::Wait(Some(runtime_first));
        }
        let wanted = self.profile.status(observation, &NodeStatus::default());
        let node = encode(&self.profile.node(wanted.clone()));
        self.under_way = Some(PendingUpdate { wanted, patch: None });
        NodeStep::Create(node)
    }

    fn reconcile(&mut self, observation: &NodeObservation<'_>) -> NodeStep {
        if self.registers {
            let wanted = self.profile.status_at_registration(observation, &self.server.status);
            if let Some(patch) = self.profile.patch(&self.server, &wanted, PatchReason::Registration) {
                return self.send(wanted, patch);
            }
        }
        self.object_state = ObjectState::Registered;
        self.report(observation)
    }

    fn report(&mut self, observation: &NodeObservation<'_>) -> NodeStep {
        let now = observation.instant;
        let is_due = self.times.is_due(now);
        let wanted = self.profile.status(observation, &self.server.status);
        let occasion = if is_due { PatchReason::Heartbeat } else { PatchReason::Change };
        let patch = self.profile.patch(&self.server, &wanted, occasion);
        let next_due = [self.times.due(), observation.runtime.due(now)].into_iter().flatten().min();
        let Some(patch) = patch else {
            if is_due {
                // The server's object already has this second's heartbeat.
                self.times.on_reported(false, now, 0);
                return NodeStep::Wait(self.times.due());
            }
            return NodeStep::Wait(next_due);
        };
        if !is_due {
            if self.reported.as_ref() == Some(&patch.changes()) {
                return NodeStep::Wait(next_due);
            }
            if !self.changes.take(now) {
                return NodeStep::Wait(Some(self.changes.next_token()));
            }
        }
        self.send(wanted, patch)
    }

    fn send(&mut self, wanted: NodeStatus, patch: StatusPatch) -> NodeStep {
        self.record_readiness_event(&wanted);
        let body = patch.body.clone();
        self.under_way = Some(PendingUpdate { wanted, patch: Some(patch) });
        NodeStep::Patch(body)
    }

    fn record_readiness_event(&mut self, wanted: &NodeStatus) {
        let status = |of: &NodeStatus| {
            let ready = of.conditions.iter().find(|condition| condition.kind == READY)?;
            Some(ready.status.clone())
        };
        let (Some(before), Some(after)) = (status(&self.server.status), status(wanted)) else { return };
        let is_ready = after == "True";
        if before != after && self.events.ready.replace(is_ready) != Some(is_ready) {
            let reason = if is_ready { Reason::NODE_READY } else { Reason::NODE_NOT_READY };
            self.events.waiting.push(status_event(&self.profile.metadata.name, reason));
        }
    }

    /// Applies the outcome of the request; `random` is uniformly distributed.
    pub(crate) fn done(&mut self, outcome: Outcome, now: Instant, random: u32) {
        let under_way = self.under_way.take();
        let wait = match outcome {
            Outcome::Seen(node) => {
                // A created object is in order; an object that was read must be reconciled first.
                let is_own = under_way.is_some();
                self.object_state = if is_own { ObjectState::Registered } else { ObjectState::Unreconciled };
                self.set_server_object(*node);
                if is_own {
                    self.times.on_reported(true, now, random);
                }
                None
            }
            Outcome::Patched => {
                self.patched(under_way, now, random);
                None
            }
            Outcome::Exists => {
                self.object_state = ObjectState::Unseen;
                Some(self.backoff.next_wait())
            }
            Outcome::NotFound => {
                // If the object existed a moment ago, the watch reports what happened.
                if self.object_state == ObjectState::Unseen {
                    self.object_state = ObjectState::Absent;
                }
                Some(self.backoff.next_wait())
            }
            Outcome::Failed { is_retryable: true } => Some(self.backoff.next_wait()),
            // A rejected request is likely to be rejected again.
            Outcome::Failed { is_retryable: false } => Some(self.refusals.next_wait()),
        };
        match wait {
            Some(wait) => self.not_before = Some(now + wait),
            None => {
                self.not_before = None;
                self.backoff.reset();
                self.refusals.reset();
            }
        }
    }

    /// Assumes that the patch was applied as sent, until the watch reports otherwise.
    fn patched(&mut self, under_way: Option<PendingUpdate>, now: Instant, random: u32) {
        let Some(PendingUpdate { wanted, patch: Some(patch) }) = under_way else { return };
        self.server.status = wanted;
        let metadata = &mut self.server.metadata;
        apply(&mut metadata.labels, patch.body.pointer("/metadata/labels"));
        apply(&mut metadata.annotations, patch.body.pointer("/metadata/annotations"));
        self.object_state = ObjectState::Registered;
        self.events.ready = None;
        self.times.on_reported(patch.has_news, now, random);
        if patch.has_news {
            self.reported = Some(patch.changes());
        }
    }
}

/// Applies a merge patch the way the server does.
fn apply(names: &mut Map<String>, patch: Option<&Value>) {
    for (name, value) in patch.and_then(Value::as_object).into_iter().flatten() {
        match value.as_str() {
            Some(value) => drop(names.insert(name, value.to_owned())),
            None => drop(names.remove(name)),
        }
    }
}

fn status_event(name: &str, reason: Reason) -> NodeEvent {
    let message = format!("Node {name} status is now: {reason}");
    NodeEvent::new(EventKind::Normal, reason, message)
}

#[cfg(test)]
mod tests;
