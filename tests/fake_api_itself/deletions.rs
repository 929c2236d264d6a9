//! DELETE, immediate and graceful.

use serde_json::json;

use super::client::Client;
use super::{WEB, config_map, pod, start};

#[test]
fn pod_on_a_node_stays_until_its_kubelet_removes_it() {
    let api = start();
    let object = api.create(&pod("web", Some("n1")));
    let mut client = Client::admin(&api);
    let answer = client.delete(WEB, &json!({ "gracePeriodSeconds": 7 }));
    let marked = answer.json();
    assert_eq!((answer.status, &marked["metadata"]["deletionGracePeriodSeconds"]), (200, &json!(7)));
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(marked["metadata"]["generation"], 2);
    // A request may only shorten the grace period.
    let longer = client.delete(WEB, &json!({ "gracePeriodSeconds": 9 })).json();
    assert_eq!(longer["metadata"]["deletionGracePeriodSeconds"], 7);
    let shorter = client.delete(WEB, &json!({ "gracePeriodSeconds": 3 })).json();
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 3);

    let mut kubelet = Client::node(&api, "n1");
    let uid = object["metadata"]["uid"].clone();
    let answer = kubelet.delete(WEB, &json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": uid } }));
    assert_eq!((answer.status, &answer.json()["kind"]), (200, &json!("Pod")));
    assert_eq!(kubelet.delete(WEB, &json!({})).status, 404);
}

#[test]
fn default_grace_period_is_the_pods_own() {
    let api = start();
    let mut object = pod("web", Some("n1"));
    object["spec"]["terminationGracePeriodSeconds"] = json!(12);
    api.create(&object);
    api.delete(WEB);
    assert_eq!(api.get(WEB).unwrap()["metadata"]["deletionGracePeriodSeconds"], 12);
    api.delete_with_grace(WEB, 0);
    assert_eq!(api.get(WEB), None);
}

#[test]
fn unscheduled_or_terminated_pod_is_removed_at_once() {
    let api = start();
    api.create(&pod("web", None));
    api.delete(WEB);
    assert_eq!(api.get(WEB), None);
    api.create(&pod("web", Some("n1")));
    api.patch(&format!("{WEB}/status"), &json!({ "status": { "phase": "Succeeded" } }));
    api.delete(WEB);
    api.wait_gone(WEB);
}

#[test]
fn preconditions_are_checked() {
    let api = start();
    let object = api.create(&pod("web", Some("n1")));
    let mut client = Client::node(&api, "n1");
    let answer = client.delete(WEB, &json!({ "preconditions": { "uid": "former" } }));
    let uid = object["metadata"]["uid"].as_str().unwrap();
    assert_eq!(answer.status, 409);
    assert_eq!(
        answer.message(),
        format!(
            "Operation cannot be fulfilled on Pod \"web\": the UID in the precondition (former) does not match the UID in \
             record ({uid}). The object might have been deleted and then recreated"
        )
    );
    let answer = client.delete(WEB, &json!({ "preconditions": { "resourceVersion": "1" } }));
    assert_eq!(answer.status, 409);
}

#[test]
fn other_objects_are_removed_at_once_with_a_status() {
    let api = start();
    let object = api.create(&config_map("a", "1"));
    let mut client = Client::admin(&api);
    let answer = client.delete("/api/v1/namespaces/default/configmaps/a", &json!({})).json();
    let details = json!({ "name": "a", "kind": "configmaps", "uid": object["metadata"]["uid"] });
    assert_eq!((&answer["status"], &answer["details"]), (&json!("Success"), &details));
}

#[test]
fn object_with_finalizers_stays_until_they_are_removed() {
    let api = start();
    let path = "/api/v1/namespaces/default/configmaps/a";
    let mut object = config_map("a", "1");
    object["metadata"]["finalizers"] = json!(["example.com/x"]);
    api.create(&object);
    api.delete(path);
    assert!(api.get(path).unwrap()["metadata"]["deletionTimestamp"].is_string());
    api.patch(path, &json!({ "metadata": { "finalizers": null } }));
    assert_eq!(api.get(path), None);
}

#[test]
fn eviction_deletes() {
    let api = start();
    api.create(&pod("web", Some("n1")));
    let mut client = Client::admin(&api);
    let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "web" } });
    assert_eq!(client.post(&format!("{WEB}/eviction"), &eviction).status, 201);
    assert!(api.get(WEB).unwrap()["metadata"]["deletionTimestamp"].is_string());
}

#[test]
fn lost_object_causes_no_event() {
    let api = start();
    api.create(&pod("web", Some("n1")));
    let mut client = Client::admin(&api);
    client.watch("/api/v1/pods?watch=true");
    assert_eq!(client.event().unwrap().0, "ADDED");
    api.lose(WEB);
    api.create(&pod("other", None));
    assert_eq!(client.event().unwrap().1["metadata"]["name"], "other");
}
