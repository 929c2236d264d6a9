//! Workloads as pods, and what is refused.

use serde_json::{Value, json};

use super::super::testing::pods_of;
use super::super::{ManifestObject, read_manifest};
use super::*;
use crate::state::pods::SourceName;
use crate::types::api::Quantity;

fn document(kind: &str, spec: Value) -> Value {
    let mut document = json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web", "tier": "a"}, "annotations": {"note": "x"}},
                "spec": {"containers": [{"name": "main", "image": "app:1"}]},
            },
        },
    });
    merge(&mut document["spec"], spec);
    document
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            from.into_iter().for_each(|(key, value)| merge(into.entry(key).or_insert(Value::Null), value));
        }
        (into, from) => *into = from,
    }
}

fn read_one(document: &Value) -> ManifestObject {
    let origin =
        Origin { source: SourceName::File, path: "/m/a.yaml", node_name: "node", config_seen: "", board_key: None };
    read_manifest(document.to_string().as_bytes(), &origin).unwrap().remove(0)
}

fn problem(document: &Value) -> String {
    read_one(document).problem().unwrap_or_default()
}

fn warnings(document: &Value) -> Vec<String> {
    read_one(document).warning_lines().collect()
}

fn pods(kind: &str, spec: Value) -> Vec<Pod> {
    pods_of(&document(kind, spec).to_string())
}

fn names(kind: &str, spec: Value) -> Vec<String> {
    pods(kind, spec).into_iter().map(|pod| pod.metadata.name).collect()
}

#[test]
fn pods_are_named_after_their_document() {
    for (kind, spec, expected) in [
        ("Deployment", json!({}), &["web-node"][..]),
        ("Deployment", json!({"replicas": 1}), &["web-node"]),
        ("Deployment", json!({"replicas": 0}), &[]),
        ("Deployment", json!({"replicas": 3}), &["web-0-node", "web-1-node", "web-2-node"]),
        ("DaemonSet", json!({}), &["web-node"]),
        ("StatefulSet", json!({}), &["web-0-node"]),
        ("StatefulSet", json!({"replicas": 0}), &[]),
    ] {
        assert_eq!(names(kind, spec.clone()), expected, "{kind} {spec}");
    }
}

#[test]
fn pod_has_the_labels_of_the_template_and_its_owner() {
    let pod = pods("Deployment", json!({})).remove(0);
    let metadata = &pod.metadata;
    assert_eq!(metadata.labels.iter().map(|(key, _)| key).collect::<Vec<_>>(), ["app", "tier"]);
    assert_eq!(pod.annotation("note"), Some("x"));
    let owner = owning_workload(&pod).unwrap();
    assert_eq!((&*owner.kind, &*owner.name, &*owner.api_version), ("Deployment", "web", "apps/v1"));
    assert!(super::super::is_own_uid(metadata.uid.as_str()), "it has versions");
    // A pod that was copied from a cluster has an owner there, which is none of this node.
    let copied = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "x", "uid": "b1", "controller": true}]},
        "spec": {"containers": [{"name": "main", "image": "app:1"}]},
    });
    assert!(owning_workload(&pods_of(&copied.to_string())[0]).is_none());
}

#[test]
fn pods_of_a_stateful_set_know_their_names() {
    let pod = pods("StatefulSet", json!({"serviceName": "db"})).remove(0);
    assert_eq!((&*pod.spec.hostname, &*pod.spec.subdomain), ("web-0", "db"));
    assert_eq!(pod.metadata.labels.get("statefulset.kubernetes.io/pod-name").unwrap(), "web-0");
    assert_eq!(pod.metadata.labels.get("apps.kubernetes.io/pod-index").unwrap(), "0");
}

#[test]
fn claims_of_a_stateful_set_are_named_after_its_pod() {
    let template = |more: Value| {
        let mut template = json!({
            "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        merge(&mut template, more);
        let volumes = json!([{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]);
        let container =
            json!({"name": "main", "image": "app:1", "volumeMounts": [{"name": "data", "mountPath": "/d"}]});
        json!({
            "volumeClaimTemplates": [template],
            "template": {"spec": {"volumes": volumes, "containers": [container]}},
        })
    };
    let read = read_one(&document("StatefulSet", template(json!({}))));
    assert_eq!(read.warning_lines().collect::<Vec<_>>(), [""; 0]);
    let Ok(Object::Workload(workload)) = read.object else { panic!("{read:?}") };
    let claim = &workload.claims[0];
    assert_eq!(
        (claim.key.to_string().as_str(), claim.storage),
        ("PersistentVolumeClaim default/data-web-0", Some(1 << 30))
    );
    assert_eq!(claim.uid.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
    let volumes: Vec<&str> = workload.pods[0].spec.volumes.iter().map(|volume| volume.source.key()).collect();
    assert_eq!(volumes, ["emptyDir", "persistentVolumeClaim"]);
    for (more, expected) in [
        (json!({"metadata": {"name": ""}}), "spec.volumeClaimTemplates[0].metadata.name: required"),
        (
            json!({"spec": {"dataSource": {}}}),
            "spec.volumeClaimTemplates[0].spec.dataSource: has no meaning on one node: a claim is a new directory",
        ),
        (
            json!({"spec": {"accessModes": ["ReadWriteOncePod"]}}),
            "spec.volumeClaimTemplates[0].spec.accessModes[0]: ReadWriteOncePod is not kept on one node: use ReadWriteOnce",
        ),
    ] {
        let found = problem(&document("StatefulSet", template(more.clone())));
        assert!(found.contains(expected), "{more}: {found}");
    }
}

#[test]
fn update_settings_become_annotations_of_the_pods() {
    let settings = |kind: &str, spec: Value| {
        let pod = pods(kind, spec).remove(0);
        [READY_WITHIN, KEEP_VERSIONS, ONE_AT_A_TIME].map(|key| pod.annotation(key).unwrap_or("-").to_owned()).join(" ")
    };
    let own = |key: &str, value: &str| json!({"template": {"metadata": {"annotations": {key: value}}}});
    for (kind, spec, expected) in [
        ("Deployment", json!({}), "600s - -"),
        ("Deployment", json!({"progressDeadlineSeconds": 60, "revisionHistoryLimit": 1}), "60s 2 -"),
        ("Deployment", json!({"progressDeadlineSeconds": 2_147_483_647, "revisionHistoryLimit": 10}), "86400s 10 -"),
        ("Deployment", json!({"replicas": 2}), "600s - true"),
        ("Deployment", json!({"replicas": 2, "strategy": {"type": "RollingUpdate"}}), "600s - true"),
        ("Deployment", json!({"replicas": 2, "strategy": {"type": "Recreate"}}), "600s - -"),
        ("Deployment", own(READY_WITHIN, "5m"), "5m - -"),
        ("DaemonSet", json!({"revisionHistoryLimit": 0}), "- 1 -"),
        ("StatefulSet", own(KEEP_VERSIONS, "4"), "- 4 -"),
    ] {
        assert_eq!(settings(kind, spec.clone()), expected, "{kind} {spec}");
    }
}

#[test]
fn fields_without_a_meaning_are_refused_by_name() {
    let hold = "has no meaning on one node: coracle hold keeps the running version";
    let port = json!({"template": {"spec": {"containers": [
        {"name": "main", "image": "app:1", "ports": [{"containerPort": 80, "hostPort": 8080}]}]}}});
    let two_with_port = {
        let mut two = port.clone();
        two["replicas"] = 2.into();
        two
    };
    for (kind, spec, expected) in [
        ("Deployment", json!({"paused": true}), format!("spec.paused: {hold}")),
        (
            "DaemonSet",
            json!({"updateStrategy": {"type": "OnDelete"}}),
            "spec.updateStrategy.type: has no meaning on one node: coracle hold keeps the running version".to_owned(),
        ),
        (
            "StatefulSet",
            json!({"updateStrategy": {"rollingUpdate": {"partition": 1}}}),
            format!("spec.updateStrategy.rollingUpdate.partition: {hold}"),
        ),
        (
            "StatefulSet",
            json!({"replicas": 2}),
            "spec.replicas: a StatefulSet has at most one pod on one node".to_owned(),
        ),
        (
            "StatefulSet",
            json!({"ordinals": {"start": 1}}),
            "spec.ordinals: has no meaning on one node: the pod has the number 0".to_owned(),
        ),
        ("Deployment", json!({"replicas": -1}), "spec.replicas: must not be negative".to_owned()),
        ("Deployment", json!({"replicas": 251}), "spec.replicas: must be at most 250".to_owned()),
        (
            "Deployment",
            json!({"replicas": 100, "template": {"spec": {"containers": [
            {"name": "main", "image": "app:1", "args": ["x".repeat(42_000)]}]}}}),
            "spec.replicas: too many for so large a template: 4 MiB in all".to_owned(),
        ),
        (
            "Deployment",
            json!({"progressDeadlineSeconds": 0}),
            "spec.progressDeadlineSeconds: must be greater than 0".to_owned(),
        ),
        (
            "Deployment",
            json!({"selector": {"matchLabels": {"app": "other"}}}),
            "spec.selector: does not match the labels of the template".to_owned(),
        ),
        ("Deployment", json!({"selector": null}), "spec.selector: required: the labels of the template".to_owned()),
        (
            "Deployment",
            json!({"template": {"spec": {"restartPolicy": "Never"}}}),
            "spec.template.spec.restartPolicy: must be Always".to_owned(),
        ),
        (
            "Deployment",
            json!({"template": {"spec": {"containers": [{"name": "main", "image": ""}]}}}),
            "spec.template.spec.containers[0].image: required".to_owned(),
        ),
        (
            "Deployment",
            json!({"template": {"spec": {"containers": [{"name": "main", "image": 7}]}}}),
            "spec.template.spec.containers[0].image: expected a string, found a number: put it in quotes".to_owned(),
        ),
        (
            "Deployment",
            json!({"strategy": {"type": "Fast"}}),
            "spec.strategy.type: expected \"OnDelete\", \"Recreate\" or \"RollingUpdate\", found \"Fast\"".to_owned(),
        ),
        ("Deployment", two_with_port, "spec.replicas: only one pod of a node can have the host port 8080".to_owned()),
        ("Deployment", port, String::new()),
    ] {
        assert_eq!(problem(&document(kind, spec.clone())), expected, "{kind} {spec}");
    }
    let mut old = document("Deployment", json!({}));
    old["apiVersion"] = "extensions/v1beta1".into();
    assert_eq!(problem(&old), "apiVersion: expected apps/v1");
    old["apiVersion"] = "apps/v1".into();
    old["metadata"]["name"] = "Web_1".into();
    assert!(problem(&old).starts_with("metadata.name: \"Web_1-node\": must be a DNS subdomain"));
    old["metadata"] = json!({});
    assert_eq!(problem(&old), "metadata.name: required");
}

#[test]
fn harmless_fields_are_named() {
    let spec = json!({
        "minReadySeconds": 5, "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": "25%"}}, "replica": 2,
        "serviceName": "x", "progressDeadlineSeconds": 90_000, "paused": null,
        "template": {"spec": {"containers": [{"name": "main", "image": "app:1", "comand": []}]}},
    });
    let mut document = document("Deployment", spec);
    document["metadata"]["annotations"] =
        json!({"coracle.dev/urgent": "true", "deployment.kubernetes.io/revision": "1"});
    document["status"] = json!({"replicas": 1});
    assert_eq!(problem(&document), "");
    let none = "no effect on one node";
    let mut found = warnings(&document);
    found.sort();
    assert_eq!(
        found,
        [
            format!("metadata.annotations[\"coracle.dev/urgent\"]: {none}: put it into spec.template.metadata"),
            format!("spec.minReadySeconds: {none}: a new version is accepted when it is ready"),
            format!("spec.progressDeadlineSeconds: {none}: a trial lasts at most 24 hours"),
            "spec.replica: unknown field, ignored".to_owned(),
            "spec.serviceName: unknown field, ignored".to_owned(),
            format!("spec.strategy.rollingUpdate.maxSurge: {none}: two versions of a pod never run at once"),
            format!("spec.strategy.rollingUpdate.maxUnavailable: {none}: pods are replaced one after the other"),
            "spec.template.spec.containers[0].comand: unknown field, ignored (did you mean command?)".to_owned(),
        ]
    );
}

#[test]
fn other_amounts_are_no_new_version() {
    let uid = |memory: &str, image: &str| {
        let container = json!({"name": "main", "image": image, "resources": {"limits": {"memory": memory}}});
        let pod = pods("Deployment", json!({"template": {"spec": {"containers": [container]}}})).remove(0);
        assert_eq!(pod.spec.containers[0].resources.limits.get("memory"), memory.parse::<Quantity>().ok().as_ref());
        pod.metadata.uid
    };
    assert_eq!(uid("64Mi", "a"), uid("128Mi", "a"));
    assert_ne!(uid("64Mi", "a"), uid("64Mi", "b"));
}
