//! Node registration.

use serde_json::{Value, json};

use super::joined::{Joined, NODE, NODES, STATUS, condition};
use crate::fake_api::world::Network;

/// A Node object from an earlier registration, with additions of other clients.
fn earlier() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": "node-a",
            "labels": { "kubernetes.io/hostname": "another", "example.com/theirs": "x" },
            "annotations": { "example.com/theirs": "x" },
        },
        "spec": { "taints": [{ "key": "example.com/theirs", "effect": "NoSchedule" }], "podCIDR": "10.0.0.0/24" },
        "status": {
            "capacity": { "example.com/gpu": "2" },
            "nodeInfo": { "bootID": "another" },
            "conditions": [{ "type": "NetworkUnavailable", "status": "False", "reason": "x" }],
        },
    })
}

/// The taints, without the one that an API server gives every new node until a controller removes it.
fn taints(node: &Value) -> Vec<Value> {
    let all = node["spec"]["taints"].as_array().unwrap();
    all.iter().filter(|taint| taint["key"] != "node.kubernetes.io/not-ready").cloned().collect()
}

#[test]
fn node_registers_with_one_request_and_becomes_ready() {
    let mut joined = Joined::new();
    joined.start("", &["--node-labels=example.com/a=b", "--register-with-taints=example.com/t=v:NoExecute"]);
    let node = joined.wait_until_ready();
    assert_eq!((joined.api.count("create", NODES), joined.api.count("patch", STATUS)), (1, 0));
    let labels = &node["metadata"]["labels"];
    assert_eq!((&labels["kubernetes.io/hostname"], &labels["example.com/a"]), (&json!("node-a"), &json!("b")));
    assert_eq!(taints(&node), [json!({ "key": "example.com/t", "value": "v", "effect": "NoExecute" })]);
    let kinds: Vec<&Value> =
        node["status"]["conditions"].as_array().unwrap().iter().map(|condition| &condition["type"]).collect();
    // A board with sensors has conditions of its own before the last one.
    assert_eq!(kinds[..3], ["MemoryPressure", "DiskPressure", "PIDPressure"]);
    assert_eq!(kinds[kinds.len() - 1], "Ready");
    assert!(node["status"].get("images").is_none());
}

#[test]
fn existing_node_is_reconciled_and_foreign_fields_stay() {
    let mut joined = Joined::new();
    joined.api.create(&earlier());
    joined.start("", &["--register-with-taints=example.com/late:NoExecute"]);
    let node = joined.wait_until_ready();
    assert_eq!(joined.api.count("create", NODES), 0);
    let metadata = &node["metadata"];
    assert_eq!(metadata["labels"]["kubernetes.io/hostname"], "node-a");
    assert_eq!(metadata["labels"]["example.com/theirs"], "x");
    assert_eq!(metadata["annotations"]["example.com/theirs"], "x");
    assert_eq!(metadata["annotations"]["volumes.kubernetes.io/controller-managed-attach-detach"], "true");
    assert_eq!(taints(&node).len(), 1, "a taint is for the first registration");
    assert_eq!(node["status"]["capacity"]["example.com/gpu"], "0");
    assert_eq!(condition(&node, "NetworkUnavailable")["reason"], "x");
}

#[test]
fn node_registers_as_soon_as_the_server_is_reachable() {
    let mut joined = Joined::new();
    joined.api.on("create", NODES).answer(500).times(3);
    joined.start("", &[]);
    joined.wait_until_ready();
    assert_eq!(joined.api.count("create", NODES), 4);
}

#[test]
fn without_register_node_the_agent_waits_for_the_object() {
    let mut joined = Joined::new();
    joined.start("registerNode: false\n", &[]);
    joined.api.wait_for_watches(NODES, 1);
    assert!(joined.api.get(NODE).is_none());
    joined.api.create(&earlier());
    let node = joined.wait_until_ready();
    assert_eq!(joined.api.count("create", NODES), 0);
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "another");
}

#[test]
fn deleted_node_is_not_recreated_until_the_agent_restarts() {
    let mut joined = Joined::new();
    joined.start("", &[]);
    joined.wait_until_ready();
    joined.api.delete(NODE);
    joined.node.wait_until("the agent has heard of it", |_| joined.node.log().contains("object was deleted"));
    assert_eq!(joined.api.count("create", NODES), 1);
    joined.node.kill_agent();
    joined.start("", &[]);
    joined.wait_until_ready();
}

#[test]
fn node_that_was_deleted_during_an_outage_registers_again() {
    let mut joined = Joined::new();
    joined.start("nodeLeaseDurationSeconds: 4\n", &[]);
    joined.wait_until_ready();
    joined.api.set_network(Network::Refused);
    joined.api.delete(NODE);
    joined.api.set_network(Network::Open);
    joined.wait_until_ready();
    assert_eq!(joined.api.count("create", NODES), 2);
}

#[test]
fn refused_request_is_sent_again_after_the_time_that_the_server_wants() {
    let mut joined = Joined::new();
    joined.api.on("create", NODES).answer(429).times(1);
    joined.start("", &[]);
    joined.wait_until_ready();
    let metrics = joined.metrics();
    let retried = |line: &&str| line.starts_with("rest_client_request_retries_total{code=\"429\"");
    assert!(metrics.lines().find(retried).is_some_and(|line| line.contains("verb=\"POST\"")), "{metrics}");
}
