//! Contents and timing of the node status.

use std::fs;

use serde_json::json;

use super::joined::{Joined, NODE, STATUS, condition};

#[test]
fn unchanged_node_sends_only_its_lease() {
    let mut joined = Joined::new();
    joined.start("nodeStatusReportFrequency: 1s\n", &[]);
    joined.wait_until_ready();
    joined.api.wait_for_requests("patch", STATUS, 3);
    for request in joined.api.requests_of("patch", STATUS) {
        let body = request.json();
        assert_eq!(body.as_object().unwrap().len(), 1, "{body}");
        let conditions = body["status"]["conditions"].as_array().unwrap();
        assert!(conditions.iter().all(|condition| condition.as_object().unwrap().len() == 2), "{body}");
        assert!(request.header("accept").contains("as=PartialObjectMetadata"));
    }
}

#[test]
fn network_failure_is_reported_at_once_with_an_event() {
    let mut joined = Joined::new();
    joined.start("", &[]);
    let ready = joined.wait_until_ready();
    assert_eq!(joined.api.count("patch", STATUS), 0);
    joined.node.fake.set_network_ready(false);
    joined.node.fake.cut_connections();
    let node = joined.api.wait(NODE, "the node not to be ready", |node| condition(node, "Ready")["status"] == "False");
    let message = condition(&node, "Ready")["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("container runtime network not ready: NetworkReady=false reason:"), "{message}");
    let transition = |node, kind| condition(node, kind)["lastTransitionTime"].clone();
    assert_eq!(transition(&node, "DiskPressure"), transition(&ready, "DiskPressure"));
    joined.api.wait_for("its event", |world| {
        world.list("/api/v1/events").iter().any(|event| event["reason"] == "NodeNotReady")
    });
}

#[test]
fn field_dropped_by_the_server_is_not_sent_repeatedly() {
    let mut joined = Joined::new();
    joined.start("", &[]);
    joined.wait_until_ready();
    joined.api.wait_for_watches("/api/v1/nodes", 1);
    for _ in 0..3 {
        joined.api.patch(STATUS, &json!({ "status": { "declaredFeatures": null } }));
    }
    joined.api.wait_for_requests("patch", STATUS, 1);
    joined.api.patch(NODE, &json!({ "spec": { "unschedulable": true } }));
    joined.api.wait_for("the agent to have seen all of that", |world| {
        world.list("/api/v1/events").iter().any(|event| event["reason"] == "NodeNotSchedulable")
    });
    assert!(joined.api.count("patch", STATUS) <= 4);
}

#[test]
fn look_ups_of_the_api_servers_name_are_timed() {
    let mut joined = Joined::new();
    let file = joined.node.folder().join("kubeconfig");
    let (url, named) = (joined.api.url(), format!("https://localhost:{}", joined.api.address().port()));
    joined.start_with("", |_| fs::write(&file, fs::read_to_string(&file).unwrap().replace(&url, &named)).unwrap());
    joined.wait_until_ready();
    let metrics = joined.metrics();
    let count = "rest_client_dns_resolution_duration_seconds_count{host=\"localhost\"} ";
    assert!(metrics.lines().any(|line| line.starts_with(count) && !line.ends_with(" 0")), "{metrics}");
}
