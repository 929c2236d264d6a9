//! What has happened on this node, newest last, in as much memory as there is for it. Pure: the moment is an argument.
//!
//! Counted as upstream's correlator does it: the same again is one event with a count, and what differs in nothing but
//! its words, ten times in ten minutes, becomes one.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::api::{
    Event, EventKind, EventSource, ObjectKind, ObjectMeta, ObjectReference, Pod, PodUid, Reason, Time, V1,
};
use crate::pods::{NodeEvent, PodEvent};

/// The events of late. Who would send them on gets each one as it is noted.
#[derive(Debug, Default)]
pub(crate) struct EventRing {
    events: VecDeque<EventRecord>,
    /// Counts all that ever were.
    noted: u64,
    text_bytes: usize,
}

/// One event, and how often it was.
#[derive(Clone, Debug)]
pub(crate) struct EventRecord {
    told: Told,
    pub(crate) count: i32,
    first: Time,
    last: Time,
    last_moment: Instant,
    /// No other of this process has it.
    number: u64,
    /// Stands for several that differ in their words.
    combined: bool,
}

/// What is told of an object, without when and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    object: EventObject,
    field_path: String,
    kind: EventKind,
    reason: Reason,
    message: String,
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventObject {
    pub(crate) kind: ObjectKind,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: PodUid,
}

/// All of them, and those of one object, so that one that has much to tell displaces only its own.
const MOST: usize = 1000;
const MOST_OF_ONE: usize = 50;
/// Of the texts in them.
const MOST_BYTES: usize = 256 << 10;
/// As client-go has it (`defaultAggregateMaxEvents`, `defaultAggregateIntervalInSeconds`).
const SIMILAR: usize = 10;
const SIMILAR_WITHIN: Duration = Duration::from_secs(600);
const COMBINED: &str = "(combined from similar events): ";

impl EventRing {
    /// Takes in what happened at this moment; gives the event with its count.
    pub(crate) fn note(&mut self, told: Told, now: Time, moment: Instant) -> Option<&EventRecord> {
        let mut record = match self.take(|record| !record.combined && record.told == told) {
            Some(record) => record,
            None if self.is_one_of_many(&told, moment) => {
                let known = self.take(|record| record.combined && record.told.is_similar(&told));
                let message = [COMBINED, &told.message].concat();
                let told = Told { message, ..told };
                match known {
                    Some(record) => EventRecord { told, ..record },
                    None => EventRecord { combined: true, ..self.first(told, now, moment) },
                }
            }
            None => self.first(told, now, moment),
        };
        record.count = record.count.saturating_add(1);
        record.last = now;
        record.last_moment = moment;
        self.make_room(&record);
        self.text_bytes += record.told.text_bytes();
        self.events.push_back(record);
        self.events.back()
    }

    /// Oldest first, as the API has them. `node` is where they come from.
    pub(crate) fn events(&self, node: &str) -> impl Iterator<Item = Event> {
        self.events.iter().map(move |record| record.event(node))
    }

    fn first(&mut self, told: Told, now: Time, moment: Instant) -> EventRecord {
        self.noted = self.noted.wrapping_add(1);
        EventRecord { told, count: 0, first: now, last: now, last_moment: moment, number: self.noted, combined: false }
    }

    /// There are as many of its kind already as stand for themselves.
    fn is_one_of_many(&self, told: &Told, moment: Instant) -> bool {
        let is_recent = |record: &&EventRecord| moment.saturating_duration_since(record.last_moment) <= SIMILAR_WITHIN;
        let similar = self.events.iter().filter(|record| !record.combined && record.told.is_similar(told));
        similar.filter(is_recent).count() + 1 >= SIMILAR
    }

    fn make_room(&mut self, coming: &EventRecord) {
        let object = &coming.told.object;
        if self.events.iter().filter(|record| record.told.object == *object).count() >= MOST_OF_ONE {
            self.take(|record| record.told.object == *object);
        }
        while !self.events.is_empty()
            && (self.events.len() >= MOST || self.text_bytes + coming.told.text_bytes() > MOST_BYTES)
        {
            self.take(|_| true);
        }
    }

    /// Takes the oldest one out that is so.
    fn take(&mut self, is_wanted: impl Fn(&EventRecord) -> bool) -> Option<EventRecord> {
        let record = self.events.iter().position(is_wanted).and_then(|place| self.events.remove(place))?;
        self.text_bytes -= record.told.text_bytes();
        Some(record)
    }
}

impl EventRecord {
    fn event(&self, node: &str) -> Event {
        let Told { object, field_path, kind, reason, message } = &self.told;
        // Upstream's names count nanoseconds; any that no other event has will do.
        let name = format!("{}.{:x}{:08x}", object.name, self.first.unix_seconds(), self.number);
        let namespace = if object.namespace.is_empty() { "default" } else { &object.namespace };
        Event {
            kind: ObjectKind::Event,
            metadata: ObjectMeta { name, namespace: namespace.to_owned(), ..ObjectMeta::default() },
            involved_object: ObjectReference {
                kind: object.kind,
                namespace: object.namespace.clone(),
                name: object.name.clone(),
                uid: object.uid.clone(),
                // A node's own events name no version (kubelet: `nodeRef`).
                api_version: (object.kind == ObjectKind::Pod).then_some(V1::V1),
                field_path: field_path.clone(),
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
}

/// Tools look for this name.
const COMPONENT: &str = "kubelet";

impl Told {
    /// `spec` tells where the container stands that the event is about.
    pub(crate) fn of_pod(object: EventObject, spec: Option<&Pod>, event: PodEvent) -> Self {
        let PodEvent { pod: _, container, kind, reason, message } = event;
        let field_path = container.map_or_else(String::new, |container| field_path(spec, &container));
        Self { object, field_path, kind, reason, message }
    }

    pub(crate) fn of_node(node: &str, event: NodeEvent) -> Self {
        let NodeEvent { kind, reason, message } = event;
        let object = EventObject {
            kind: ObjectKind::Node,
            namespace: String::new(),
            name: node.to_owned(),
            // Before it is registered a node has no other.
            uid: PodUid::from(node),
        };
        Self { object, field_path: String::new(), kind, reason, message }
    }

    /// The same but for its words and the part of the object.
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
    use crate::api::{Container, PodSpec};

    fn pod_event(container: Option<&str>, reason: Reason, message: &str) -> PodEvent {
        let uid = PodUid::from("u");
        match container {
            Some(name) => PodEvent::of_container(&uid, name, EventKind::Normal, reason, message),
            None => PodEvent::of_pod(&uid, EventKind::Normal, reason, message),
        }
    }

    fn told(pod: &str, message: &str) -> Told {
        let object = EventObject {
            kind: ObjectKind::Pod,
            namespace: "default".to_owned(),
            name: pod.to_owned(),
            uid: PodUid::from(pod),
        };
        Told::of_pod(object, None, pod_event(None, Reason::FAILED, message))
    }

    struct Clock {
        begin: Instant,
        ring: EventRing,
    }

    impl Clock {
        fn new() -> Self {
            Self { begin: Instant::now(), ring: EventRing::default() }
        }

        fn note(&mut self, second: i64, told: Told) {
            let moment = self.begin + Duration::from_secs(second.unsigned_abs());
            let noted = self.ring.note(told, Time::from_unix_nanos(second * 1_000_000_000), moment);
            assert!(noted.is_some_and(|record| record.count > 0));
        }

        fn lines(&self) -> Vec<(String, i32, i64, i64)> {
            let seconds = |time: Option<Time>| time.unwrap().unix_seconds();
            let line = |event: Event| {
                let (first, last) = (seconds(event.first_timestamp), seconds(event.last_timestamp));
                (event.message, event.count, first, last)
            };
            self.ring.events("n").map(line).collect()
        }
    }

    #[test]
    fn the_same_again_is_one_event_with_a_count_and_the_newest() {
        let mut clock = Clock::new();
        for (second, message) in [(1, "a"), (2, "b"), (9, "a")] {
            clock.note(second, told("web", message));
        }
        assert_eq!(clock.lines(), [("b".to_owned(), 1, 2, 2), ("a".to_owned(), 2, 1, 9)]);
    }

    #[test]
    fn what_differs_in_its_words_alone_becomes_one_with_the_tenth() {
        let mut clock = Clock::new();
        for second in 0..12 {
            clock.note(second, told("web", &format!("m{second}")));
        }
        clock.note(12, told("web", "m3"));
        clock.note(13, told("other", "m99"));
        let lines = clock.lines();
        assert_eq!(lines.len(), 11);
        assert_eq!(lines[8], ("(combined from similar events): m11".to_owned(), 3, 9, 11));
        assert_eq!(lines[9], ("m3".to_owned(), 2, 3, 12));
        assert_eq!(lines[10], ("m99".to_owned(), 1, 13, 13));
    }

    #[test]
    fn after_ten_minutes_words_stand_for_themselves_again() {
        let mut clock = Clock::new();
        for second in 0..9 {
            clock.note(second, told("web", &format!("m{second}")));
        }
        clock.note(700, told("web", "new"));
        assert_eq!(clock.lines().last(), Some(&("new".to_owned(), 1, 700, 700)));
    }

    #[test]
    fn one_object_displaces_only_its_own_and_everything_has_a_bound() {
        let mut clock = Clock::new();
        clock.note(0, told("quiet", "here"));
        for second in 1..200 {
            clock.note(second * 700, told("loud", &format!("{second}")));
        }
        assert_eq!(clock.ring.events.len(), MOST_OF_ONE + 1);
        assert_eq!(clock.lines()[0].0, "here");
        let long = "x".repeat(1000);
        for pod in 0..2000 {
            clock.note(200_000, told(&pod.to_string(), &long));
        }
        let all: usize = clock.ring.events.iter().map(|record| record.told.text_bytes()).sum();
        assert_eq!(all, clock.ring.text_bytes);
        assert!(all <= MOST_BYTES && clock.ring.events.len() > 200, "{all} {}", clock.ring.events.len());
        for pod in 0..2000 {
            clock.note(200_001, told(&pod.to_string(), "x"));
        }
        assert_eq!(clock.ring.events.len(), MOST);
    }

    #[test]
    fn a_container_is_named_by_its_place_in_the_spec() {
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

    #[test]
    fn an_event_has_every_field_that_tools_read() {
        let mut ring = EventRing::default();
        let now = Time::from_unix_nanos(1_700_000_000_000_000_000);
        ring.note(told("web", "m"), now, Instant::now());
        let node = NodeEvent::new(EventKind::Warning, Reason::SYSTEM_OOM, "m");
        ring.note(Told::of_node("n", node), now, Instant::now());
        let events: Vec<_> = ring.events("n").map(|event| crate::api::encode(&event)).collect();
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
