//! CronJobs as templates of Jobs, and what is refused.

use serde_json::json;

use super::super::testing::pods_of;
use super::super::{is_own_uid, is_pod_name_of, job_of_template, job_pod, read_manifest};
use super::*;
use crate::state::pods::SourceName;

fn document(spec: Value) -> Value {
    let pod = json!({
        "metadata": {"labels": {"app": "backup"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "app:1"}]},
    });
    let mut document = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "backup"},
        "spec": {
            "schedule": "0 3 * * *",
            "jobTemplate": {"metadata": {"creationTimestamp": null}, "spec": {"backoffLimit": 2, "template": pod}},
        },
    });
    let (Some(own), Value::Object(spec)) = (document["spec"].as_object_mut(), spec) else { panic!("no object") };
    own.extend(spec);
    document
}

/// The error and the warnings, one line each.
fn lines(document: &Value) -> Vec<String> {
    let origin =
        Origin { source: SourceName::File, path: "/m/a.yaml", node_name: "node", config_seen: "", board_key: None };
    let object = read_manifest(document.to_string().as_bytes(), &origin).unwrap().remove(0);
    object
        .object
        .as_ref()
        .err()
        .map(ObjectError::lines)
        .unwrap_or_default()
        .into_iter()
        .chain(object.warning_lines())
        .collect()
}

#[test]
fn document_becomes_one_template_with_both_specs() {
    let template = pods_of(&document(json!({"timeZone": "Europe/Berlin"})).to_string()).remove(0);
    let spec = cron_job_of_template(&template).expect("a template");
    assert_eq!((&*spec.schedule, spec.time_zone.as_deref()), ("0 3 * * *", Some("Europe/Berlin")));
    assert_eq!(job_name(&template), "backup");
    assert_eq!(job_of_template(&template).map(|_| ()), None, "it is not the template of a Job");
}

#[test]
fn jobs_have_names_uids_and_labels_of_their_own() {
    let cron_template = pods_of(&document(json!({})).to_string()).remove(0);
    let template = scheduled_job(&cron_template, 1_790_000_040);
    assert_eq!(job_name(&template), "backup-29833334");
    assert_eq!(template.metadata.name, "backup-29833334-node");
    assert_eq!(job_of_template(&template).and_then(|spec| spec.backoff_limit), Some(2));
    let labels = &template.metadata.labels;
    assert_eq!(labels.get("job-name").map(String::as_str), Some("backup-29833334"));
    assert_eq!(labels.get("app").map(String::as_str), Some("backup"));
    let own = &owning_workload(&template).expect("an owner").uid;
    assert_eq!(labels.get("controller-uid"), Some(own));
    assert!(is_own_uid(template.metadata.uid.as_str()));
    let later = scheduled_job(&cron_template, 1_790_000_100);
    assert_ne!(later.metadata.uid, template.metadata.uid);
    assert_eq!(scheduled_job(&cron_template, 1_790_000_099), template, "the same minute is the same Job");

    let pods = [job_pod(&template, 0, None, None), job_pod(&template, 0, Some(3), None)];
    for pod in &pods {
        assert!(is_pod_name_of(&cron_template, &pod.metadata.name), "{}", pod.metadata.name);
        assert!(!is_pod_name_of(&later, &pod.metadata.name));
    }
    assert!(!is_pod_name_of(&cron_template, "backup-front-bcdfg-node"));
}

#[test]
fn what_a_cron_job_cannot_have_is_refused_by_name() {
    let no_policy = json!({"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "b"}]}}}});
    let bad_image = json!({"spec": {"completions": "x", "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a"}]}}}});
    for (spec, expected) in [
        (json!({"schedule": "0 3 * *"}), vec!["spec.schedule: expected 5 fields, found 4"]),
        (json!({"schedule": "61 3 * * *"}), vec!["spec.schedule: minute: expected a range within 0-59"]),
        (json!({"timeZone": "../etc"}), vec!["spec.timeZone: expected the name of a time zone"]),
        (json!({"startingDeadlineSeconds": -1}), vec!["spec.startingDeadlineSeconds: must not be negative"]),
        (json!({"concurrencyPolicy": "Never"}), vec!["spec.concurrencyPolicy: "]),
        (json!({"jobTemplate": null}), vec!["spec.jobTemplate: required"]),
        (json!({"jobTemplate": {"metadata": 3}}), vec!["spec.jobTemplate.metadata: expected"]),
        (json!({"jobTemplate": no_policy}), vec!["spec.jobTemplate.spec.template.spec.restartPolicy: required"]),
        (
            json!({"jobTemplate": bad_image}),
            vec!["spec.jobTemplate.spec.completions: ", "spec.jobTemplate.spec.template.spec.containers[0].image: "],
        ),
        (
            json!({"jobTemplate": {"spec": {"podFailurePolicy": {}}}}),
            vec!["spec.jobTemplate.spec.podFailurePolicy: is not supported"],
        ),
        (json!({"what": 1}), vec!["spec.what: unknown field"]),
    ] {
        let all = lines(&document(spec));
        for (line, expected) in all.iter().zip(&expected) {
            assert!(line.starts_with(expected), "{all:?}: {expected}");
        }
        assert!(all.len() >= expected.len(), "{all:?}: {expected:?}");
    }
    let mut large = document(json!({}));
    large["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["x".repeat(1 << 20)]);
    assert!(lines(&large)[0].starts_with("spec.jobTemplate.spec.template.spec: must have at most 1 MiB"));
    let mut other = document(json!({}));
    other["metadata"]["name"] = json!("x".repeat(53));
    assert!(lines(&other)[0].starts_with("metadata.name: must have at most 52 characters"));
    other["metadata"]["name"] = json!("Backup");
    assert!(lines(&other)[0].starts_with("metadata.name: "), "{:?}", lines(&other));
    other["metadata"]["name"] = json!("backup");
    other["apiVersion"] = json!("batch/v1beta1");
    assert_eq!(lines(&other), ["apiVersion: expected batch/v1"]);
    assert_eq!(lines(&document(json!({}))), Vec::<String>::new());
}
