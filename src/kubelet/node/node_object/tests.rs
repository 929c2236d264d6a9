//! Requests to API servers that accept, refuse or drop what is sent.

use serde_json::json;

use super::*;
use crate::kubelet::node::RuntimeHealth;
use crate::kubelet::node::profile::tests::profile;
use crate::state::pods::RuntimeState;
use crate::types::api::{Taint, Time, decode};

const MINUTE: Duration = Duration::from_secs(60);

/// A node with its observations and its own clock.
struct Case {
    own: NodeObjectState,
    runtime: RuntimeHealth,
    now: Instant,
    seconds: i64,
    shuts_down: bool,
}

impl Case {
    fn new() -> Self {
        Self::of(true)
    }

    fn of(registers: bool) -> Self {
        let now = Instant::now();
        let mut runtime = RuntimeHealth::default();
        let name = "r".to_owned();
        let ready = RuntimeState { name, ready: true, network_ready: true, ..RuntimeState::default() };
        runtime.note(ready, now);
        let own = NodeObjectState::new(profile(|_, _| {}), registers, 5 * MINUTE, now);
        Self { own, runtime, now, seconds: 1000, shuts_down: false }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.seconds += i64::try_from(time.as_secs()).unwrap();
    }

    fn next(&mut self) -> NodeStep {
        let sight = NodeObservation {
            board: None,
            volumes_in_use: &[],
            devices: &Default::default(),
            pressures: &[],
            runtime: &self.runtime,
            addresses: &[],
            images: &[],
            shuts_down: self.shuts_down,
            now: Time::from_unix_nanos(self.seconds * 1_000_000_000),
            instant: self.now,
        };
        self.own.next(&sight)
    }

    fn done(&mut self, outcome: Outcome) {
        self.own.done(outcome, self.now, 0);
    }

    /// The server creates the object as requested.
    fn create(&mut self) -> Node {
        let NodeStep::Create(node) = self.next() else { panic!("nothing to create") };
        let mut node: Node = decode(node).unwrap().value;
        node.metadata.uid = "u1".into();
        self.done(Outcome::Seen(Box::new(node.clone())));
        node
    }

    #[track_caller]
    fn patch(&mut self) -> Value {
        match self.next() {
            NodeStep::Patch(body) => body,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn assert_waits(&mut self) -> Option<Duration> {
        match self.next() {
            NodeStep::Wait(time) => time.map(|moment| moment - self.now),
            other => panic!("{other:?}"),
        }
    }

    fn events(&mut self) -> Vec<String> {
        self.own.take_events().into_iter().map(|event| event.reason.to_string()).collect()
    }
}

/// A registered node whose status was just reported.
fn registered() -> (Case, Node) {
    let mut case = Case::new();
    case.own.on_list(None);
    let node = case.create();
    (case, node)
}

fn ready(body: &Value) -> &Value {
    let conditions = body["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|condition| condition["type"] == "Ready").unwrap()
}

#[test]
fn absent_node_is_created_and_reported_every_five_minutes() {
    let mut case = Case::new();
    assert_eq!(case.assert_waits(), None, "no list has arrived yet");
    case.own.on_list(None);
    let node = case.create();
    // The watch reports the created object.
    case.own.on_server_object(node);
    assert_eq!(case.assert_waits(), Some(5 * MINUTE / 2));
    for wait in [5 * MINUTE / 2, 5 * MINUTE, 5 * MINUTE] {
        assert_eq!(case.assert_waits(), Some(wait));
        case.pass(wait);
        let body = case.patch();
        assert_eq!(ready(&body).as_object().unwrap().len(), 2, "{body}");
        case.done(Outcome::Patched);
    }
    assert!(case.events().is_empty());
}

#[test]
fn registration_is_retried_forever_with_backoff() {
    let mut case = Case::new();
    case.own.on_list(None);
    let mut waits = Vec::new();
    for _ in 0..9 {
        assert!(matches!(case.next(), NodeStep::Create(_)));
        case.done(Outcome::Failed { is_retryable: true });
        let wait = case.assert_waits().unwrap();
        waits.push(u64::try_from(wait.as_millis()).unwrap());
        case.pass(wait);
    }
    assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 6400, 7000, 7000]);
}

#[test]
fn existing_node_is_reconciled_and_foreign_fields_stay() {
    let mut case = Case::new();
    let mut node = registered().1;
    node.metadata.labels.remove("kubernetes.io/hostname");
    node.metadata.labels.insert("theirs", "x".to_owned());
    node.spec.taints = vec![Taint { key: "theirs".to_owned(), ..Taint::default() }];
    node.status.capacity.insert("example.com/gpu", "2".parse().unwrap());
    node.status.node_info.boot_id = "another".to_owned();
    case.own.on_list(Some(node.clone()));
    let body = case.patch();
    assert_eq!(body["metadata"], json!({ "labels": { "kubernetes.io/hostname": "n" } }));
    assert_eq!(body["status"]["capacity"], json!({ "example.com/gpu": "0" }));
    assert_eq!(body["status"]["nodeInfo"], json!({ "bootID": "boot" }));
    assert_eq!(case.events(), ["Rebooted"]);
    case.done(Outcome::Failed { is_retryable: true });
    case.pass(MINUTE);
    assert_eq!(case.patch()["status"]["capacity"], body["status"]["capacity"]);
    case.done(Outcome::Patched);
    // A stale object with an old boot id does not count as another reboot.
    case.own.on_server_object(node);
    assert!(case.events().is_empty());
    let server = case.own.server().unwrap();
    assert_eq!(server.metadata.labels.get("theirs").map(String::as_str), Some("x"));
}

#[test]
fn forbidden_registration_looks_for_an_existing_node() {
    let mut case = Case::new();
    case.own.on_list(None);
    assert!(matches!(case.next(), NodeStep::Create(_)));
    case.done(Outcome::Exists);
    case.pass(MINUTE);
    assert_eq!(case.next(), NodeStep::Get);
    case.done(Outcome::NotFound);
    case.pass(MINUTE);
    assert!(matches!(case.next(), NodeStep::Create(_)));
    case.done(Outcome::Exists);
    case.pass(MINUTE);
    assert_eq!(case.next(), NodeStep::Get);
    case.done(Outcome::Seen(Box::default()));
    assert!(case.patch().pointer("/metadata/annotations").is_some(), "it is reconciled");
}

#[test]
fn without_registration_the_node_waits_and_keeps_its_labels() {
    let mut case = Case::of(false);
    case.own.on_list(None);
    assert_eq!(case.assert_waits(), None);
    case.own.on_server_object(Node::default());
    let body = case.patch();
    assert_eq!(body["metadata"]["labels"].as_object().unwrap().len(), 2);
    assert!(body["metadata"].get("annotations").is_none());
}

#[test]
fn change_is_reported_at_once_with_one_event() {
    let (mut case, node) = registered();
    case.pass(MINUTE);
    case.own.on_server_object(node);
    assert!(matches!(case.next(), NodeStep::Wait(_)));
    case.shuts_down = true;
    let body = case.patch();
    assert_eq!(ready(&body)["message"], "node is shutting down");
    assert_eq!(case.events(), ["NodeNotReady"]);
    case.done(Outcome::Failed { is_retryable: true });
    case.pass(MINUTE);
    assert_eq!(ready(&case.patch())["status"], "False");
    assert!(case.events().is_empty(), "the event was sent already");
    case.done(Outcome::Patched);
    assert!(matches!(case.next(), NodeStep::Wait(_)));
    case.shuts_down = false;
    assert_eq!(ready(&case.patch())["reason"], "KubeletReady");
    assert_eq!(case.events(), ["NodeReady"]);
}

#[test]
fn change_that_a_restored_server_has_lost_is_reported_again() {
    let (mut case, node) = registered();
    case.pass(MINUTE);
    case.shuts_down = true;
    case.patch();
    case.done(Outcome::Patched);
    case.own.on_server_object(node.clone());
    assert!(matches!(case.next(), NodeStep::Wait(_)), "a server that drops a field is not sent it again");
    case.own.on_list(Some(node));
    case.pass(MINUTE);
    assert_eq!(ready(&case.patch())["message"], "node is shutting down");
}

#[test]
fn flapping_condition_is_rate_limited() {
    let (mut case, _) = registered();
    let mut sent = 0;
    for second in 0..120 {
        case.shuts_down = second % 2 == 0;
        if matches!(case.next(), NodeStep::Patch(_)) {
            sent += 1;
            case.done(Outcome::Patched);
        }
        case.pass(Duration::from_secs(1));
    }
    assert!((10..=20).contains(&sent), "{sent} in two minutes");
}

#[test]
fn dropped_field_is_not_sent_with_every_change() {
    let (mut case, node) = registered();
    let mut old = node.clone();
    old.status.declared_features.clear();
    case.own.on_server_object(old.clone());
    case.pass(Duration::from_secs(1));
    assert_eq!(case.patch()["status"].as_object().unwrap().len(), 2);
    case.done(Outcome::Patched);
    for _ in 0..3 {
        case.own.on_server_object(old.clone());
        assert!(matches!(case.next(), NodeStep::Wait(Some(_))));
    }
    case.pass(10 * MINUTE);
    assert!(case.patch()["status"].get("declaredFeatures").is_some(), "the next report has it");
}

#[test]
fn refused_patch_is_retried_with_growing_backoff() {
    let (mut case, _) = registered();
    case.shuts_down = true;
    let mut waits = Vec::new();
    for _ in 0..7 {
        assert_eq!(ready(&case.patch())["status"], "False");
        case.done(Outcome::Failed { is_retryable: false });
        let wait = case.assert_waits().unwrap();
        waits.push(wait.as_secs());
        case.pass(wait.max(MINUTE));
    }
    assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300]);
}

#[test]
fn node_registers_again_only_if_missing_after_an_outage() {
    let (mut case, node) = registered();
    case.own.on_list(None);
    assert!(matches!(case.next(), NodeStep::Create(_)));
    let again = Node { metadata: crate::types::api::ObjectMeta { uid: "u2".into(), ..node.metadata.clone() }, ..node };
    case.done(Outcome::Seen(Box::new(again.clone())));
    case.own.on_deletion();
    case.own.on_list(None);
    assert_eq!(case.assert_waits(), None);
    assert!(case.own.server().is_none());
    case.own.on_server_object(again);
    assert!(case.own.server().is_some());
}

#[test]
fn registration_waits_briefly_for_the_runtime() {
    let mut case = Case::new();
    case.runtime = RuntimeHealth::default();
    case.own.on_list(None);
    assert_eq!(case.assert_waits(), Some(FIRST_RUNTIME_WAIT));
    case.pass(FIRST_RUNTIME_WAIT);
    let NodeStep::Create(node) = case.next() else { panic!("no registration without a runtime") };
    assert_eq!(ready(&node)["status"], "False");
}

#[test]
fn cordoning_sends_an_event() {
    let (mut case, mut node) = registered();
    for (unschedulable, event) in [(true, "NodeNotSchedulable"), (false, "NodeSchedulable")] {
        node.spec.unschedulable = unschedulable;
        case.own.on_server_object(node.clone());
        case.own.on_server_object(node.clone());
        assert_eq!(case.events(), [event]);
        assert!(matches!(case.next(), NodeStep::Wait(_)), "no patch is needed");
    }
}

#[test]
fn runtime_outage_is_reported_once_it_has_lasted() {
    let (mut case, _) = registered();
    case.runtime.note(RuntimeState::default(), case.now);
    let wait = case.assert_waits().unwrap();
    assert_eq!(wait, Duration::from_secs(30));
    case.pass(wait);
    assert_eq!(ready(&case.patch())["message"], "container runtime is down");
}
