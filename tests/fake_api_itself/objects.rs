//! The effect and response of each verb.

use serde_json::json;

use super::client::Client;
use super::{PODS, WEB, config_map, node, pod, start};

#[test]
fn created_pod_has_the_servers_defaults_and_can_be_read() {
    let api = start();
    let mut client = Client::admin(&api);
    let answer = client.post(PODS, &pod("web", None));
    assert_eq!(answer.status, 201);
    let created = answer.json();
    let metadata = &created["metadata"];
    assert_eq!((&metadata["namespace"], &metadata["generation"]), (&json!("default"), &json!(1)));
    assert_eq!(metadata["uid"].as_str().unwrap().len(), 36);
    assert_eq!(metadata["creationTimestamp"].as_str().unwrap().len(), "2026-01-01T00:00:00Z".len());
    assert_eq!(created["status"], json!({ "phase": "Pending", "qosClass": "BestEffort" }));
    assert_eq!(created["spec"]["terminationGracePeriodSeconds"], 30);
    assert_eq!(created["spec"]["containers"][0]["imagePullPolicy"], "IfNotPresent");
    assert_eq!(client.get(WEB).json(), created);
}

#[test]
fn missing_and_existing_objects_cause_the_servers_errors() {
    let api = start();
    let mut client = Client::admin(&api);
    let answer = client.get(WEB);
    let status = answer.json();
    assert_eq!((answer.status, answer.message()), (404, "pods \"web\" not found".to_owned()));
    assert_eq!(
        (&status["reason"], &status["details"]),
        (&json!("NotFound"), &json!({ "name": "web", "kind": "pods" }))
    );

    client.post(PODS, &pod("web", None));
    let answer = client.post(PODS, &pod("web", None));
    assert_eq!((answer.status, answer.message()), (409, "pods \"web\" already exists".to_owned()));

    let answer = client.get("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1");
    assert_eq!(answer.message(), "leases.coordination.k8s.io \"n1\" not found");
    let answer = client.post("/api/v1/namespaces/nowhere/pods", &pod("web", None));
    assert_eq!((answer.status, answer.message()), (404, "namespaces \"nowhere\" not found".to_owned()));
}

#[test]
fn name_can_be_generated() {
    let api = start();
    let mut client = Client::admin(&api);
    let mut unnamed = pod("", None);
    unnamed["metadata"] = json!({ "generateName": "web-" });
    let first = client.post(PODS, &unnamed).json();
    let second = client.post(PODS, &unnamed).json();
    let name = first["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("web-") && name.len() == 9, "{name}");
    assert_ne!(first["metadata"]["name"], second["metadata"]["name"]);
    let answer = client.post(PODS, &pod("", None));
    assert_eq!(
        answer.message(),
        "Pod \"\" is invalid: metadata.name: Required value: name or generateName is required"
    );
}

#[test]
fn update_of_an_older_version_is_a_conflict() {
    let api = start();
    let mut client = Client::admin(&api);
    let path = "/api/v1/namespaces/default/configmaps/a";
    let first = api.create(&config_map("a", "1"));
    let mut changed = first.clone();
    changed["data"]["key"] = json!("2");
    let second = client.put(path, &changed);
    assert_eq!((second.status, &second.json()["data"]["key"]), (200, &json!("2")));
    let third = client.put(path, &changed);
    assert_eq!(third.status, 409);
    assert_eq!(
        third.message(),
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to \
         the latest version and try again"
    );
    let mut again = second.json();
    again["data"]["key"] = json!("2b");
    let answer = api.update(&again);
    assert_eq!(answer["data"]["key"], "2b");
    // An update without a version always succeeds.
    assert_eq!(client.put(path, &config_map("a", "3")).status, 200);
}

#[test]
fn write_without_changes_creates_no_version() {
    let api = start();
    let mut client = Client::admin(&api);
    let object = api.create(&config_map("a", "1"));
    let answer = client.put("/api/v1/namespaces/default/configmaps/a", &object);
    assert_eq!(answer.json()["metadata"]["resourceVersion"], object["metadata"]["resourceVersion"]);
}

#[test]
fn put_creates_a_lease_and_later_requires_a_version() {
    let api = start();
    let mut client = Client::node(&api, "n1");
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1";
    let mut lease = json!({ "metadata": { "name": "n1" }, "spec": { "leaseDurationSeconds": 40 } });
    let created = client.put(path, &lease);
    assert_eq!(created.status, 201);
    let answer = client.put(path, &lease);
    assert_eq!(answer.status, 422);
    assert_eq!(
        answer.message(),
        "leases.coordination.k8s.io \"n1\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for \
         an update"
    );
    lease["metadata"]["resourceVersion"] = created.json()["metadata"]["resourceVersion"].clone();
    lease["spec"]["renewTime"] = json!("2026-01-01T00:00:00.000000Z");
    assert_eq!(client.put(path, &lease).status, 200);
}

#[test]
fn update_with_another_uid_is_a_conflict() {
    let api = start();
    let mut client = Client::admin(&api);
    let mut object = api.create(&config_map("a", "1"));
    object["metadata"]["uid"] = json!("former");
    let answer = client.put("/api/v1/namespaces/default/configmaps/a", &object);
    assert_eq!(answer.status, 409);
    assert!(answer.message().contains("Precondition failed: UID in precondition: former, UID in object meta: "));
}

#[test]
fn status_and_spec_do_not_change_each_other() {
    let api = start();
    let mut client = Client::admin(&api);
    let mut object = api.create(&node("n1"));
    object["status"] = json!({ "capacity": { "cpu": "4" } });
    object["spec"] = json!({ "podCIDR": "10.0.0.0/24" });
    let both = client.put("/api/v1/nodes/n1/status", &object).json();
    assert_eq!((&both["status"]["capacity"]["cpu"], &both["spec"]["podCIDR"]), (&json!("4"), &json!(null)));
    object["metadata"] = both["metadata"].clone();
    object["status"] = json!({});
    let both = client.put("/api/v1/nodes/n1", &object).json();
    assert_eq!((&both["status"]["capacity"]["cpu"], &both["spec"]["podCIDR"]), (&json!("4"), &json!("10.0.0.0/24")));
}

#[test]
fn only_a_spec_change_increments_the_generation() {
    let api = start();
    api.create(&pod("web", Some("n1")));
    let changed = api.patch(WEB, &json!({ "spec": { "activeDeadlineSeconds": 5 } }));
    assert_eq!(changed["metadata"]["generation"], 2);
    let changed = api.patch(&format!("{WEB}/status"), &json!({ "status": { "phase": "Running" } }));
    assert_eq!((&changed["metadata"]["generation"], &changed["status"]["phase"]), (&json!(2), &json!("Running")));
}

#[test]
fn terminated_container_cannot_be_reported_running() {
    let api = start();
    let mut once = pod("web", Some("n1"));
    once["spec"]["restartPolicy"] = json!("Never");
    api.create(&once);
    let status = |state| json!({ "status": { "containerStatuses": [{ "name": "main", "state": state }] } });
    let ended = json!({ "terminated": { "exitCode": 0 } });
    api.patch(&format!("{WEB}/status"), &status(ended));
    let mut client = Client::node(&api, "n1");
    let running = status(json!({ "terminated": null, "running": {} }));
    let answer = client.patch("strategic-merge", &format!("{WEB}/status"), &running);
    assert_eq!(
        answer.message(),
        "Pod \"web\" is invalid: status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated \
         state"
    );
}

#[test]
fn managed_fields_match_the_servers() {
    let api = start();
    let mut object = node("n1");
    object["metadata"]["labels"] = json!({ "kubernetes.io/os": "linux" });
    api.create(&object);
    let mut client = Client::node(&api, "n1");
    let condition = json!({ "type": "Ready", "status": "True" });
    let status = json!({ "status": { "conditions": [condition] }, "metadata": { "labels": { "a": "b" } } });
    let object = client.patch("strategic-merge", "/api/v1/nodes/n1/status", &status).json();
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let of_kubelet = entries.iter().find(|entry| entry["manager"] == "kubelet").unwrap();
    assert_eq!((&of_kubelet["operation"], &of_kubelet["subresource"]), (&json!("Update"), &json!("status")));
    assert_eq!(
        of_kubelet["fieldsV1"]["f:status"]["f:conditions"],
        json!({
            ".": {},
            "k:{\"type\":\"Ready\"}": {
                ".": {}, "f:lastHeartbeatTime": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {}
            }
        })
    );
    assert_eq!(of_kubelet["fieldsV1"]["f:metadata"]["f:labels"], json!({ "f:a": {} }));
    // Another writer of a field becomes its owner.
    let object = api.patch("/api/v1/nodes/n1", &json!({ "metadata": { "labels": { "a": "c" } } }));
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let of_kubelet = entries.iter().find(|entry| entry["manager"] == "kubelet").unwrap();
    assert_eq!(of_kubelet["fieldsV1"]["f:metadata"], json!(null));
}

#[test]
fn both_event_groups_show_the_same_objects() {
    let api = start();
    let mut client = Client::admin(&api);
    let event = json!({
        "metadata": { "name": "e1" }, "involvedObject": { "kind": "Pod", "name": "web" }, "message": "hello", "count": 1
    });
    client.post("/api/v1/namespaces/default/events", &event);
    let new = client.get("/apis/events.k8s.io/v1/namespaces/default/events/e1").json();
    assert_eq!((&new["regarding"]["name"], &new["note"]), (&json!("web"), &json!("hello")));
    assert_eq!((&new["apiVersion"], &new["deprecatedCount"]), (&json!("events.k8s.io/v1"), &json!(1)));
    let list = client.get("/api/v1/events?fieldSelector=involvedObject.name%3Dweb").json();
    assert_eq!(list["items"][0]["message"], "hello");
}

/// kube-apiserver encodes with Go's `encoding/json`, which escapes for HTML.
#[test]
fn content_has_the_escapes_of_go() {
    let api = start();
    let mut client = Client::admin(&api);
    let object = config_map("a", "<&>\u{2028}\u{2029}");
    let escaped = br"\u003c\u0026\u003e\u2028\u2029";
    let has = |text: &[u8]| text.windows(escaped.len()).any(|part| part == escaped);
    let answer = client.post("/api/v1/namespaces/default/configmaps", &object);
    assert!(has(&answer.body));
    assert_eq!(answer.json()["data"], object["data"]);
    client.watch("/api/v1/configmaps?watch=true&fieldSelector=metadata.name%3Da");
    assert!(has(&client.chunk().unwrap().unwrap()));
}
