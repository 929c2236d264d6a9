//! Events, as the API server receives them.

use std::time::Duration;

use jiff::Timestamp;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::joined::Joined;
use super::node::{Manifest, NODE_NAME};
use crate::fake_api::FakeApi;
use crate::fake_api::world::Network;

const EVENTS: &str = "/api/v1/namespaces/default/events";

fn all(api: &FakeApi) -> Vec<Value> {
    api.look(|world| world.list("/api/v1/events").into_iter().map(|event| Value::clone(&event)).collect())
}

#[track_caller]
fn wait_for(api: &FakeApi, reason: &str) -> Value {
    api.wait_for(reason, |world| world.list("/api/v1/events").iter().any(|event| event["reason"] == reason));
    all(api).into_iter().find(|event| event["reason"] == reason).unwrap()
}

#[test]
fn pod_and_node_events_are_reported() {
    let mut joined = Joined::new();
    joined.node.apply(&Manifest::new("web").container("main", ""));
    joined.start("", &[]);
    let started = wait_for(&joined.api, "Started");
    let object = &started["involvedObject"];
    assert_eq!((&object["name"], &object["namespace"]), (&json!("web-node-a"), &json!("default")));
    assert!(object["fieldPath"].as_str().unwrap().starts_with("spec.containers{"), "{object}");
    assert_eq!(started["source"], json!({ "component": "kubelet", "host": NODE_NAME }));
    assert_eq!((&started["count"], &started["type"]), (&json!(1), &json!("Normal")));
    let starting = wait_for(&joined.api, "Starting");
    assert_eq!(starting["involvedObject"], json!({ "kind": "Node", "name": NODE_NAME, "uid": NODE_NAME }));
    assert_eq!(starting["metadata"]["namespace"], "default");
}

#[test]
fn events_of_an_outage_are_reported_once_afterwards() {
    let mut joined = Joined::new();
    joined.api.set_network(Network::Refused);
    joined.node.apply(&Manifest::new("web").container("main", ""));
    joined.start("", &[]);
    joined.node.wait_until_ready("web");
    joined.api.set_network(Network::Open);
    wait_for(&joined.api, "Started");
    // MissingClusterDNS is an event of the pod and of the node, as upstream.
    let kind_and_reason = |event: &Value| format!("{} {}", event["involvedObject"]["kind"], event["reason"]);
    let mut seen: Vec<String> = all(&joined.api).iter().map(kind_and_reason).collect();
    let before = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), before, "{seen:?}");
}

#[test]
fn events_of_an_outage_survive_a_restart_of_the_agent() {
    let mut joined = Joined::new();
    joined.api.set_network(Network::Refused);
    joined.node.apply(&Manifest::new("web").container("main", ""));
    joined.start("", &[]);
    joined.node.wait_until_ready("web");
    joined.node.signal(Signal::SIGTERM);
    joined.node.wait_for_the_agents_end();
    let ended = Timestamp::now();
    // Times have whole seconds.
    std::thread::sleep(Duration::from_secs(2));
    joined.api.set_network(Network::Open);
    joined.start("", &[]);
    let started = wait_for(&joined.api, "Started");
    let time: Timestamp = started["firstTimestamp"].as_str().unwrap().parse().unwrap();
    assert!(time <= ended, "{time} {ended}");
    joined.api.wait_for("both starts of the agent", |world| {
        world.list("/api/v1/events").iter().any(|event| event["reason"] == "Starting" && event["count"] == 2)
    });
}

#[test]
fn event_with_a_lost_response_is_recorded_once() {
    let mut joined = Joined::new();
    joined.api.on("create", EVENTS).cut_after_effect().times(1);
    joined.start("", &[]);
    joined.api.wait_for_requests("create", EVENTS, 2);
    wait_for(&joined.api, "Starting");
    assert_eq!(all(&joined.api).iter().filter(|event| event["reason"] == "Starting").count(), 1);
}
