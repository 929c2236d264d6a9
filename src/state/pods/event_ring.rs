//! The node's recent events, newest last, in bounded memory. Pure: time is an argument.
//!
//! Aggregated like upstream's EventCorrelator: a repeated event increments a count, and from the tenth event within
//! ten minutes that differs only in its message, the rest become one combined event.
//!
//! With an API server, the ring is also the send queue: a waiting event is sent with its latest count and needs no
//! other memory. An event displaced before it was sent is lost and counted.

mod stored;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::state::pods::event_spam_filter::SpamFilter;
use crate::state::pods::{EventObject, NodeEvent, PodEvent};
pub(crate) use stored::StoredEvents;

use crate::types::api::{
    Event, EventKind, EventSource, ObjectKind, ObjectMeta, ObjectReference, Pod, PodUid, Reason, Time, V1,
};

/// The recent events.
#[derive(Debug, Default)]
pub(crate) struct EventRing {
    events: VecDeque<EventRecord>,
    /// Number of all events so far.
    noted: u64,
    text_bytes: usize,
    /// `None`: there is no API server.
    queue: Option<Queue>,
}

/// State for sending events.
#[derive(Debug, Default)]
struct Queue {
    spam: SpamFilter,
    lost: u64,
}

/// An event to send to the API server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UnsentEvent {
    /// Identifies the event in `sent`.
    pub(crate) number: u64,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) change: UnsentChange,
    count: i32,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum UnsentChange {
    New(Box<Event>),
    /// A merge patch of count and last time of an event that was sent before.
    Again(Value),
}

/// The outcome of sending an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendOutcome {
    Accepted,
    /// The event to patch no longer exists: the server keeps events for an hour.
    Gone,
    /// The server rejects it permanently.
    Rejected,
}

/// One event and its count.
#[derive(Clone, Debug)]
pub(crate) struct EventRecord {
    content: NewEvent,
    pub(crate) count: i32,
    first: Time,
    last: Time,
    last_moment: Instant,
    /// Unique in this process.
    number: u64,
    /// The time in the API object's name. It stays when the times are corrected: the API server knows the event by it.
    named: Time,
    /// A combined event, for several that differ in their messages.
    combined: bool,
    /// Resource version of the object at the first occurrence.
    resource_version: String,
    /// It has changes that were not sent.
    unsent: bool,
    /// The API server has it.
    posted: bool,
    /// This process has seen the first occurrence, and the last one. What an earlier process has seen keeps its time
    /// when the clock is set.
    is_first_own: bool,
    is_last_own: bool,
}

/// A warning about a pod, with its repetitions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodWarning<'a> {
    pub(crate) pod: &'a PodUid,
    pub(crate) reason: &'a Reason,
    pub(crate) message: &'a str,
    /// As `spec.containers{main}`; empty if it is about the pod.
    pub(crate) field_path: &'a str,
    pub(crate) first: Time,
    pub(crate) last: Time,
}

impl PodWarning<'_> {
    /// The message; of a combined event, that of its newest.
    pub(crate) fn text(&self) -> &str {
        self.message.strip_prefix(COMBINED).unwrap_or(self.message)
    }
}

/// An event without its times and count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewEvent {
    object: EventObject,
    /// Of the object's current version.
    resource_version: String,
    field_path: String,
    kind: EventKind,
    reason: Reason,
    message: String,
}

/// Limits for all events and for those of one object, so that a noisy object displaces only its own.
const MAX_RING_EVENTS: usize = 1000;
const MAX_RING_EVENTS_OF_OBJECT: usize = 50;
/// Limit of the texts in bytes.
const MAX_RING_TEXT_BYTES: usize = 256 << 10;
/// client-go's `defaultAggregateMaxEvents` and `defaultAggregateIntervalInSeconds`.
const MAX_SIMILAR_EVENTS: usize = 10;
const SIMILAR_EVENTS_INTERVAL: Duration = Duration::from_secs(600);
const COMBINED: &str = "(combined from similar events): ";

impl EventRing {
    /// With a send queue. `seed` is random, so that two processes of a node whose clocks show the same time do not
    /// give events the same name.
    pub(crate) fn with_queue(seed: u32) -> Self {
        Self { queue: Some(Queue::default()), noted: seed.into(), ..Self::default() }
    }

    /// Adds an occurrence of an event.
    pub(crate) fn note(&mut self, new: NewEvent, now: Time, monotonic: Instant) {
        let is_sendable =
            self.queue.as_mut().is_some_and(|queue| queue.spam.may_send(&new.object, new.kind, monotonic));
        let mut record = match self.take(|record| !record.combined && record.content.is_same(&new)) {
            Some(record) => record,
            None if self.is_one_of_many(&new, monotonic) => {
                let similar = self.take(|record| record.combined && record.content.is_similar(&new));
                let message = [COMBINED, &new.message].concat();
                let combined = NewEvent { message, ..new };
                match similar {
                    Some(record) => EventRecord { content: combined, ..record },
                    None => EventRecord { combined: true, ..self.first(combined, now, monotonic) },
                }
            }
            None => self.first(new, now, monotonic),
        };
        record.count = record.count.saturating_add(1);
        record.last = now;
        record.last_moment = monotonic;
        record.is_last_own = true;
        record.unsent |= is_sendable;
        self.add(record);
    }

    fn add(&mut self, record: EventRecord) {
        self.make_room(&record);
        self.text_bytes += record.content.text_bytes();
        self.events.push_back(record);
    }

    /// The next event to send. Combined events come last, because they are likely to change again.
    pub(crate) fn unsent(&self, node: &str) -> Option<UnsentEvent> {
        let of = |combined: bool| self.events.iter().find(|record| record.unsent && record.combined == combined);
        let record = of(false).or_else(|| of(true))?;
        let event = record.event(node);
        let change = match record.posted {
            false => UnsentChange::New(Box::new(event.clone())),
            true => UnsentChange::Again(record.patch()),
        };
        let ObjectMeta { name, namespace, .. } = event.metadata;
        Some(UnsentEvent { number: record.number, namespace, name, change, count: record.count })
    }

    /// Number of events still to send.
    pub(crate) fn unsent_count(&self) -> usize {
        self.events.iter().filter(|record| record.unsent).count()
    }

    /// Applies the outcome of sending `unsent`.
    pub(crate) fn sent(&mut self, unsent: &UnsentEvent, outcome: SendOutcome) {
        let Some(record) = self.events.iter_mut().find(|record| record.number == unsent.number) else { return };
        match outcome {
            SendOutcome::Accepted => {
                record.posted = true;
                // It may have happened again while it was sent.
                record.unsent = record.count != unsent.count;
            }
            // Still unsent, and so the next attempt creates it.
            SendOutcome::Gone => record.posted = false,
            SendOutcome::Rejected => record.unsent = false,
        }
    }

    /// Number of events displaced before they were sent.
    pub(crate) fn lost(&self) -> u64 {
        self.queue.as_ref().map_or(0, |queue| queue.lost)
    }

    /// Oldest first, as API objects; `node` is the source host.
    pub(crate) fn events(&self, node: &str) -> impl Iterator<Item = Event> {
        self.events.iter().map(move |record| record.event(node))
    }

    /// The warnings about pods, oldest first.
    pub(crate) fn pod_warnings(&self) -> impl Iterator<Item = PodWarning<'_>> {
        let warnings = self.events.iter().filter(|record| {
            record.content.object.kind == ObjectKind::Pod && record.content.kind == EventKind::Warning
        });
        warnings.map(|record| PodWarning {
            pod: &record.content.object.uid,
            reason: &record.content.reason,
            message: &record.content.message,
            field_path: &record.content.field_path,
            first: record.first,
            last: record.last,
        })
    }

    fn first(&mut self, new: NewEvent, now: Time, monotonic: Instant) -> EventRecord {
        self.noted = self.noted.wrapping_add(1);
        EventRecord {
            resource_version: new.resource_version.clone(),
            named: now,
            content: new,
            count: 0,
            first: now,
            last: now,
            last_moment: monotonic,
            number: self.noted,
            combined: false,
            unsent: false,
            posted: false,
            is_first_own: true,
            is_last_own: true,
        }
    }

    /// Whether this event is combined with the similar ones before it, which have reached the limit.
    fn is_one_of_many(&self, new: &NewEvent, monotonic: Instant) -> bool {
        let is_recent =
            |record: &&EventRecord| monotonic.saturating_duration_since(record.last_moment) <= SIMILAR_EVENTS_INTERVAL;
        let similar = self.events.iter().filter(|record| !record.combined && record.content.is_similar(new));
        similar.filter(is_recent).count() + 1 >= MAX_SIMILAR_EVENTS
    }

    fn make_room(&mut self, coming: &EventRecord) {
        let object = &coming.content.object;
        if self.events.iter().filter(|record| record.content.object == *object).count() >= MAX_RING_EVENTS_OF_OBJECT {
            self.displace(|record| record.content.object == *object);
        }
        while !self.events.is_empty()
            && (self.events.len() >= MAX_RING_EVENTS
                || self.text_bytes + coming.content.text_bytes() > MAX_RING_TEXT_BYTES)
        {
            self.displace(|_| true);
        }
    }

    fn displace(&mut self, is_wanted: impl Fn(&EventRecord) -> bool) {
        let record = self.take(is_wanted);
        if let (Some(EventRecord { unsent: true, .. }), Some(queue)) = (record, &mut self.queue) {
            queue.lost = queue.lost.saturating_add(1);
        }
    }

    /// Removes and returns the oldest matching event.
    fn take(&mut self, is_wanted: impl Fn(&EventRecord) -> bool) -> Option<EventRecord> {
        let record = self.events.iter().position(is_wanted).and_then(|index| self.events.remove(index))?;
        self.text_bytes -= record.content.text_bytes();
        Some(record)
    }
}

impl EventRecord {
    fn event(&self, node: &str) -> Event {
        let NewEvent { object, field_path, kind, reason, message, .. } = &self.content;
        // Upstream's names contain nanoseconds; any unique number will do.
        let number = self.number & u64::from(u32::MAX);
        let name = format!("{}.{:x}{number:08x}", name_part(&object.name), self.named.unix_seconds());
        let namespace = if object.namespace.is_empty() { "default" } else { &object.namespace };
        Event {
            kind: ObjectKind::Event,
            metadata: ObjectMeta { name, namespace: namespace.to_owned(), ..ObjectMeta::default() },
            involved_object: ObjectReference {
                kind: object.kind,
                namespace: object.namespace.clone(),
                name: object.name.clone(),
                uid: object.uid.clone(),
                // Events about the node itself have no API version (kubelet: `nodeRef`).
                api_version: (object.kind == ObjectKind::Pod).then_some(V1::V1),
                field_path: field_path.clone(),
                resource_version: self.resource_version.clone(),
            },
            reason: reason.clone(),
            message: message.clone(),
            source: EventSource { component: COMPONENT.to_owned(), host: node.to_owned() },
            first_timestamp: Some(self.first),
            last_timestamp: Some(self.last),
            count: self.count,
            event_type: *kind,
            reporting_component: COMPONENT.to_owned(),
            reporting_instance: node.to_owned(),
            ..Event::default()
        }
    }

    /// The changes since it was last sent; a combined event has its newest message.
    fn patch(&self) -> Value {
        let mut patch = json!({ "count": self.count, "lastTimestamp": self.last.to_string() });
        if let (Value::Object(patch), true) = (&mut patch, self.combined) {
            patch.insert("message".to_owned(), self.content.message.as_str().into());
        }
        patch
    }
}

/// The part of a name that leaves room for the event's suffix.
fn name_part(name: &str) -> &str {
    name.get(..MAX_EVENT_NAME_PREFIX_BYTES).map_or(name, |head| head.trim_end_matches(['.', '-']))
}

/// Names have at most 253 characters.
const MAX_EVENT_NAME_PREFIX_BYTES: usize = 253 - 20;

/// Tools expect this component name.
const COMPONENT: &str = "kubelet";

impl NewEvent {
    /// `spec`: the pod whose spec has the event's container.
    pub(crate) fn of_pod(object: EventObject, spec: Option<&Pod>, event: PodEvent) -> Self {
        let PodEvent { pod: _, container, kind, reason, message } = event;
        let field_path = container.map_or_else(String::new, |container| field_path(spec, &container));
        let resource_version = spec.map_or_else(String::new, |pod| pod.metadata.resource_version.clone());
        Self { object, resource_version, field_path, kind, reason, message }
    }

    pub(crate) fn of_node(node: &str, event: NodeEvent) -> Self {
        let NodeEvent { kind, reason, message } = event;
        let object = EventObject {
            kind: ObjectKind::Node,
            namespace: String::new(),
            name: node.to_owned(),
            // Before registration the node has no uid; upstream uses the name.
            uid: PodUid::from(node),
        };
        Self { object, resource_version: String::new(), field_path: String::new(), kind, reason, message }
    }

    /// The same event, whatever the object's version.
    fn is_same(&self, other: &Self) -> bool {
        self.is_similar(other) && self.message == other.message && self.field_path == other.field_path
    }

    /// The same event except for message and field path.
    fn is_similar(&self, other: &Self) -> bool {
        self.object == other.object && self.kind == other.kind && self.reason == other.reason
    }

    fn text_bytes(&self) -> usize {
        self.message.len() + self.field_path.len() + self.object.name.len() + self.object.namespace.len()
    }
}

/// As the kubelet's `GenerateContainerRef`.
fn field_path(pod: Option<&Pod>, container: &str) -> String {
    let spec = pod.map(|pod| &pod.spec);
    let lists = spec.map(|spec| {
        [
            ("containers", &spec.containers),
            ("initContainers", &spec.init_containers),
            ("ephemeralContainers", &spec.ephemeral_containers),
        ]
    });
    let list = lists.into_iter().flatten().find(|(_, list)| list.iter().any(|one| one.name == container));
    match list {
        Some((list, _)) => format!("spec.{list}{{{container}}}"),
        None => format!("implicitly required container {container}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::{Container, PodSpec};

    fn pod_event(container: Option<&str>, reason: Reason, message: &str) -> PodEvent {
        let uid = PodUid::from("u");
        match container {
            Some(name) => PodEvent::of_container(&uid, name, EventKind::Normal, reason, message),
            None => PodEvent::of_pod(&uid, EventKind::Normal, reason, message),
        }
    }

    pub(super) fn new_event(pod: &str, message: &str) -> NewEvent {
        let object = EventObject {
            kind: ObjectKind::Pod,
            namespace: "default".to_owned(),
            name: pod.to_owned(),
            uid: PodUid::from(pod),
        };
        NewEvent::of_pod(object, None, pod_event(None, Reason::FAILED, message))
    }

    pub(super) struct Clock {
        pub(super) begin: Instant,
        pub(super) ring: EventRing,
    }

    impl Clock {
        fn new() -> Self {
            Self { begin: Instant::now(), ring: EventRing::default() }
        }

        pub(super) fn queueing() -> Self {
            Self { ring: EventRing::with_queue(u32::MAX), ..Self::new() }
        }

        pub(super) fn note(&mut self, second: i64, new: NewEvent) {
            let time = self.begin + Duration::from_secs(second.unsigned_abs());
            self.ring.note(new, Time::from_unix_nanos(second * 1_000_000_000), time);
        }

        pub(super) fn lines(&self) -> Vec<(String, i32, i64, i64)> {
            let seconds = |time: Option<Time>| time.unwrap().unix_seconds();
            let line = |event: Event| {
                let (first, last) = (seconds(event.first_timestamp), seconds(event.last_timestamp));
                (event.message, event.count, first, last)
            };
            self.ring.events("n").map(line).collect()
        }
    }

    #[test]
    fn repeated_event_is_counted_and_newest() {
        let mut clock = Clock::new();
        for (second, message) in [(1, "a"), (2, "b"), (9, "a")] {
            clock.note(second, new_event("web", message));
        }
        assert_eq!(clock.lines(), [("b".to_owned(), 1, 2, 2), ("a".to_owned(), 2, 1, 9)]);
    }

    #[test]
    fn tenth_similar_event_is_combined() {
        let mut clock = Clock::new();
        for second in 0..12 {
            clock.note(second, new_event("web", &format!("m{second}")));
        }
        clock.note(12, new_event("web", "m3"));
        clock.note(13, new_event("other", "m99"));
        let lines = clock.lines();
        assert_eq!(lines.len(), 11);
        assert_eq!(lines[8], ("(combined from similar events): m11".to_owned(), 3, 9, 11));
        assert_eq!(lines[9], ("m3".to_owned(), 2, 3, 12));
        assert_eq!(lines[10], ("m99".to_owned(), 1, 13, 13));
    }

    #[test]
    fn events_are_not_combined_after_ten_minutes() {
        let mut clock = Clock::new();
        for second in 0..9 {
            clock.note(second, new_event("web", &format!("m{second}")));
        }
        clock.note(700, new_event("web", "new"));
        assert_eq!(clock.lines().last(), Some(&("new".to_owned(), 1, 700, 700)));
    }

    #[test]
    fn noisy_object_displaces_its_own_events_and_memory_is_bounded() {
        let mut clock = Clock::new();
        clock.note(0, new_event("quiet", "here"));
        for second in 1..200 {
            clock.note(second * 700, new_event("loud", &format!("{second}")));
        }
        assert_eq!(clock.ring.events.len(), MAX_RING_EVENTS_OF_OBJECT + 1);
        assert_eq!(clock.lines()[0].0, "here");
        let long = "x".repeat(1000);
        for pod in 0..2000 {
            clock.note(200_000, new_event(&pod.to_string(), &long));
        }
        let all: usize = clock.ring.events.iter().map(|record| record.content.text_bytes()).sum();
        assert_eq!(all, clock.ring.text_bytes);
        assert!(all <= MAX_RING_TEXT_BYTES && clock.ring.events.len() > 200, "{all} {}", clock.ring.events.len());
        for pod in 0..2000 {
            clock.note(200_001, new_event(&pod.to_string(), "x"));
        }
        assert_eq!(clock.ring.events.len(), MAX_RING_EVENTS);
    }

    #[test]
    fn container_has_its_field_path() {
        let named = |name: &str| vec![Container { name: name.to_owned(), ..Container::default() }];
        let spec = PodSpec {
            containers: named("main"),
            init_containers: named("first"),
            ephemeral_containers: named("debug"),
            ..PodSpec::default()
        };
        let pod = Pod { spec, ..Pod::default() };
        let path = |container: &str| field_path(Some(&pod), container);
        assert_eq!(path("main"), "spec.containers{main}");
        assert_eq!(path("first"), "spec.initContainers{first}");
        assert_eq!(path("debug"), "spec.ephemeralContainers{debug}");
        assert_eq!(path("gone"), "implicitly required container gone");
    }

    /// Everything sent to a server that accepts it, in order: `+` is new, `=` is a patch.
    pub(super) fn tell_all(ring: &mut EventRing) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(unsent) = ring.unsent("n") {
            all.push(match &unsent.change {
                UnsentChange::New(event) => format!("+{} {}", event.message, event.count),
                UnsentChange::Again(patch) => format!("={patch}"),
            });
            ring.sent(&unsent, SendOutcome::Accepted);
        }
        all
    }

    #[test]
    fn event_is_sent_once_and_then_patched() {
        let mut clock = Clock::queueing();
        clock.note(1, new_event("web", "a"));
        assert_eq!(tell_all(&mut clock.ring), ["+a 1"]);
        for second in [2, 3] {
            clock.note(second, new_event("web", "a"));
        }
        assert_eq!(tell_all(&mut clock.ring), [r#"={"count":3,"lastTimestamp":"1970-01-01T00:00:03Z"}"#]);
        assert_eq!(tell_all(&mut clock.ring), [""; 0]);
    }

    #[test]
    fn occurrence_during_a_send_is_sent_afterwards() {
        let mut clock = Clock::queueing();
        clock.note(1, new_event("web", "a"));
        let under_way = clock.ring.unsent("n").unwrap();
        clock.note(2, new_event("web", "a"));
        clock.ring.sent(&under_way, SendOutcome::Accepted);
        assert_eq!(tell_all(&mut clock.ring), [r#"={"count":2,"lastTimestamp":"1970-01-01T00:00:02Z"}"#]);
    }

    #[test]
    fn expired_event_is_recreated_and_rejected_one_dropped() {
        let mut clock = Clock::queueing();
        clock.note(1, new_event("web", "a"));
        tell_all(&mut clock.ring);
        clock.note(2, new_event("web", "a"));
        let again = clock.ring.unsent("n").unwrap();
        clock.ring.sent(&again, SendOutcome::Gone);
        assert_eq!(tell_all(&mut clock.ring), ["+a 2"]);
        clock.note(3, new_event("web", "b"));
        let new = clock.ring.unsent("n").unwrap();
        clock.ring.sent(&new, SendOutcome::Rejected);
        assert_eq!(tell_all(&mut clock.ring), [""; 0]);
    }

    #[test]
    fn backlog_is_sent_with_counts_and_combined_events_last() {
        let mut clock = Clock::queueing();
        for second in 0..20 {
            clock.note(second, new_event("web", &format!("m{second}")));
        }
        clock.note(20, new_event("web", "m3"));
        clock.note(21, new_event("db", "x"));
        let all = tell_all(&mut clock.ring);
        assert_eq!(all.len(), 11);
        assert_eq!(all[8..], ["+m3 2", "+x 1", "+(combined from similar events): m19 11"]);
        clock.note(22, new_event("web", "m20"));
        let message = "(combined from similar events): m20";
        let again = format!(r#"={{"count":12,"lastTimestamp":"1970-01-01T00:00:22Z","message":"{message}"}}"#);
        assert_eq!(tell_all(&mut clock.ring), [again]);
    }

    #[test]
    fn noisy_object_is_sent_less_often_with_full_counts() {
        let mut clock = Clock::queueing();
        let mut told_of = 0;
        for second in 0..600 {
            clock.note(second, new_event("web", "a"));
            told_of += tell_all(&mut clock.ring).len();
        }
        assert_eq!(told_of, 25 + 1);
        assert_eq!(clock.lines()[0].1, 600);
    }

    #[test]
    fn event_displaced_before_sending_is_counted_as_lost() {
        let mut clock = Clock::queueing();
        for pod in 0..MAX_RING_EVENTS + 7 {
            clock.note(1, new_event(&pod.to_string(), "a"));
        }
        assert_eq!(clock.ring.lost(), 7);
        tell_all(&mut clock.ring);
        clock.note(2, new_event("x", "a"));
        assert_eq!(clock.ring.lost(), 7);
        let mut alone = Clock::new();
        for pod in 0..MAX_RING_EVENTS + 7 {
            alone.note(1, new_event(&pod.to_string(), "a"));
        }
        assert_eq!((alone.ring.lost(), alone.ring.unsent("n")), (0, None), "there is no API server");
    }

    #[test]
    fn new_pod_version_continues_the_event() {
        let mut clock = Clock::new();
        for version in ["7", "8"] {
            let mut pod = Pod::default();
            pod.metadata.resource_version = version.to_owned();
            let object = new_event("web", "a").object;
            clock.note(1, NewEvent::of_pod(object, Some(&pod), pod_event(None, Reason::FAILED, "a")));
        }
        let events: Vec<Event> = clock.ring.events("n").collect();
        let [event] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!((event.count, event.involved_object.resource_version.as_str()), (2, "7"));
    }

    #[test]
    fn long_pod_name_leaves_room_for_the_event_name() {
        let name = "a".repeat(MAX_EVENT_NAME_PREFIX_BYTES - 1) + ".b";
        let mut clock = Clock::queueing();
        clock.note(1, new_event(&name, "a"));
        let unsent = clock.ring.unsent("n").unwrap();
        assert!(crate::types::api::validation::names::is_dns_subdomain(&unsent.name), "{}", unsent.name);
    }

    #[test]
    fn event_has_every_field_that_tools_read() {
        let mut ring = EventRing::default();
        let now = Time::from_unix_nanos(1_700_000_000_000_000_000);
        ring.note(new_event("web", "m"), now, Instant::now());
        let node = NodeEvent::new(EventKind::Warning, Reason::SYSTEM_OOM, "m");
        ring.note(NewEvent::of_node("n", node), now, Instant::now());
        let events: Vec<_> = ring.events("n").map(|event| crate::types::api::encode(&event)).collect();
        let time = "2023-11-14T22:13:20Z";
        let expected = serde_json::json!({
            "apiVersion": "v1", "kind": "Event", "type": "Normal", "reason": "Failed", "message": "m", "count": 1,
            "metadata": { "name": "web.6553f10000000001", "namespace": "default" },
            "involvedObject": {
                "apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "web", "uid": "web"
            },
            "source": { "component": "kubelet", "host": "n" },
            "reportingComponent": "kubelet", "reportingInstance": "n",
            "firstTimestamp": time, "lastTimestamp": time,
        });
        assert_eq!(events[0], expected);
        assert_eq!(events[1]["involvedObject"], serde_json::json!({ "kind": "Node", "name": "n", "uid": "n" }));
        assert_eq!(events[1]["metadata"]["namespace"], "default");
    }
}
