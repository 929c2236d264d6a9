use serde_json::json;

use super::*;
use crate::types::api::{Pod, encode};

#[track_caller]
fn check_error(value: Value, message: &str) {
    assert_eq!(decode::<Pod>(value).unwrap_err().to_string(), message);
}

#[test]
fn empty_string_is_the_default_of_a_word() {
    let empty = json!({"spec": {
        "restartPolicy": "", "dnsPolicy": "",
        "tolerations": [{"operator": "", "effect": ""}],
        "volumes": [{"name": "v", "hostPath": {"path": "/a", "type": ""}}],
        "containers": [{
            "imagePullPolicy": "", "terminationMessagePolicy": "", "ports": [{"containerPort": 80, "protocol": ""}],
            "livenessProbe": {"httpGet": {"port": 80, "scheme": ""}},
        }],
    }});
    let absent = json!({"spec": {
        "tolerations": [{}],
        "volumes": [{"name": "v", "hostPath": {"path": "/a"}}],
        "containers": [{"ports": [{"containerPort": 80}], "livenessProbe": {"httpGet": {"port": 80}}}],
    }});
    assert_eq!(decode::<Pod>(empty).unwrap().value, decode::<Pod>(absent).unwrap().value);
}

#[test]
fn errors_name_the_field_and_the_expected_type() {
    check_error(
        json!({"spec": {"containers": [{"image": 7}]}}),
        "spec.containers[0].image: expected a string, found a number: put it in quotes",
    );
    check_error(
        json!({"metadata": {"name": false}}),
        "metadata.name: expected a string, found a boolean: put it in quotes",
    );
    check_error(
        json!({"metadata": {"labels": {"a.b/c": 1}}}),
        "metadata.labels[\"a.b/c\"]: expected a string, found a number: put it in quotes",
    );
    check_error(
        json!({"spec": {"containers": {}}}),
        "spec.containers: expected a list, found an object: begin each entry with a dash",
    );
    check_error(json!({"spec": []}), "spec: expected an object, found a list");
    check_error(json!([]), "expected an object, found a list");
    check_error(json!({"spec": {"hostNetwork": "true"}}), "spec.hostNetwork: expected a boolean, found a string");
    check_error(
        json!({"spec": {"restartPolicy": "always"}}),
        "spec.restartPolicy: expected \"Always\", \"Never\" or \"OnFailure\", found \"always\"",
    );
    check_error(
        json!({"spec": {"priority": 2_147_483_648_u32}}),
        "spec.priority: the number 2147483648 is out of range",
    );
    check_error(json!({"spec": {"priority": 1.5}}), "spec.priority: expected a whole number, found 1.5");
    check_error(json!({"spec": {"priority": "x"}}), "spec.priority: expected a number, found a string");
    check_error(
        json!({"spec": {"priority": "1"}}),
        "spec.priority: expected a number, found a string: remove the quotes",
    );
    check_error(
        json!({"spec": {"containers": [{"resources": {"limits": {"cpu": "1x"}}}]}}),
        "spec.containers[0].resources.limits.cpu: expected a quantity that ends in \
         n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or e<number>, found \"1x\"",
    );
    check_error(
        json!({"metadata": {"creationTimestamp": "yesterday"}}),
        "metadata.creationTimestamp: expected a time such as 2026-01-02T15:04:05Z, found \"yesterday\"",
    );
    check_error(json!({"kind": "Secret"}), "kind: expected \"Pod\", found \"Secret\"");
}

#[test]
fn one_of_accepts_exactly_one_key() {
    check_error(
        json!({"spec": {"volumes": [{"name": "a", "emptyDir": {}, "hostPath": {"path": "/"}}]}}),
        "spec.volumes[0]: only one of emptyDir and hostPath may be given",
    );
    check_error(
        json!({"spec": {"containers": [{"livenessProbe": {"periodSeconds": 3}}]}}),
        "spec.containers[0].livenessProbe: one of exec, grpc, httpGet or tcpSocket is required",
    );
    check_error(
        json!({"spec": {"containers": [{"env": [{"name": "A", "valueFrom": {}}]}]}}),
        "spec.containers[0].env[0].valueFrom: \
         one of configMapKeyRef, fieldRef, fileKeyRef, resourceFieldRef or secretKeyRef is required",
    );
}

#[test]
fn unknown_fields_are_reported_by_path() {
    let pod = decode::<Pod>(json!({
        "metadata": {"name": "a", "managedFields": [{"manager": "x"}]},
        "spec": {
            "containers": [{"name": "b", "imge": "c", "Image": "d"}],
            "volumes": [{"name": "v", "emptydir": {}}],
            "affinity": {"podAffinity": {"whatever": [1, {"x": null}]}},
        },
        "extra": {"deep": 1},
    }))
    .unwrap();
    assert_eq!(
        pod.unknown,
        ["extra", "spec.containers[0].Image", "spec.containers[0].imge", "spec.volumes[0].emptydir"]
    );
    let pod_affinity = pod.value.spec.affinity.and_then(|affinity| affinity.pod_affinity);
    assert_eq!(pod_affinity.map(|affinity| encode(&affinity)), Some(json!({"whatever": [1, {"x": null}]})));
}

#[test]
fn list_of_unknown_fields_is_bounded() {
    let many: serde_json::Map<String, Value> =
        (0..1000).map(|n| (format!("x{n}"), Value::Null)).chain([("y".into(), json!(1))]).collect();
    assert_eq!(decode::<Pod>(Value::Object(many)).unwrap().unknown, ["y"]);
    let many: serde_json::Map<String, Value> = (0..1000).map(|n| (format!("x{n}"), json!(1))).collect();
    assert_eq!(decode::<Pod>(Value::Object(many)).unwrap().unknown.len(), MAX_UNKNOWN_FIELDS);
}

#[test]
fn null_means_absent() {
    let pod = decode::<Pod>(json!({
        "apiVersion": null,
        "metadata": {"name": null, "creationTimestamp": null, "labels": {"a": null}, "annotations": null},
        "spec": {
            "restartPolicy": null,
            "priority": null,
            "hostNetwork": null,
            "containers": [{"name": "a", "command": ["x", null], "ports": null, "resources": {"limits": {"cpu": null}}}, null],
            "volumes": [{"name": "v", "emptyDir": null, "hostPath": {"path": "/"}}],
        },
        "status": null,
    }))
    .unwrap();
    assert!(pod.unknown.is_empty());
    let pod = pod.value;
    assert_eq!(pod.metadata.labels.get("a").map(String::as_str), Some(""));
    assert_eq!(pod.spec.containers.len(), 2);
    assert_eq!(pod.spec.containers[0].command.to_vec(), ["x", ""]);
    assert!(pod.spec.containers[0].resources.limits.get("cpu").is_some_and(|cpu| cpu.is_zero()));
    assert_eq!(pod.spec.volumes[0].source.key(), "hostPath");
}
