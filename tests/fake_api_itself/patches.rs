//! The three kinds of PATCH.

use serde_json::{Value, json};

use super::client::Client;
use super::{WEB, node, pod, start};

/// Patches the status of a node that has the given status, and returns the result.
#[track_caller]
fn patched(status: Value, patch: Value) -> Value {
    let api = start();
    let mut object = node("n1");
    object["status"] = status;
    api.create(&object);
    let mut client = Client::node(&api, "n1");
    let answer = client.patch("strategic-merge", "/api/v1/nodes/n1/status", &json!({ "status": patch }));
    assert_eq!(answer.status, 200, "{}", answer.message());
    answer.json()["status"].clone()
}

#[test]
fn elements_with_a_merge_key_are_merged() {
    let ready = json!({ "type": "Ready", "status": "False", "reason": "Old" });
    let full = json!({ "type": "DiskPressure", "status": "False", "lastHeartbeatTime": "2026-01-01T00:00:00Z" });
    let patch = json!({ "conditions": [{ "type": "Ready", "status": "True", "reason": null }] });
    let conditions = patched(json!({ "conditions": [full, ready] }), patch)["conditions"].clone();
    assert_eq!(conditions[0]["lastHeartbeatTime"], full["lastHeartbeatTime"]);
    // Unset times are serialized as null.
    let merged = json!({ "type": "Ready", "status": "True", "lastHeartbeatTime": null, "lastTransitionTime": null });
    assert_eq!(conditions[1], merged);
}

#[test]
fn new_elements_come_first_unless_an_order_is_set() {
    let of = |types: &[&str]| types.iter().map(|t| json!({ "type": t, "status": "True" })).collect::<Vec<_>>();
    let types = |list: &Value| {
        let all = list["conditions"].as_array().unwrap();
        all.iter().map(|condition| condition["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let before = || json!({ "conditions": of(&["A", "B", "C"]) });
    assert_eq!(types(&patched(before(), json!({ "conditions": of(&["D", "B"]) }))), ["D", "A", "B", "C"]);
    let order = [json!({ "type": "A" }), json!({ "type": "B" }), json!({ "type": "C" }), json!({ "type": "D" })];
    let patch = json!({ "conditions": of(&["D"]), "$setElementOrder/conditions": order });
    assert_eq!(types(&patched(before(), patch)), ["A", "B", "C", "D"]);
    let order = [json!({ "type": "C" }), json!({ "type": "A" })];
    assert_eq!(types(&patched(before(), json!({ "$setElementOrder/conditions": order }))), ["B", "C", "A"]);
}

#[test]
fn directives_delete_elements_and_replace_lists() {
    let addresses = json!([{ "type": "InternalIP", "address": "10.0.0.1" }, { "type": "Hostname", "address": "a" }]);
    let delete = json!({ "addresses": [{ "$patch": "delete", "type": "Hostname" }] });
    let left = patched(json!({ "addresses": addresses }), delete);
    assert_eq!(left["addresses"], json!([{ "type": "InternalIP", "address": "10.0.0.1" }]));
    let replace = json!({ "addresses": [{ "$patch": "replace" }, { "type": "Hostname", "address": "b" }] });
    let left = patched(json!({ "addresses": addresses }), replace);
    assert_eq!(left["addresses"], json!([{ "type": "Hostname", "address": "b" }]));
    // Two addresses of one type have the same merge key.
    let images = json!([{ "names": ["a"] }, { "names": ["b"] }]);
    let left = patched(json!({ "images": images }), json!({ "images": [{ "names": ["c"] }] }));
    assert_eq!(left["images"], json!([{ "names": ["c"] }]));
    let left = patched(json!({ "capacity": { "cpu": "1", "memory": "2" } }), json!({ "capacity": { "cpu": null } }));
    assert_eq!(left["capacity"], json!({ "memory": "2" }));
}

#[test]
fn element_without_its_merge_key_is_an_error() {
    let api = start();
    api.create(&node("n1"));
    api.patch("/api/v1/nodes/n1/status", &json!({ "status": { "conditions": [{ "type": "Ready" }] } }));
    let mut client = Client::node(&api, "n1");
    let patch = json!({ "status": { "conditions": [{ "status": "True" }] } });
    let answer = client.patch("strategic-merge", "/api/v1/nodes/n1/status", &patch);
    assert_eq!(answer.status, 500);
    assert!(answer.message().contains("does not contain declared merge key: type"));
}

#[test]
fn retain_keys_and_delete_from_primitive_list_work() {
    let api = start();
    let mut object = pod("web", None);
    object["metadata"]["finalizers"] = json!(["a/a", "b/b"]);
    object["spec"]["volumes"] = json!([{ "name": "data", "emptyDir": {} }]);
    api.create(&object);
    let mut client = Client::admin(&api);
    let volume = json!({ "name": "data", "hostPath": { "path": "/x" }, "$retainKeys": ["name", "hostPath"] });
    let patch =
        json!({ "spec": { "volumes": [volume] }, "metadata": { "$deleteFromPrimitiveList/finalizers": ["a/a"] } });
    let object = client.patch("strategic-merge", WEB, &patch).json();
    assert_eq!(object["spec"]["volumes"], json!([{ "name": "data", "hostPath": { "path": "/x", "type": "" } }]));
    assert_eq!(object["metadata"]["finalizers"], json!(["b/b"]));
}

#[test]
fn merge_patch_replaces_lists_and_a_json_patch_runs_operations() {
    let api = start();
    let mut object = node("n1");
    object["metadata"]["labels"] = json!({ "a": "b" });
    api.create(&object);
    let mut client = Client::admin(&api);
    let path = "/api/v1/nodes/n1";
    let taints = json!({ "spec": { "taints": [{ "key": "a", "effect": "NoSchedule" }] } });
    assert_eq!(client.patch("merge", path, &taints).json()["spec"], taints["spec"]);
    let steps = json!([
        { "op": "test", "path": "/spec/taints/0/key", "value": "a" },
        { "op": "replace", "path": "/spec/taints/0/key", "value": "b" },
        { "op": "add", "path": "/metadata/labels/example.com~1x", "value": "y" }
    ]);
    let object = client.patch("json", path, &steps).json();
    assert_eq!(object["spec"]["taints"][0]["key"], "b");
    assert_eq!(object["metadata"]["labels"]["example.com/x"], "y");
    assert_eq!(client.patch("json", path, &steps).status, 422);
}

#[test]
fn patch_with_a_version_or_uid_applies_to_that_object_only() {
    let api = start();
    let object = api.create(&pod("web", Some("n1")));
    let mut client = Client::node(&api, "n1");
    let path = format!("{WEB}/status");
    let version = |version: &str| json!({ "metadata": { "resourceVersion": version }, "status": { "reason": "x" } });
    assert_eq!(client.patch("merge", &path, &version("1")).status, 409);
    let current = object["metadata"]["resourceVersion"].as_str().unwrap();
    assert_eq!(client.patch("merge", &path, &version(current)).status, 200);

    let uid = |uid: &str| json!({ "metadata": { "uid": uid }, "status": { "reason": "y" } });
    let own = object["metadata"]["uid"].as_str().unwrap();
    assert_eq!(client.patch("strategic-merge", &path, &uid(own)).status, 200);
    // Upstream notices a different UID when it validates the result.
    let answer = client.patch("strategic-merge", &path, &uid("former"));
    assert_eq!(answer.status, 422);
    assert_eq!(answer.message(), "Pod \"web\" is invalid: metadata.uid: Invalid value: \"former\": field is immutable");
}

#[test]
fn unknown_patch_type_is_refused() {
    let api = start();
    api.create(&node("n1"));
    let mut client = Client::admin(&api);
    assert_eq!(client.patch("other", "/api/v1/nodes/n1", &json!({})).status, 415);
}

#[test]
fn managed_fields_are_recorded_until_a_client_empties_them() {
    let api = start();
    api.create(&super::config_map("c", "a"));
    let path = "/api/v1/namespaces/default/configmaps/c";
    let recorded = |object: &Value| object["metadata"]["managedFields"].as_array().map_or(0, Vec::len);
    assert_eq!(recorded(&api.get(path).unwrap()), 1);
    let emptied = api.patch(path, &json!({ "metadata": { "managedFields": [{}] } }));
    assert_eq!(recorded(&emptied), 0);
    let changed = api.patch(path, &json!({ "data": { "key": "b" } }));
    assert_eq!((recorded(&changed), &changed["data"]["key"]), (0, &json!("b")));
}
