//! Probes and hooks.

use super::*;

#[test]
fn every_probe_type_is_valid() {
    passes_container(json!({
        "livenessProbe": {"exec": {"command": ["true"]}, "terminationGracePeriodSeconds": 1},
        "readinessProbe": {
            "httpGet": {"port": "http", "httpHeaders": [{"name": "X-A", "value": "b"}]}, "successThreshold": 3,
        },
        "startupProbe": {"grpc": {"port": 9}},
        "lifecycle": {
            "postStart": {"httpGet": {"port": 80}},
            "preStop": {"sleep": {"seconds": 30}},
        },
    }));
    passes_container(json!({"readinessProbe": {"tcpSocket": {"port": 65535}}}));
    passes_container(json!({"lifecycle": {"preStop": {"tcpSocket": {"port": 1}}}}));
}

#[test]
fn handlers_need_their_required_fields() {
    check_container(json!({"livenessProbe": {"exec": {}}}), &["livenessProbe.exec.command: required"]);
    check_container(
        json!({"livenessProbe": {"httpGet": {"port": "http_80", "httpHeaders": [{"name": "a b"}, {}]}}}),
        &[
            format!("livenessProbe.httpGet.port: \"http_80\": {PORT_NAME}"),
            "livenessProbe.httpGet.httpHeaders[0].name: \"a b\": must be an HTTP header name of letters, digits and \
             '-'"
            .to_owned(),
            "livenessProbe.httpGet.httpHeaders[1].name: required".to_owned(),
        ],
    );
    check_container(
        json!({"startupProbe": {"tcpSocket": {"port": 0}}}),
        &["startupProbe.tcpSocket.port: 0: must be from 1 to 65535"],
    );
    check_container(
        json!({"readinessProbe": {"httpGet": {"port": "80"}}}),
        &["readinessProbe.httpGet.port: \"80\": must be a number or the name of a port: remove the quotes"],
    );
    check_container(
        json!({"readinessProbe": {"grpc": {"port": 65536}}}),
        &["readinessProbe.grpc.port: 65536: must be from 1 to 65535"],
    );
}

#[test]
fn probe_numbers_are_not_negative() {
    check_container(
        json!({"readinessProbe": {
            "exec": {"command": ["true"]}, "initialDelaySeconds": -1, "timeoutSeconds": -2, "periodSeconds": -3,
            "successThreshold": -4, "failureThreshold": -5,
        }}),
        &[
            "readinessProbe.initialDelaySeconds: -1: must not be negative",
            "readinessProbe.timeoutSeconds: -2: must not be negative",
            "readinessProbe.periodSeconds: -3: must not be negative",
            "readinessProbe.successThreshold: -4: must not be negative",
            "readinessProbe.failureThreshold: -5: must not be negative",
        ],
    );
}

#[test]
fn liveness_and_startup_need_a_success_threshold_of_1() {
    for field in ["livenessProbe", "startupProbe"] {
        check_container(
            json!({field: {"exec": {"command": ["true"]}, "successThreshold": 2}}),
            &[format!("{field}.successThreshold: 2: must be 1")],
        );
    }
}

#[test]
fn readiness_probes_have_no_grace_period() {
    let probe = |seconds: i64| json!({"exec": {"command": ["true"]}, "terminationGracePeriodSeconds": seconds});
    check_container(
        json!({"livenessProbe": probe(0)}),
        &["livenessProbe.terminationGracePeriodSeconds: 0: must be greater than 0"],
    );
    check_container(
        json!({"readinessProbe": probe(1)}),
        &["readinessProbe.terminationGracePeriodSeconds: must not be set for a readiness probe"],
    );
}

#[test]
fn sleep_hooks_fit_into_the_grace_period() {
    let wanted = |seconds: i64| {
        format!("lifecycle.preStop.sleep.seconds: {seconds}: must be from 0 to terminationGracePeriodSeconds (30)")
    };
    check_container(json!({"lifecycle": {"preStop": {"sleep": {"seconds": 31}}}}), &[wanted(31)]);
    check_container(json!({"lifecycle": {"preStop": {"sleep": {"seconds": -1}}}}), &[wanted(-1)]);
    passes_container(json!({"lifecycle": {"preStop": {"sleep": {"seconds": 0}}}}));
    check_container(
        json!({"lifecycle": {"postStart": {"exec": {}}, "preStop": {"httpGet": {"port": 0}}}}),
        &["lifecycle.postStart.exec.command: required", "lifecycle.preStop.httpGet.port: 0: must be from 1 to 65535"],
    );
}

#[test]
fn only_sidecar_init_containers_have_probes_and_hooks() {
    let init = |policy: Value| {
        let probe = json!({"exec": {"command": ["true"]}});
        json!({"initContainers": [{
            "name": "i", "image": "i", "restartPolicy": policy, "livenessProbe": probe, "readinessProbe": probe,
            "startupProbe": probe, "lifecycle": {"preStop": probe},
        }]})
    };
    passes_spec(init(json!("Always")));
    let wanted = ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"].map(|field| {
        format!(
            "spec.initContainers[0].{field}: must not be set for an init container without restartPolicy \"Always\""
        )
    });
    check_spec(init(Value::Null), &wanted);
    check_spec(init(json!("Never")), &wanted);
    check_spec(
        json!({"initContainers": [{
            "name": "i", "image": "i", "restartPolicy": "Always", "startupProbe": {"exec": {}},
        }]}),
        &["spec.initContainers[0].startupProbe.exec.command: required"],
    );
}
