//! Jobs as templates of pods, and what is refused.

use serde_json::json;

use super::super::testing::pods_of;
use super::super::{is_own_uid, read_manifest};
use super::*;
use crate::state::pods::SourceName;

fn document(spec: Value) -> Value {
    let template = json!({
        "metadata": {"labels": {"app": "backup"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "app:1", "env": [{"name": "A", "value": "b"}]}]},
    });
    let mut document = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "backup"}, "spec": {"template": template}});
    let (Some(own), Value::Object(spec)) = (document["spec"].as_object_mut(), spec) else { panic!("no object") };
    own.extend(spec);
    document
}

fn template_of(spec: Value) -> Pod {
    pods_of(&document(spec).to_string()).remove(0)
}

/// The error and the warnings, one line each.
fn lines(document: &Value) -> Vec<String> {
    let origin =
        Origin { source: SourceName::File, path: "/m/a.yaml", node_name: "node", config_seen: "", board_key: None };
    let object = read_manifest(document.to_string().as_bytes(), &origin).unwrap().remove(0);
    object.problem().into_iter().chain(object.warning_lines()).collect()
}

#[test]
fn document_becomes_one_template_with_its_spec() {
    let template = template_of(json!({"completions": 3, "parallelism": 2, "suspend": true}));
    let spec = job_of_template(&template).expect("a template");
    assert_eq!((spec.completions, spec.parallelism, spec.suspend), (Some(3), Some(2), true));
    assert_eq!(job_name(&template), "backup");
    let own = &owning_workload(&template).expect("an owner").uid;
    let labels = &template.metadata.labels;
    assert_eq!(labels.get("job-name").map(String::as_str), Some("backup"));
    assert_eq!(labels.get("batch.kubernetes.io/controller-uid"), Some(own));
    assert_eq!(labels.get("app").map(String::as_str), Some("backup"));
}

#[test]
fn pods_have_names_and_uids_of_their_own() {
    let template = template_of(json!({}));
    let [first, second] = [0, 1].map(|serial| job_pod(&template, serial, None, None));
    for pod in [&first, &second] {
        let name = &pod.metadata.name;
        assert!(is_pod_name_of(&template, name), "{name}");
        assert_eq!(name.len(), "backup-xxxxx-node".len());
        assert!(is_own_uid(pod.metadata.uid.as_str()));
        assert_eq!(pod.annotation(CONFIG_HASH), Some(pod.metadata.uid.as_str()));
        assert!(pod.is_static() && job_of_template(pod).is_none());
    }
    assert_ne!(first.metadata.name, second.metadata.name);
    assert_ne!(first.metadata.uid, second.metadata.uid);
    assert_eq!(job_pod_uid(&template, 1), second.metadata.uid);
    assert_eq!(job_pod(&template, 1, None, None), second, "the same after each restart");
    for other in ["backup-node", "backup-front-node", "backup-bcdfg-other", "backup2-bcdfg-node", "backup-x-bcdfg-node"]
    {
        assert!(!is_pod_name_of(&template, other), "{other}");
    }
}

#[test]
fn pod_of_an_indexed_job_knows_its_index() {
    let template = template_of(json!({"completions": 3, "completionMode": "Indexed"}));
    let pod = job_pod(&template, 7, Some(2), None);
    assert!(pod.metadata.name.starts_with("backup-2-"), "{}", pod.metadata.name);
    assert!(is_pod_name_of(&template, &pod.metadata.name));
    assert_eq!(pod.spec.hostname, "backup-2");
    let variables: Vec<_> = pod.spec.containers[0].env.iter().map(|one| (one.name, one.value)).collect();
    assert_eq!(variables, [("JOB_COMPLETION_INDEX", "2"), ("A", "b")]);
    assert_eq!(pod.annotation(COMPLETION_INDEX), Some("2"));
    assert_eq!(pod.metadata.labels.get(COMPLETION_INDEX).map(String::as_str), Some("2"));
}

#[test]
fn only_template_and_completions_make_another_job() {
    let uid = |spec: Value| template_of(spec).metadata.uid;
    let first = uid(json!({}));
    for same in [
        json!({"parallelism": 3}),
        json!({"suspend": true}),
        json!({"backoffLimit": 1}),
        json!({"activeDeadlineSeconds": 5}),
    ] {
        assert_eq!(uid(same.clone()), first, "{same}");
    }
    for other in [
        json!({"completions": 2}),
        json!({"completions": 1, "completionMode": "Indexed"}),
        json!({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "app:2"}]}}}),
    ] {
        assert_ne!(uid(other.clone()), first, "{other}");
    }
}

#[test]
fn what_a_job_cannot_have_is_refused_by_name() {
    let containers = json!([{"name": "main", "image": "app:1", "ports": [{"containerPort": 1, "hostPort": 80}]}]);
    let with_port = json!({"spec": {"restartPolicy": "Never", "containers": containers}});
    for (spec, expected) in [
        (json!({"backoffLimitPerIndex": 1}), "spec.backoffLimitPerIndex: is not supported"),
        (json!({"podFailurePolicy": {}}), "spec.podFailurePolicy: is not supported"),
        (json!({"successPolicy": {}}), "spec.successPolicy: is not supported"),
        (json!({"managedBy": "x"}), "spec.managedBy: has no meaning on one node"),
        (json!({"completions": -1}), "spec.completions: must not be negative"),
        (json!({"completions": 100_001}), "spec.completions: must be at most 100000"),
        (json!({"parallelism": 251}), "spec.parallelism: must be at most 250 on one node"),
        (json!({"completionMode": "Indexed"}), "spec.completions: required when completionMode is Indexed"),
        (
            json!({"parallelism": 2, "template": with_port}),
            "spec.parallelism: only one pod of a node can have the host port 80",
        ),
        (
            json!({"template": {"spec": {"containers": [{"name": "a", "image": "b"}]}}}),
            "spec.template.spec.restartPolicy: required: expected Never or OnFailure",
        ),
        (
            json!({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a"}]}}}),
            "spec.template.spec.containers[0].image",
        ),
        (json!({"completions": "x"}), "spec.completions"),
    ] {
        let all = lines(&document(spec));
        assert!(all[0].starts_with(expected), "{all:?}: {expected}");
    }
    let mut other = document(json!({}));
    other["metadata"]["name"] = json!("x".repeat(64));
    assert!(lines(&other)[0].starts_with("metadata.name: must have at most 63 characters"));
    other = document(json!({}));
    other["apiVersion"] = json!("apps/v1");
    assert_eq!(lines(&other), ["apiVersion: expected batch/v1"]);
}

#[test]
fn what_is_harmless_is_a_warning() {
    let spec = json!({"podReplacementPolicy": "Failed", "selector": {}, "manualSelector": true, "what": 1});
    let mut document = document(spec);
    document["spec"]["template"]["metadata"]["annotations"] = json!({"coracle.dev/ready-within": "5m"});
    let lines = lines(&document);
    for (line, expected) in lines.iter().zip([
        "spec.manualSelector: ",
        "spec.podReplacementPolicy: ",
        "spec.selector: ",
        "spec.what: unknown field",
        "spec.template.metadata.annotations[\"coracle.dev/ready-within\"]: ",
    ]) {
        assert!(line.starts_with(expected), "{line}: {expected}");
    }
    assert_eq!(lines.len(), 5, "{lines:?}");
}

#[test]
fn misspelt_job_is_known() {
    let mut other = document(json!({}));
    other["kind"] = json!("job");
    assert_eq!(lines(&other), ["kind job: did you mean Job?"]);
}
