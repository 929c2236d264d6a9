//! How a node comes to its object.

use serde_json::{Value, json};

use super::joined::{Joined, NODE, NODES, STATUS, condition};

/// As an API server has it of a node that was there before, with what others have put into it.
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

/// But for the one that an API server gives to every new node until a controller takes it away.
fn taints(node: &Value) -> Vec<Value> {
    let all = node["spec"]["taints"].as_array().unwrap();
    all.iter().filter(|taint| taint["key"] != "node.kubernetes.io/not-ready").cloned().collect()
}

#[test]
fn a_node_makes_its_object_with_one_request_and_is_ready() {
    let mut joined = Joined::new();
    joined.start("", &["--node-labels=example.com/a=b", "--register-with-taints=example.com/t=v:NoExecute"]);
    let node = joined.wait_until_ready();
    assert_eq!((joined.api.count("create", NODES), joined.api.count("patch", STATUS)), (1, 0));
    let labels = &node["metadata"]["labels"];
    assert_eq!((&labels["kubernetes.io/hostname"], &labels["example.com/a"]), (&json!("node-a"), &json!("b")));
    assert_eq!(taints(&node), [json!({ "key": "example.com/t", "value": "v", "effect": "NoExecute" })]);
    let kinds: Vec<&Value> =
        node["status"]["conditions"].as_array().unwrap().iter().map(|condition| &condition["type"]).collect();
    assert_eq!(kinds, ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]);
    assert!(node["status"].get("images").is_none());
}

#[test]
fn a_node_that_was_there_is_brought_in_order_and_what_others_wrote_stays() {
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
fn a_server_that_is_away_at_first_has_the_node_as_soon_as_it_is_back() {
    let mut joined = Joined::new();
    joined.api.on("create", NODES).answer(500).times(3);
    joined.start("", &[]);
    joined.wait_until_ready();
    assert_eq!(joined.api.count("create", NODES), 4);
}

#[test]
fn without_registration_somebody_else_makes_the_object() {
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
fn a_node_that_somebody_deletes_stays_deleted_until_the_agent_starts_anew() {
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
