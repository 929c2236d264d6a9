//! Lists of containers, their names, images, restart rules and ports.

use super::*;

#[test]
fn containers_need_a_name_and_an_image() {
    check_spec(json!({"containers": []}), &["spec.containers: required"]);
    check_spec(
        json!({"containers": [{}]}),
        &["spec.containers[0].name: required", "spec.containers[0].image: required"],
    );
    check_container(json!({"name": "A_b"}), &[format!("name: \"A_b\": {DNS_LABEL}")]);
    check_container(json!({"image": " a:1"}), &["image: \" a:1\": must not begin or end with white space"]);
    check_spec(
        json!({"initContainers": [{"name": "i.j", "image": ""}]}),
        &[
            format!("spec.initContainers[0].name: \"i.j\": {DNS_LABEL}"),
            "spec.initContainers[0].image: required".to_owned(),
        ],
    );
}

#[test]
fn container_names_are_unique_across_kinds() {
    let named = |name: &str| json!({"name": name, "image": "i"});
    passes_spec(json!({"containers": [named("a"), named("b")], "initContainers": [named("c")]}));
    check_spec(json!({"containers": [named("a"), named("a")]}), &["spec.containers[1].name: \"a\": duplicate"]);
    check_spec(
        json!({"containers": [named("a")], "initContainers": [named("b"), named("a"), named("b")]}),
        &["spec.initContainers[1].name: \"a\": duplicate", "spec.initContainers[2].name: \"b\": duplicate"],
    );
}

#[test]
fn ephemeral_containers_are_refused_at_creation() {
    check_spec(
        json!({"ephemeralContainers": [{"name": "e", "image": "i"}]}),
        &["spec.ephemeralContainers: must not be set when the pod is created"],
    );
}

#[test]
fn restart_rules_need_policy_and_exit_codes_and_are_bounded() {
    let rule = json!({"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}});
    passes_container(json!({"restartPolicy": "Never", "restartPolicyRules": [rule]}));
    passes_spec(json!({"initContainers": [{"name": "i", "image": "i", "restartPolicy": "OnFailure"}]}));
    check_container(
        json!({"restartPolicyRules": [rule]}),
        &["restartPolicy: required: restartPolicyRules are the exceptions to it"],
    );
    check_container(
        json!({"restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart"}]}),
        &["restartPolicyRules[0].exitCodes: required"],
    );
    check_container(
        json!({"restartPolicy": "Never", "restartPolicyRules": vec![rule; 21]}),
        &["restartPolicyRules: 21 rules: must be at most 20"],
    );
    let codes: Vec<i32> = (0..256).collect();
    check_container(
        json!({"restartPolicy": "Never", "restartPolicyRules": [{"exitCodes": {"values": codes}}]}),
        &["restartPolicyRules[0].exitCodes.values: 256 exit codes: must be at most 255"],
    );
}

#[test]
fn port_numbers_and_names_are_validated() {
    passes_container(json!({"ports": [
        {"name": "http", "containerPort": 80}, {"name": "https", "containerPort": 443}, {"containerPort": 80},
    ]}));
    check_container(json!({"ports": [{"name": "http"}]}), &["ports[0].containerPort: required"]);
    check_container(
        json!({"ports": [{"containerPort": 65536, "hostPort": -1}]}),
        &["ports[0].containerPort: 65536: must be from 1 to 65535", "ports[0].hostPort: -1: must be from 1 to 65535"],
    );
    check_container(
        json!({"ports": [{"name": "http_80", "containerPort": 80}]}),
        &[format!("ports[0].name: \"http_80\": {PORT_NAME}")],
    );
    check_container(
        json!({"ports": [{"name": "a", "containerPort": 80}, {"name": "a", "containerPort": 81}]}),
        &["ports[1].name: \"a\": duplicate"],
    );
}

#[test]
fn host_ports_are_unique_among_concurrent_containers() {
    let with = |name: &str, port: Value| json!({"name": name, "image": "i", "ports": [port]});
    let port = json!({"containerPort": 80, "hostPort": 8080});
    check_spec(
        json!({"containers": [with("a", port.clone()), with("b", port.clone())]}),
        &["spec.containers[1].ports[0].hostPort: \"TCP//8080\": duplicate"],
    );
    passes_spec(json!({"containers": [
        with("a", port.clone()),
        with("b", json!({"containerPort": 80, "hostPort": 8080, "protocol": "UDP"})),
        with("c", json!({"containerPort": 80, "hostPort": 8080, "hostIP": "127.0.0.1"})),
        with("d", json!({"containerPort": 80, "hostPort": 8081})),
    ]}));
    passes_spec(json!({
        "containers": [with("a", port.clone())],
        "initContainers": [with("i", port.clone()), with("j", port.clone())],
    }));
    check_spec(
        json!({"initContainers": [{"name": "i", "image": "i", "ports": [port, port]}]}),
        &["spec.initContainers[0].ports[1].hostPort: \"TCP//8080\": duplicate"],
    );
}

#[test]
fn host_network_requires_equal_host_and_container_ports() {
    let with = |port: Value| json!({"hostNetwork": true, "containers": [{"name": "c", "image": "i", "ports": [port]}]});
    passes_spec(with(json!({"containerPort": 80})));
    passes_spec(with(json!({"containerPort": 80, "hostPort": 80})));
    check_spec(
        with(json!({"containerPort": 80, "hostPort": 81})),
        &["spec.containers[0].ports[0].hostPort: 81: must be the containerPort when hostNetwork is true"],
    );
}
