//! Tests of the fake API server against the behaviour of kube-apiserver.

mod client;
mod credentials;
mod deletions;
mod faults;
mod furniture;
mod http2;
mod limits;
mod lists;
mod nodes;
mod objects;
mod patches;
mod reviews;
mod watches;
mod wire;

use serde_json::{Value, json};

use crate::fake_api::{FakeApi, Options};

const PODS: &str = "/api/v1/namespaces/default/pods";
const WEB: &str = "/api/v1/namespaces/default/pods/web";

fn start() -> FakeApi {
    FakeApi::start(Options::default())
}

/// A pod of one container, optionally on a node.
fn pod(name: &str, node: Option<&str>) -> Value {
    let mut spec = json!({ "containers": [{ "name": "main", "image": "nginx:1.27" }] });
    if let Some(node) = node {
        spec["nodeName"] = json!(node);
    }
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": spec })
}

fn config_map(name: &str, value: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "key": value } })
}

fn node(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": {} }, "status": {} })
}
