//! Reduces a pod to what unauthenticated users may see. Pure.
//!
//! Only the fields named here are shown: values of variables, commands, annotations and volumes may contain secrets. Of
//! the states of containers the reason, exit code and times are shown. Messages are shown only if Coracle or a registry
//! wrote them: others are or quote what a container, its hook or the end of its log says, or its command.

use serde_json::{Map, Value};

use crate::control::server::PodEntry;
use crate::kubelet::status::PodProblem;
use crate::types::api::Reason;
use crate::types::api::annotations::{NEXT_VERSION, UPDATE_HELD};

/// The pod with only these fields.
pub(super) fn shown(entry: PodEntry) -> PodEntry {
    let PodEntry { source, mut pod, problem, is_stopped } = entry;
    // `detail` may quote a container.
    let problem = problem.map(|problem| PodProblem { detail: String::new(), ..problem });
    let mut part = |name: &str| pod.get_mut(name).map(Value::take).unwrap_or_default();
    let (mut metadata, mut spec, mut status) = (part("metadata"), part("spec"), part("status"));
    // The agent's own.
    let annotations = metadata.get_mut("annotations").map(Value::take).unwrap_or_default();
    let annotations = pick(annotations, &[NEXT_VERSION, UPDATE_HELD]);
    metadata = pick(metadata, &METADATA);
    if let (Value::Object(metadata), Some(false)) = (&mut metadata, annotations.as_object().map(Map::is_empty)) {
        metadata.insert("annotations".to_owned(), annotations);
    }
    let mut shown_spec = pick(spec.clone(), &SPEC);
    for containers in ["containers", "initContainers"] {
        let list = spec.get_mut(containers).and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
        let list: Vec<Value> = list.into_iter().map(|container| pick(container, &SHOWN_CONTAINER_FIELDS)).collect();
        if let (Value::Object(spec), false) = (&mut shown_spec, list.is_empty()) {
            spec.insert(containers.to_owned(), Value::Array(list));
        }
    }
    status = shown_status(status);
    let mut shown = pick(pod, &["apiVersion", "kind"]);
    for (name, part) in [("metadata", metadata), ("spec", shown_spec), ("status", status)] {
        if let Value::Object(shown) = &mut shown {
            shown.insert(name.to_owned(), part);
        }
    }
    PodEntry { source, pod: shown, problem, is_stopped }
}

const METADATA: [&str; 5] = ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp"];
/// Reason and message of a pod are Coracle's: an eviction, a rejection. So are those of its conditions but for those of
/// readiness gates, which anyone may write.
const STATUS: [&str; 7] = ["message", "phase", "podIP", "podIPs", "qosClass", "reason", "startTime"];
const CONDITION: [&str; 4] = ["lastTransitionTime", "reason", "status", "type"];
const CONTAINER_STATUS: [&str; 9] =
    ["image", "imageID", "lastState", "name", "ready", "resources", "restartCount", "started", "state"];
const CONTAINER_STATE: [&str; 6] = ["exitCode", "finishedAt", "message", "reason", "signal", "startedAt"];
const SPEC: [&str; 4] = ["hostNetwork", "nodeName", "priorityClassName", "restartPolicy"];
const SHOWN_CONTAINER_FIELDS: [&str; 4] = ["image", "name", "resources", "restartPolicy"];

fn pick(from: Value, names: &[&str]) -> Value {
    let Value::Object(mut from) = from else { return Value::Object(Map::new()) };
    from.retain(|name, _| names.contains(&name.as_str()));
    Value::Object(from)
}

/// Reasons of states whose message is none of a container.
const WITH_MESSAGE: [Reason; 11] = [
    Reason::CONTAINER_CREATING,
    Reason::CONTAINER_STATUS_UNKNOWN,
    Reason::CRASH_LOOP_BACK_OFF,
    Reason::CREATE_CONTAINER_CONFIG_ERROR,
    Reason::ERR_IMAGE_NEVER_PULL,
    Reason::ERR_IMAGE_PULL,
    Reason::IMAGE_PULL_BACK_OFF,
    Reason::IMAGE_PULL_WAITING,
    Reason::INVALID_IMAGE_NAME,
    Reason::POD_INITIALIZING,
    Reason::REGISTRY_UNAVAILABLE,
];

fn shown_status(mut status: Value) -> Value {
    let lists = [
        ("conditions", &CONDITION[..]),
        ("containerStatuses", &CONTAINER_STATUS),
        ("ephemeralContainerStatuses", &CONTAINER_STATUS),
        ("initContainerStatuses", &CONTAINER_STATUS),
    ];
    let lists = lists.map(|(name, fields)| (name, status.get_mut(name).map(Value::take), fields));
    let mut shown = pick(status, &STATUS);
    for (name, list, fields) in lists {
        let (Some(Value::Array(list)), Value::Object(shown)) = (list, &mut shown) else { continue };
        let list = list.into_iter().map(|item| {
            let mut item = pick(item, fields);
            for name in ["state", "lastState"] {
                if let Some(state) = item.get_mut(name) {
                    reduce_state(state);
                }
            }
            item
        });
        shown.insert(name.to_owned(), list.collect());
    }
    shown
}

/// Leaves the chosen fields of a container's state, without a message that the container, its hook or the runtime may have
/// written.
fn reduce_state(state: &mut Value) {
    for fields in state.as_object_mut().into_iter().flat_map(Map::values_mut) {
        *fields = pick(fields.take(), &CONTAINER_STATE);
        let reason = fields.get("reason").and_then(Value::as_str).unwrap_or_default();
        if !WITH_MESSAGE.iter().any(|reason_with_message| reason_with_message.as_str() == reason) {
            if let Some(fields) = fields.as_object_mut() {
                fields.remove("message");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(pod: Value) -> Value {
        let entry = shown(PodEntry { source: "file:/m/web.yaml".to_owned(), pod, ..PodEntry::default() });
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
            "status": {
                "phase": "Running", "hostIP": "SECRET", "resourceClaimStatuses": ["SECRET"], "newField": "SECRET",
                "conditions": [{ "type": "example.com/gate", "status": "True", "message": "SECRET" }],
                "containerStatuses": [{
                    "name": "main", "ready": true, "containerID": "SECRET", "volumeMounts": ["SECRET"], "user": "SECRET",
                    "state": { "running": { "startedAt": "T", "newField": "SECRET" } },
                }],
            },
        });
        let shown = of(pod);
        assert!(!shown.to_string().contains("SECRET"), "{shown:#}");
        let container = json!({ "name": "main", "image": "web:1", "resources": { "limits": { "memory": "64Mi" } } });
        assert_eq!(shown["spec"]["containers"], json!([container]));
        assert_eq!(shown["spec"]["initContainers"], json!([container]));
        assert_eq!(shown["metadata"], json!({ "name": "web", "namespace": "default", "uid": "u" }));
        let status = json!({
            "phase": "Running", "conditions": [{ "type": "example.com/gate", "status": "True" }],
            "containerStatuses": [{ "name": "main", "ready": true, "state": { "running": { "startedAt": "T" } } }],
        });
        assert_eq!(shown["status"], status);
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
    fn messages_of_containers_and_hooks_are_not_shown() {
        let ended = json!({ "exitCode": 1, "reason": "Error", "finishedAt": "T", "message": "words" });
        let status = |state: Value| json!({ "name": "main", "state": state, "lastState": { "terminated": ended } });
        for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
            for state in [
                json!({ "terminated": ended }),
                json!({ "waiting": { "reason": "PostStartHookError", "message": "words" } }),
                json!({ "waiting": { "reason": "RunContainerError", "message": "words" } }),
            ] {
                let spec = json!({ "containers": [{ "name": "main", "terminationMessagePolicy": "File" }] });
                let shown = of(json!({ "spec": spec, "status": { list: [status(state)] } }));
                assert!(!shown.to_string().contains("words"), "{shown:#}");
                let last = &shown["status"][list][0]["lastState"]["terminated"];
                assert_eq!(last, &json!({ "exitCode": 1, "reason": "Error", "finishedAt": "T" }));
            }
            let waits = json!({ "waiting": { "reason": "ImagePullBackOff", "message": "Back-off pulling image" } });
            let shown = of(json!({ "status": { list: [status(waits.clone())] } }));
            assert_eq!(shown["status"][list][0]["state"], waits);
        }
    }

    #[test]
    fn malformed_pod_is_shown_as_empty() {
        for pod in [json!(null), json!([]), json!({ "spec": [], "status": { "containerStatuses": 7 } })] {
            let shown = of(pod);
            assert_eq!(shown["metadata"], json!({}), "{shown}");
        }
    }
}
