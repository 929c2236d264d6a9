//! Patches, and their effect at an API server.

use super::*;
use crate::kubelet::node::profile::tests::profile;
use crate::kubelet::node::{NodeObservation, RuntimeHealth};
use crate::types::api::{Node, NodeCondition, Taint, Time, decode};

fn at(second: i64) -> Time {
    Time::from_unix_nanos(second * 1_000_000_000)
}

fn status(profile: &NodeProfile, server: &NodeStatus, second: i64) -> NodeStatus {
    let sight = NodeObservation {
        board: None,
        volumes_in_use: &[],
        devices: &Default::default(),
        pressures: &[],
        runtime: &RuntimeHealth::default(),
        addresses: &["10.0.0.1".parse().unwrap()],
        images: &[],
        shuts_down: false,
        now: at(second),
        instant: std::time::Instant::now(),
    };
    profile.status(&sight, server)
}

/// The object at the server after a registration.
fn registered(profile: &NodeProfile) -> Node {
    profile.node(status(profile, &NodeStatus::default(), 1))
}

#[test]
fn annotation_of_a_report_is_written_when_it_changes_and_removed_when_empty() {
    let mut profile = profile(|_, _| {});
    let server = registered(&profile);
    let wanted = status(&profile, &server.status, 1);
    for (name, value) in [("coracle.dev/held", "default/web held"), ("coracle.dev/sync", "")] {
        profile.reports.insert(name, value.to_owned());
    }
    let patch = profile.patch(&server, &wanted, PatchReason::Change).unwrap();
    let annotation = |value: Value| json!({ "metadata": { "annotations": { "coracle.dev/held": value } } });
    assert_eq!((patch.body, patch.has_news), (annotation(json!("default/web held")), true));
    // A new object has it from its creation.
    let held = registered(&profile);
    assert_eq!(profile.patch(&held, &wanted, PatchReason::Change), None);
    profile.reports.insert("coracle.dev/held", String::new());
    assert_eq!(profile.patch(&held, &wanted, PatchReason::Change).unwrap().body, annotation(Value::Null));
}

#[test]
fn no_change_sends_nothing_and_a_heartbeat_four_times() {
    let profile = profile(|_, _| {});
    let server = registered(&profile);
    let wanted = status(&profile, &server.status, 60);
    assert_eq!(profile.patch(&server, &wanted, PatchReason::Change), None);
    assert_eq!(profile.patch(&server, &wanted, PatchReason::Registration), None);
    let patch = profile.patch(&server, &wanted, PatchReason::Heartbeat).unwrap();
    let beat = |kind: &str| json!({ "type": kind, "lastHeartbeatTime": "1970-01-01T00:01:00Z" });
    let beats = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"].map(beat);
    assert_eq!(patch, StatusPatch { body: json!({ "status": { "conditions": beats } }), has_news: false });
    let text = patch.body.to_string();
    assert!(text.len() < 320, "{} bytes", text.len());
}

#[test]
fn changed_condition_is_sent_with_all_heartbeats() {
    let profile = profile(|_, _| {});
    let server = registered(&profile);
    let mut wanted = status(&profile, &server.status, 60);
    let ready = wanted.conditions.last_mut().unwrap();
    ready.message = "other".to_owned();
    let patch = profile.patch(&server, &wanted, PatchReason::Change).unwrap();
    assert!(patch.has_news);
    let conditions = patch.body["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 4);
    let expected = json!({ "type": "Ready", "lastHeartbeatTime": "1970-01-01T00:01:00Z", "message": "other" });
    assert_eq!(conditions[3], expected);
    assert_eq!(patch.body["status"].as_object().unwrap().len(), 1);
}

#[test]
fn addresses_are_replaced_as_a_whole() {
    let profile = profile(|_, _| {});
    let mut server = registered(&profile);
    server.status.addresses[0].address = "10.0.0.9".to_owned();
    let patch = profile.patch(&server, &status(&profile, &server.status, 1), PatchReason::Change).unwrap();
    let addresses = json!([
        { "type": "InternalIP", "address": "10.0.0.1" }, { "type": "Hostname", "address": "n" }, { "$patch": "replace" },
    ]);
    assert_eq!(patch.body, json!({ "status": { "addresses": addresses } }));
}

#[test]
fn removed_entries_are_deleted_by_name() {
    let profile = profile(|_, _| {});
    let mut server = registered(&profile);
    let status = &mut server.status;
    status.capacity.insert("hugepages-1Gi", "1Gi".parse().unwrap());
    status.allocatable.insert("example.com/gone", "1".parse().unwrap());
    status.node_info.swap = Some(crate::types::api::NodeSwapStatus { capacity: Some(1) });
    status.volumes_in_use = vec!["kubernetes.io/csi/x".to_owned()];
    status.images = vec![crate::types::api::ContainerImage::default()];
    let patch = profile.patch(&server, &tests::status(&profile, &server.status, 1), PatchReason::Change).unwrap();
    let expected = json!({ "status": {
        "capacity": { "hugepages-1Gi": null },
        "allocatable": { "example.com/gone": null },
        "nodeInfo": { "swap": null },
        "volumesInUse": null,
        "images": null,
    } });
    assert_eq!(patch.body, expected);
}

#[test]
fn foreign_fields_are_left_alone() {
    let profile = profile(|_, _| {});
    let mut server = registered(&profile);
    server.metadata.labels.insert("example.com/theirs", "x".to_owned());
    server.metadata.annotations.insert("example.com/theirs", "x".to_owned());
    server.spec.taints.push(Taint { key: "theirs".to_owned(), ..Taint::default() });
    server.spec.unschedulable = true;
    server.status.conditions.push(NodeCondition { kind: "NetworkUnavailable".into(), ..NodeCondition::default() });
    let wanted = status(&profile, &server.status, 1);
    for occasion in [PatchReason::Registration, PatchReason::Change] {
        assert_eq!(profile.patch(&server, &wanted, occasion), None);
    }
}

#[test]
fn labels_are_reconciled_at_registration_and_os_and_arch_always() {
    let profile = profile(|config, _| {
        let given = [("topology.kubernetes.io/zone", "z"), ("example.com/a", "b")];
        config.node.labels = given.map(|(k, v)| (k, v.to_owned())).into_iter().collect();
    });
    let mut server = registered(&profile);
    server.metadata.labels = Names::new();
    server.metadata.annotations = [(PROVIDED_IP, "10.0.0.9".to_owned())].into_iter().collect();
    let wanted = status(&profile, &server.status, 1);
    let sent = |occasion| profile.patch(&server, &wanted, occasion).unwrap().body;
    // The provided-node-ip annotation is no longer wanted.
    let standing = json!({ "metadata": {
        "labels": { "kubernetes.io/arch": "arm", "kubernetes.io/os": "linux" },
        "annotations": { "alpha.kubernetes.io/provided-node-ip": null },
    } });
    assert_eq!(sent(PatchReason::Change), standing);
    let at_registration = json!({ "metadata": {
        "labels": {
            "beta.kubernetes.io/arch": "arm", "beta.kubernetes.io/os": "linux", "kubernetes.io/arch": "arm",
            "kubernetes.io/hostname": "n", "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "z",
        },
        "annotations": {
            "alpha.kubernetes.io/provided-node-ip": null,
            "volumes.kubernetes.io/controller-managed-attach-detach": "true",
        },
    } });
    assert_eq!(sent(PatchReason::Registration), at_registration);
}

/// Apimachinery's strategic merge for the fields of a node status.
fn merge(server: &mut Value, patch: &Value) {
    let (Value::Object(server), Value::Object(patch)) = (server, patch) else { panic!("no objects") };
    for (key, change) in patch {
        match (server.get_mut(key), change) {
            (_, Value::Null) => drop(server.remove(key)),
            (Some(old @ Value::Object(_)), Value::Object(_)) => merge(old, change),
            (Some(Value::Array(old)), Value::Array(new)) if key == "conditions" => {
                for change in new {
                    match old.iter_mut().find(|old| old["type"] == change["type"]) {
                        Some(old) => merge(old, change),
                        None => old.push(change.clone()),
                    }
                }
            }
            (_, Value::Array(new)) => {
                let new = new.iter().filter(|item| item.get("$patch").is_none()).cloned().collect();
                server.insert(key.clone(), new);
            }
            (_, change) => drop(server.insert(key.clone(), change.clone())),
        }
    }
}

#[test]
fn patched_object_equals_the_wanted_one() {
    let profile = profile(|_, _| {});
    let whole = registered(&profile);
    let empty = Node { metadata: whole.metadata.clone(), ..Node::default() };
    let mut other = whole.clone();
    other.status.conditions.truncate(2);
    other.status.conditions[0].status = "Unknown".into();
    other.status.capacity.insert("cpu", "9".parse().unwrap());
    other.status.addresses.clear();
    for server in [whole, empty, other] {
        let wanted = status(&profile, &server.status, 99);
        let patch = profile.patch(&server, &wanted, PatchReason::Heartbeat).unwrap();
        let mut merged = encode(&server);
        merge(&mut merged, &patch.body);
        let merged: Node = decode(merged).unwrap().value;
        assert_eq!(merged.status, wanted);
        assert_eq!(profile.patch(&merged, &wanted, PatchReason::Heartbeat), None);
    }
}
