//! What is next for the node's own object at the API server. Pure: the moment is an argument.
//!
//! ```text
//!              none of this name             made
//!   Unheard ---------------------> Absent ----------> Registered
//!      |                              ^ \                ^    |
//!      | it is there                  |  '-there already-|    | deleted before our eyes
//!      '--------> Unreconciled ----------- in order -----'    v
//!                                     '--gone meanwhile--- Deleted
//! ```
//!
//! The server's object comes through a watch. One request is under way at a time; what comes of it is told before the
//! next is asked for. A node that somebody deletes stays deleted until this process starts anew, as upstream has it; one
//! that is found gone after an outage registers again.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::kubelet::node::patch::{Occasion, StatusPatch};
use crate::kubelet::node::report_times::ReportTimes;
use crate::kubelet::node::status::READY;
use crate::kubelet::node::{NodeObservation, NodeProfile};
use crate::state::pods::{NodeEvent, NodeTerms};
use crate::types::api::{EventKind, Map, Node, NodeAddress, NodeStatus, Reason, encode, is_extended_resource};
use crate::types::time::{Backoff, TokenBucket};

#[derive(Debug)]
pub(crate) struct NodeObjectState {
    profile: NodeProfile,
    /// The object is this node's to make and to bring in order.
    registers: bool,
    place: Place,
    /// As the server has it, as far as is known.
    server: Node,
    times: ReportTimes,
    /// So many changes are told at once; a condition that comes and goes must not fill the line.
    changes: TokenBucket,
    backoff: Backoff,
    refusals: Backoff,
    not_before: Option<Instant>,
    under_way: Option<UnderWay>,
    /// What was last told and may not have been taken: a server that knows a field not drops it, and must not be told
    /// of it with every change of the object that this makes.
    told: Option<Value>,
    begun: Instant,
    news: News,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Unheard,
    Absent,
    /// It seems to be there, and is to be looked at.
    Unseen,
    Unreconciled,
    Registered,
    Deleted,
}

/// A request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Create(Value),
    Look,
    /// A strategic merge patch of the status.
    Patch(Value),
    /// Nothing before this moment, or before something has changed.
    Wait(Option<Instant>),
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// It was created, or looked at: this is the server's object.
    Seen(Box<Node>),
    Patched,
    NotFound,
    /// There is one of this name, or the node may not make one: it may be there all the same.
    Exists,
    /// Anything else.
    Failed {
        /// The same may do better soon.
        is_retryable: bool,
    },
}

#[derive(Debug)]
struct UnderWay {
    wanted: NodeStatus,
    patch: Option<StatusPatch>,
}

/// What is told of the node's own doings, each once.
#[derive(Debug, Default)]
struct News {
    rebooted: bool,
    unschedulable: bool,
    /// The readiness that was told and has not reached the server yet.
    ready: Option<bool>,
    waiting: Vec<NodeEvent>,
}

const FIRST: Duration = Duration::from_millis(100);
/// `registerWithAPIServer`.
const MOST: Duration = Duration::from_secs(7);
const REFUSED_MOST: Duration = Duration::from_secs(5 * 60);
/// Changes that are told at once, and then one in so long: as often as upstream looks.
const BURST: u32 = 5;
const SPACING: Duration = Duration::from_secs(10);
/// The first object is made with what the runtime tells, if it is there within this: that saves telling it after that.
const RUNTIME_FIRST: Duration = Duration::from_secs(5);

impl NodeObjectState {
    pub(crate) fn new(profile: NodeProfile, registers: bool, report_period: Duration, now: Instant) -> Self {
        Self {
            profile,
            registers,
            place: Place::Unheard,
            server: Node::default(),
            times: ReportTimes::new(report_period),
            changes: TokenBucket::each(SPACING, BURST, now),
            backoff: Backoff::new(FIRST, MOST),
            refusals: Backoff::new(SPACING, REFUSED_MOST),
            not_before: None,
            under_way: None,
            told: None,
            begun: now,
            news: News::default(),
        }
    }

    /// The server's list of nodes of this name has come: one or none.
    pub(crate) fn heard_all(&mut self, node: Option<Node>) {
        match node {
            Some(node) => self.heard(node),
            None if self.place != Place::Deleted => self.place = Place::Absent,
            None => {}
        }
    }

    /// The object as it is now.
    pub(crate) fn heard(&mut self, node: Node) {
        if self.place != Place::Registered || node.metadata.uid != self.server.metadata.uid {
            self.place = Place::Unreconciled;
        }
        self.take_in(node);
    }

    /// Somebody has deleted it.
    pub(crate) fn heard_deletion(&mut self) {
        self.place = Place::Deleted;
    }

    /// The object as the server has it; `None` while there is none, or none is known.
    pub(crate) fn server(&self) -> Option<&Node> {
        matches!(self.place, Place::Unreconciled | Place::Registered).then_some(&self.server)
    }

    /// What the cluster has of the node: with what the node itself wants to be called, until that is there too.
    pub(crate) fn terms(&self) -> Option<NodeTerms> {
        let Node { metadata, spec, status, .. } = self.server()?;
        let mut labels = metadata.labels.clone();
        if self.place == Place::Unreconciled {
            for (name, value) in self.profile.metadata.labels.iter() {
                if labels.get(name).is_none() {
                    labels.insert(name, value.clone());
                }
            }
        }
        let extended = status.allocatable.iter().filter(|(name, _)| is_extended_resource(name));
        let extended = extended.map(|(name, quantity)| (name, *quantity)).collect();
        // One that nobody has told to be in use may be taken away this moment.
        let names = status.volumes_attached.iter().filter_map(|one| one.get("name")?.as_str());
        let attached = names.filter(|name| status.volumes_in_use.iter().any(|used| used == name));
        let attached = attached.map(str::to_owned).collect();
        Some(NodeTerms { uid: metadata.uid.to_string(), labels, taints: spec.taints.clone(), extended, attached })
    }

    /// There is no object, and it is not this node's to make one.
    pub(crate) fn is_left_to_others(&self) -> bool {
        self.place == Place::Deleted || self.place == Place::Absent && !self.registers
    }

    /// Those that the server has.
    pub(super) fn addresses(&self) -> &[NodeAddress] {
        self.server().map_or(&[], |node| &node.status.addresses)
    }

    /// The whole status is told next: what takes long to find out is worth finding out.
    pub(crate) fn report_is_due(&self, now: Instant) -> bool {
        !matches!(self.place, Place::Unheard | Place::Deleted) && self.times.is_due(now)
    }

    fn take_in(&mut self, node: Node) {
        let (old, new) = (&node.status.node_info.boot_id, &self.profile.info.boot_id);
        let name = &self.profile.metadata.name;
        if !old.is_empty() && old != new && !std::mem::replace(&mut self.news.rebooted, true) {
            let message = format!("Node {name} has been rebooted, boot id: {new}");
            self.news.waiting.push(NodeEvent::new(EventKind::Warning, Reason::REBOOTED, message));
        }
        let unschedulable = node.spec.unschedulable;
        if std::mem::replace(&mut self.news.unschedulable, unschedulable) != unschedulable {
            let reason = if unschedulable { Reason::NODE_NOT_SCHEDULABLE } else { Reason::NODE_SCHEDULABLE };
            self.news.waiting.push(status_event(name, reason));
        }
        self.server = node;
    }

    /// What has happened since the last time, for the events.
    pub(crate) fn take_events(&mut self) -> Vec<NodeEvent> {
        std::mem::take(&mut self.news.waiting)
    }

    /// The next request. Once it is under way, nothing is asked for before `done`.
    pub(crate) fn next(&mut self, sight: &NodeObservation<'_>) -> Step {
        let now = sight.moment;
        if self.not_before.is_some_and(|moment| now < moment) {
            return Step::Wait(self.not_before);
        }
        match self.place {
            Place::Unheard | Place::Deleted => Step::Wait(None),
            Place::Unseen => {
                self.under_way = None;
                Step::Look
            }
            Place::Absent if !self.registers => Step::Wait(None),
            Place::Absent => self.create(sight),
            Place::Unreconciled => self.reconcile(sight),
            Place::Registered => self.report(sight),
        }
    }

    fn create(&mut self, sight: &NodeObservation<'_>) -> Step {
        let runtime_first = self.begun + RUNTIME_FIRST;
        if sight.runtime.told().is_none() && sight.moment < runtime_first {
            return Step::Wait(Some(runtime_first));
        }
        let wanted = self.profile.status(sight, &NodeStatus::default());
        let node = encode(&self.profile.node(wanted.clone()));
        self.under_way = Some(UnderWay { wanted, patch: None });
        Step::Create(node)
    }

    fn reconcile(&mut self, sight: &NodeObservation<'_>) -> Step {
        if self.registers {
            let wanted = self.profile.status_at_registration(sight, &self.server.status);
            if let Some(patch) = self.profile.patch(&self.server, &wanted, Occasion::Registration) {
                return self.send(wanted, patch);
            }
        }
        self.place = Place::Registered;
        self.report(sight)
    }

    fn report(&mut self, sight: &NodeObservation<'_>) -> Step {
        let now = sight.moment;
        let is_due = self.times.is_due(now);
        let wanted = self.profile.status(sight, &self.server.status);
        let occasion = if is_due { Occasion::Heartbeat } else { Occasion::Change };
        let patch = self.profile.patch(&self.server, &wanted, occasion);
        let rest = [self.times.due(), sight.runtime.due(now)].into_iter().flatten().min();
        let Some(patch) = patch else {
            if is_due {
                // The server's object is of this very second.
                self.times.told(false, now, 0);
                return Step::Wait(self.times.due());
            }
            return Step::Wait(rest);
        };
        if !is_due {
            if self.told.as_ref() == Some(&patch.news()) {
                return Step::Wait(rest);
            }
            if !self.changes.take(now) {
                return Step::Wait(Some(self.changes.next_token()));
            }
        }
        self.send(wanted, patch)
    }

    fn send(&mut self, wanted: NodeStatus, patch: StatusPatch) -> Step {
        self.tell_readiness(&wanted);
        let body = patch.body.clone();
        self.under_way = Some(UnderWay { wanted, patch: Some(patch) });
        Step::Patch(body)
    }

    fn tell_readiness(&mut self, wanted: &NodeStatus) {
        let status = |of: &NodeStatus| {
            let ready = of.conditions.iter().find(|condition| condition.kind == READY)?;
            Some(ready.status.clone())
        };
        let (Some(before), Some(after)) = (status(&self.server.status), status(wanted)) else { return };
        let is_ready = after == "True";
        if before != after && self.news.ready.replace(is_ready) != Some(is_ready) {
            let reason = if is_ready { Reason::NODE_READY } else { Reason::NODE_NOT_READY };
            self.news.waiting.push(status_event(&self.profile.metadata.name, reason));
        }
    }

    /// What came of the request; `random` is any number, evenly spread.
    pub(crate) fn done(&mut self, outcome: Outcome, now: Instant, random: u32) {
        let under_way = self.under_way.take();
        let wait = match outcome {
            Outcome::Seen(node) => {
                // What was made is as it was wanted; what was found has yet to be brought in order.
                let is_own = under_way.is_some();
                self.place = if is_own { Place::Registered } else { Place::Unreconciled };
                self.take_in(*node);
                if is_own {
                    self.times.told(true, now, random);
                }
                None
            }
            Outcome::Patched => {
                self.patched(under_way, now, random);
                None
            }
            Outcome::Exists => {
                self.place = Place::Unseen;
                Some(self.backoff.next_wait())
            }
            Outcome::NotFound => {
                // A node that was there a moment ago: the watch tells what has become of it.
                if self.place == Place::Unseen {
                    self.place = Place::Absent;
                }
                Some(self.backoff.next_wait())
            }
            Outcome::Failed { is_retryable: true } => Some(self.backoff.next_wait()),
            // The same may well be refused again, and again.
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

    /// Until the watch tells more, the object is taken to be what it was asked to be.
    fn patched(&mut self, under_way: Option<UnderWay>, now: Instant, random: u32) {
        let Some(UnderWay { wanted, patch: Some(patch) }) = under_way else { return };
        self.server.status = wanted;
        let metadata = &mut self.server.metadata;
        apply(&mut metadata.labels, patch.body.pointer("/metadata/labels"));
        apply(&mut metadata.annotations, patch.body.pointer("/metadata/annotations"));
        self.place = Place::Registered;
        self.news.ready = None;
        self.times.told(patch.has_news, now, random);
        if patch.has_news {
            self.told = Some(patch.news());
        }
    }
}

/// As the server does it.
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
