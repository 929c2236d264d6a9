//! Removes secrets from objects: data of Secrets and ConfigMaps, values of variables and headers, annotations, and
//! fields that are named so. Pure.

use serde_json::{Map, Value};

use super::redact_text::{REDACTED, is_secret_name, redact_text};

/// Redacts in place.
pub(super) fn redact_value(value: &mut Value) {
    match value {
        Value::Object(fields) => redact_object(fields),
        Value::Array(items) => items.iter_mut().for_each(redact_value),
        Value::String(text) => *text = redact_text(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn redact_object(fields: &mut Map<String, Value>) {
    let has_data =
        fields.get("kind").and_then(Value::as_str).is_some_and(|kind| ["Secret", "ConfigMap"].contains(&kind));
    for (name, value) in fields.iter_mut() {
        match name.as_str() {
            "data" | "stringData" | "binaryData" if has_data => hide_all(value),
            "env" | "httpHeaders" => hide_values(value),
            "annotations" => hide_annotations(value),
            "staticPodURLHeader" => hide_all(value),
            "command" | "args" => {
                hide_arguments(value);
                redact_value(value);
            }
            name if is_secret_name(name) && !matches!(value, Value::Object(_) | Value::Array(_)) => hide(value),
            _ => redact_value(value),
        }
    }
}

/// Says how long the value was, which often is the mistake.
fn hide(value: &mut Value) {
    match value {
        Value::String(text) => *text = format!("{REDACTED} ({} bytes)", text.len()),
        Value::Bool(_) | Value::Null => {}
        Value::Number(_) | Value::Array(_) | Value::Object(_) => *value = Value::String(REDACTED.to_owned()),
    }
}

/// All values of an object, or the value itself.
fn hide_all(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(hide),
        other => hide(other),
    }
}

/// The values of a list of names and values.
fn hide_values(list: &mut Value) {
    for item in list.as_array_mut().into_iter().flatten() {
        if let Some(value) = item.get_mut("value") {
            hide(value);
        }
        redact_value(item);
    }
}

/// Only annotations of Kubernetes and Coracle are about the node; one of them holds the whole object.
fn hide_annotations(annotations: &mut Value) {
    for (name, value) in annotations.as_object_mut().into_iter().flatten() {
        let is_known = name.starts_with("coracle.dev/") || name.starts_with("kubernetes.io/config.");
        if is_known { redact_value(value) } else { hide(value) }
    }
}

/// The argument after a flag such as `--password`.
fn hide_arguments(arguments: &mut Value) {
    let mut hide_next = false;
    for argument in arguments.as_array_mut().into_iter().flatten() {
        let text = argument.as_str().unwrap_or_default();
        let is_flag = text.starts_with('-');
        let is_secret_flag = is_flag && !text.contains('=') && is_secret_name(text);
        if hide_next && !is_flag {
            hide(argument);
        }
        hide_next = is_secret_flag;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn redacted(mut value: Value) -> Value {
        redact_value(&mut value);
        value
    }

    #[test]
    fn nothing_secret_is_left_in_a_pod() {
        let container = json!({
            "name": "main", "image": "web:1", "command": ["app", "--password", "HUNTER", "--token=HUNTER", "--verbose", "on"],
            "args": ["sh", "-c", "PASSWORD=HUNTER app https://u:HUNTER@h/"],
            "env": [{ "name": "A", "value": "HUNTER" }, { "name": "B", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }],
            "livenessProbe": { "httpGet": { "httpHeaders": [{ "name": "Authorization", "value": "HUNTER" }] } },
        });
        let pod = json!({
            "kind": "Pod",
            "metadata": { "name": "web", "annotations": { "x/last-applied": "HUNTER", "coracle.dev/urgent": "true" } },
            "spec": { "containers": [container], "volumes": [{ "secret": { "secretName": "s" } }], "automountServiceAccountToken": false },
        });
        let shown = redacted(pod);
        assert!(!shown.to_string().contains("HUNTER"), "{shown:#}");
        let main = &shown["spec"]["containers"][0];
        assert_eq!(main["env"][0], json!({ "name": "A", "value": "REDACTED (6 bytes)" }));
        assert_eq!(main["env"][1]["valueFrom"]["secretKeyRef"], json!({ "name": "s", "key": "k" }));
        assert_eq!([&main["command"][4], &main["command"][5]], ["--verbose", "on"]);
        assert_eq!(shown["metadata"]["annotations"]["coracle.dev/urgent"], "true");
        assert_eq!(shown["spec"]["volumes"][0]["secret"]["secretName"], "s");
        assert_eq!(shown["spec"]["automountServiceAccountToken"], false);
    }

    #[test]
    fn data_of_secrets_and_configmaps_is_removed_and_its_keys_stay() {
        let list = json!([
            { "kind": "Secret", "data": { "k": "SFVOVEVS" }, "stringData": { "l": "HUNTER" } },
            { "kind": "ConfigMap", "data": { "k": "HUNTER" } },
            { "kind": "Other", "data": { "k": "kept" } },
        ]);
        let shown = redacted(list);
        assert!(!shown.to_string().contains("HUNTER") && !shown.to_string().contains("SFVOVEVS"), "{shown:#}");
        assert_eq!(shown[0]["data"], json!({ "k": "REDACTED (8 bytes)" }));
        assert_eq!(shown[2]["data"], json!({ "k": "kept" }));
    }

    #[test]
    fn credentials_of_a_kubeconfig_and_headers_of_a_url_are_removed() {
        let user = json!({ "users": [{ "name": "u", "user": { "token": "HUNTER", "client-key-data": "HUNTER", "password": "HUNTER", "client-certificate-data": "abc" } }] });
        let shown = redacted(json!({ "clusters": [{ "cluster": { "server": "https://s" } }], "users": user["users"] }));
        assert!(!shown.to_string().contains("HUNTER"), "{shown:#}");
        assert_eq!(shown["clusters"][0]["cluster"]["server"], "https://s");
        let shown = redacted(json!({ "staticPodURLHeader": { "X": ["HUNTER"] }, "maxPods": 3 }));
        assert!(!shown.to_string().contains("HUNTER") && shown["maxPods"] == 3, "{shown:#}");
    }
}
