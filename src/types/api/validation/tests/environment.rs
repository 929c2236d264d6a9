//! Environment variables, their sources, and field references.

use super::*;

const VARIABLE_NAME: &str = "must be printable ASCII characters other than '='";

#[test]
fn variable_names_are_printable() {
    passes_container(json!({"env": [{"name": "A"}, {"name": "1 b.c", "value": "x"}, {"name": "A"}]}));
    check_container(json!({"env": [{"value": "x"}]}), &["env[0].name: required"]);
    check_container(json!({"env": [{"name": "A=B"}]}), &[format!("env[0].name: \"A=B\": {VARIABLE_NAME}")]);
    check_container(
        json!({"env": [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}),
        &["env[0].valueFrom: must not be set when value is"],
    );
}

/// Asserts the errors below `valueFrom` of a container's one variable with this source.
#[track_caller]
fn check_from(source: Value, wanted: &[impl AsRef<str>]) {
    let wanted: Vec<String> = wanted.iter().map(|wanted| ["env[0].valueFrom.", wanted.as_ref()].concat()).collect();
    check_container(json!({"env": [{"name": "A", "valueFrom": source}]}), &wanted);
}

#[track_caller]
fn passes_from(source: Value) {
    check_from(source, &[] as &[&str]);
}

#[test]
fn variables_take_only_single_line_fields() {
    for field in [
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "metadata.labels['app']",
        "metadata.annotations['Example.com/note']",
        "spec.nodeName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    ] {
        passes_from(json!({"fieldRef": {"fieldPath": field}}));
    }
    for field in ["metadata.labels", "metadata.generation", "status.phase", "metadata.labels['app'"] {
        check_from(
            json!({"fieldRef": {"fieldPath": field}}),
            &[format!(
                "fieldRef.fieldPath: {field:?}: must be metadata.annotations['<key>'], metadata.labels['<key>'], \
                 metadata.name, metadata.namespace, metadata.uid, spec.nodeName, spec.serviceAccountName, \
                 status.hostIP, status.hostIPs, status.podIP or status.podIPs"
            )],
        );
    }
    check_from(json!({"fieldRef": {}}), &["fieldRef.fieldPath: required"]);
    check_from(
        json!({"fieldRef": {"apiVersion": "v2", "fieldPath": "metadata.name"}}),
        &["fieldRef.apiVersion: \"v2\": must be \"v1\""],
    );
    check_from(
        json!({"fieldRef": {"fieldPath": "metadata.name['a']"}}),
        &["fieldRef.fieldPath: \"metadata.name['a']\": only metadata.annotations and metadata.labels have keys"],
    );
    check_from(
        json!({"fieldRef": {"fieldPath": "metadata.labels['a b']"}}),
        &[format!("fieldRef.fieldPath: \"a b\": {LABEL_KEY}")],
    );
}

#[test]
fn resource_variables_need_a_container_and_a_known_divisor() {
    for (resource, divisor) in [
        ("limits.cpu", "1m"),
        ("requests.cpu", "0"),
        ("limits.memory", "1Mi"),
        ("requests.memory", "1000"),
        ("limits.ephemeral-storage", "1Gi"),
        ("requests.hugepages-2Mi", "1Mi"),
    ] {
        passes_from(json!({"resourceFieldRef": {"resource": resource, "divisor": divisor}}));
    }
    passes_from(json!({"resourceFieldRef": {"containerName": "c", "resource": "limits.cpu"}}));
    check_from(
        json!({"resourceFieldRef": {"containerName": "d", "resource": "limits.cpu"}}),
        &["resourceFieldRef.containerName: \"d\": no container has this name"],
    );
    check_from(json!({"resourceFieldRef": {}}), &["resourceFieldRef.resource: required"]);
    check_from(
        json!({"resourceFieldRef": {"resource": "limits.gpu"}}),
        &["resourceFieldRef.resource: \"limits.gpu\": must be limits.<resource> or requests.<resource>, \
           the resource cpu, memory, ephemeral-storage or hugepages-<size>"],
    );
    check_from(
        json!({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "10m"}}),
        &["resourceFieldRef.divisor: \"10m\": must be one of 1m, 1"],
    );
    check_from(
        json!({"resourceFieldRef": {"resource": "limits.memory", "divisor": "2Mi"}}),
        &["resourceFieldRef.divisor: \"2Mi\": must be one of 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei"],
    );
}

#[test]
fn key_references_need_name_and_key() {
    const CONFIG_KEY: &str =
        "must be a key of at most 253 letters, digits, '-', '_' or '.', and must not begin with '..'";
    for field in ["configMapKeyRef", "secretKeyRef"] {
        passes_from(json!({field: {"name": "cm", "key": "k.1"}}));
        check_from(json!({field: {}}), &[format!("{field}.name: required"), format!("{field}.key: required")]);
        check_from(
            json!({field: {"name": "A", "key": "a/b"}}),
            &[format!("{field}.name: \"A\": {DNS_SUBDOMAIN}"), format!("{field}.key: \"a/b\": {CONFIG_KEY}")],
        );
    }
}

#[test]
fn file_keys_come_from_an_empty_dir() {
    let with = |key: Value| {
        let mut spec = container(json!({"env": [{"name": "A", "valueFrom": {"fileKeyRef": key}}]}));
        spec["volumes"] = json!([{"name": "v"}, {"name": "host", "hostPath": {"path": "/x"}}]);
        spec
    };
    let path = "spec.containers[0].env[0].valueFrom.fileKeyRef";
    passes_spec(with(json!({"volumeName": "v", "path": "a/b", "key": "K"})));
    check_spec(
        with(json!({})),
        &[format!("{path}.volumeName: required"), format!("{path}.path: required"), format!("{path}.key: required")],
    );
    check_spec(
        with(json!({"volumeName": "w", "path": "/a", "key": "K=L"})),
        &[
            format!("{path}.volumeName: \"w\": no volume has this name"),
            format!("{path}.path: \"/a\": must be a relative path"),
            format!("{path}.key: \"K=L\": {VARIABLE_NAME}"),
        ],
    );
    let long = "K".repeat(129);
    check_spec(
        with(json!({"volumeName": "host", "path": "a/../b", "key": long})),
        &[
            format!("{path}.volumeName: \"host\": must be an emptyDir"),
            format!("{path}.path: \"a/../b\": must not contain '..'"),
            format!("{path}.key: \"{long}\": must be at most 128 characters"),
        ],
    );
}

#[test]
fn env_from_needs_a_name_and_a_valid_prefix() {
    passes_container(
        json!({"envFrom": [{"prefix": "P_", "configMapRef": {"name": "cm"}}, {"secretRef": {"name": "s"}}]}),
    );
    check_container(
        json!({"envFrom": [{"prefix": "=", "configMapRef": {}}, {"secretRef": {"name": "S"}}]}),
        &[
            format!("envFrom[0].prefix: \"=\": {VARIABLE_NAME}"),
            "envFrom[0].configMapRef.name: required".to_owned(),
            "envFrom[1].secretRef.name: \"S\": must be a DNS subdomain (RFC 1123), but may end in '-'".to_owned(),
        ],
    );
}
