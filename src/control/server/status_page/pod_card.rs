//! Reduces a pod to what unauthenticated users may see. Pure.
//!
//! Only the fields named here are shown: values of variables, commands, annotations and volumes may contain secrets.

use serde_json::{Map, Value, json};

use crate::control::server::PodEntry;
use crate::types::api::annotations::NEXT_VERSION;

/// The pod with only these fields.
pub(super) fn shown(entry: PodEntry) -> PodEntry {
    let PodEntry { source, mut pod } = entry;
    let mut part = |name: &str| pod.get_mut(name).map(Value::take).unwrap_or_default();
    let (mut metadata, mut spec, mut status) = (part("metadata"), part("spec"), part("status"));
    let next =
        metadata.get_mut("annotations").and_then(|annotations| annotations.get_mut(NEXT_VERSION)).map(Value::take);
    metadata = pick(metadata, &METADATA);
    if let (Some(next), Value::Object(metadata)) = (next, &mut metadata) {
        metadata.insert("annotations".to_owned(), json!({ NEXT_VERSION: next }));
    }
    let mut shown_spec = pick(spec.clone(), &SPEC);
    for (containers, statuses) in [("containers", "containerStatuses"), ("initContainers", "initContainerStatuses")] {
        let list = spec.get_mut(containers).and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
        hide_logs(&list, status.get_mut(statuses));
        let list: Vec<Value> = list.into_iter().map(|container| pick(container, &CONTAINER)).collect();
        if let (Value::Object(spec), false) = (&mut shown_spec, list.is_empty()) {
            spec.insert(containers.to_owned(), Value::Array(list));
        }
    }
    let mut shown = pick(pod, &["apiVersion", "kind"]);
    for (name, part) in [("metadata", metadata), ("spec", shown_spec), ("status", status)] {
        if let Value::Object(shown) = &mut shown {
            shown.insert(name.to_owned(), part);
        }
    }
    PodEntry { source, pod: shown }
}

const METADATA: [&str; 5] = ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp"];
const SPEC: [&str; 4] = ["hostNetwork", "nodeName", "priorityClassName", "restartPolicy"];
const CONTAINER: [&str; 4] = ["image", "name", "resources", "restartPolicy"];

fn pick(from: Value, names: &[&str]) -> Value {
    let Value::Object(mut from) = from else { return Value::Object(Map::new()) };
    from.retain(|name, _| names.contains(&name.as_str()));
    Value::Object(from)
}

/// Removes termination messages that may be the end of the container's log.
fn hide_logs(containers: &[Value], statuses: Option<&mut Value>) {
    for status in statuses.and_then(Value::as_array_mut).into_iter().flatten() {
        let is_it = |container: &&Value| container["name"] == status["name"];
        if containers.iter().find(is_it).is_some_and(|one| one["terminationMessagePolicy"] == "File") {
            continue;
        }
        for state in ["state", "lastState"] {
            if let Some(Value::Object(ended)) = status.get_mut(state).and_then(|state| state.get_mut("terminated")) {
                ended.remove("message");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pod: Value) -> Value {
        let entry = shown(PodEntry { source: "file:/m/web.yaml".to_owned(), pod });
        assert_eq!(entry.source, "file:/m/web.yaml");
        entry.pod
    }

    #[test]
    fn nothing_that_may_contain_a_secret_is_shown() {
        let container = json!({
            "name": "main", "image": "web:1", "command": ["x", "SECRET"], "args": ["SECRET"], "workingDir": "/SECRET",
            "env": [{ "name": "A", "value": "SECRET" }], "envFrom": [{ "secretRef": { "name": "SECRET" } }],
            "livenessProbe": { "exec": { "command": ["SECRET"] } }, "lifecycle": { "postStart": "SECRET" },
            "resources": { "limits": { "memory": "64Mi" } }, "terminationMessagePolicy": "File",
        });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "web", "namespace": "default", "uid": "u", "labels": { "a": "SECRET" },
                "annotations": { "a": "SECRET" }, "managedFields": ["SECRET"],
            },
            "spec": {
                "nodeName": "n", "containers": [container], "initContainers": [container], "volumes": ["SECRET"],
                "imagePullSecrets": [{ "name": "SECRET" }],
            },
            "status": { "phase": "Running" },
        });
        let shown = of(pod);
        assert!(!shown.to_string().contains("SECRET"), "{shown:#}");
        let container = json!({ "name": "main", "image": "web:1", "resources": { "limits": { "memory": "64Mi" } } });
        assert_eq!(shown["spec"]["containers"], json!([container]));
        assert_eq!(shown["spec"]["initContainers"], json!([container]));
        assert_eq!(shown["metadata"], json!({ "name": "web", "namespace": "default", "uid": "u" }));
        assert_eq!(shown["status"], json!({ "phase": "Running" }));
        assert_eq!(shown["kind"], "Pod");
    }

    #[test]
    fn next_version_is_the_only_annotation_shown() {
        let annotations =
            json!({ "a": "SECRET", NEXT_VERSION: "pulling 43 %, 12.1 of 28.0 MB (app:2, 3s so far, attempt 1)" });
        let shown = of(json!({ "metadata": { "name": "web", "annotations": annotations } }));
        let next = json!({ NEXT_VERSION: "pulling 43 %, 12.1 of 28.0 MB (app:2, 3s so far, attempt 1)" });
        assert_eq!(shown["metadata"], json!({ "name": "web", "annotations": next }));
    }

    #[test]
    fn termination_message_is_shown_only_if_it_cannot_be_the_log() {
        for (policy, is_shown) in [("File", true), ("FallbackToLogsOnError", false)] {
            let ended = json!({ "terminated": { "exitCode": 1, "message": "words" } });
            let status = json!([{ "name": "main", "state": ended, "lastState": ended }]);
            let shown = of(json!({
                "spec": { "containers": [{ "name": "main", "terminationMessagePolicy": policy }] },
                "status": { "containerStatuses": status },
            }));
            let status = &shown["status"]["containerStatuses"][0];
            for state in ["state", "lastState"] {
                assert_eq!(status[state]["terminated"].get("message").is_some(), is_shown, "{policy}: {shown:#}");
                assert_eq!(status[state]["terminated"]["exitCode"], 1);
            }
        }
        // A container without a spec: nothing is known about its policy.
        let shown = of(json!({
            "status": { "containerStatuses": [{ "name": "x", "state": { "terminated": { "message": "words" } } }] },
        }));
        assert!(!shown.to_string().contains("words"), "{shown:#}");
    }

    #[test]
    fn malformed_pod_is_shown_as_empty() {
        for pod in [json!(null), json!([]), json!({ "spec": [], "status": { "containerStatuses": 7 } })] {
            let shown = of(pod);
            assert_eq!(shown["metadata"], json!({}), "{shown}");
        }
    }
}
