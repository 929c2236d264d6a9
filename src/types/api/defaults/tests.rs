//! Defaults, compared with those of a recorded kubelet.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{apply, pull_policy};
use crate::types::api::{Pod, PullPolicy, decode, encode};

fn defaulted(manifest: Value) -> Value {
    let mut pod = decode::<Pod>(manifest).unwrap().value;
    apply(&mut pod);
    let once = encode(&pod);
    apply(&mut pod);
    assert_eq!(encode(&pod), once, "a second time changes nothing");
    once
}

/// Asserts that after defaulting the spec `given` has the value `wanted` at `pointer`.
#[track_caller]
fn check(given: Value, pointer: &str, wanted: &Value) {
    let pod = defaulted(json!({"metadata": {"name": "a"}, "spec": given}));
    assert_eq!(pod.pointer(&["/spec", pointer].concat()), Some(wanted), "{pointer} of {pod:#}");
}

#[test]
fn defaults_match_upstream() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden/defaults");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let mut recorded: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let spec = defaulted(recorded["manifest"].take())["spec"].take();
        assert_eq!(spec, recorded["spec"], "{}", path.display());
        count += 1;
    }
    assert!(count > 20, "only {count} recordings");
}

#[test]
fn pull_policy_is_always_only_for_latest() {
    let digest = "@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    for image in ["nginx", "nginx:latest", "localhost:5000/a/nginx", "localhost:5000/nginx:latest", "a/b/c"] {
        assert_eq!(pull_policy(image), PullPolicy::Always, "{image}");
    }
    assert_eq!(pull_policy(&["nginx:latest", digest].concat()), PullPolicy::Always);
    for image in ["nginx:1", "localhost:5000/nginx:1", "nginx:latest-alpine", "nginx:"] {
        assert_eq!(pull_policy(image), PullPolicy::IfNotPresent, "{image}");
    }
    assert_eq!(pull_policy(&["nginx", digest].concat()), PullPolicy::IfNotPresent);
    assert_eq!(pull_policy(&["r:5/nginx:1", digest].concat()), PullPolicy::IfNotPresent);
    assert_eq!(pull_policy(""), PullPolicy::IfNotPresent);
}

#[test]
fn given_fields_are_kept() {
    let spec = json!({
        "restartPolicy": "Never", "dnsPolicy": "Default", "terminationGracePeriodSeconds": 0,
        "schedulerName": "mine", "enableServiceLinks": false, "securityContext": {"runAsUser": 7},
        "containers": [{
            "name": "a", "image": "b", "imagePullPolicy": "Never", "terminationMessagePath": "/x",
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "ports": [{"containerPort": 1, "hostPort": 2, "protocol": "UDP"}],
            "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}},
            "livenessProbe": {
                "httpGet": {"path": "/p", "port": 1, "scheme": "HTTPS"}, "timeoutSeconds": 2, "periodSeconds": 3,
                "successThreshold": 4, "failureThreshold": 5,
            },
        }],
    });
    assert_eq!(defaulted(json!({"metadata": {"name": "a"}, "spec": spec}))["spec"], spec);
}

#[test]
fn host_network_makes_container_ports_host_ports() {
    let container = |host_network| {
        json!({
            "hostNetwork": host_network,
            "initContainers": [{"name": "i", "ports": [{"containerPort": 81}]}],
            "containers": [{"name": "a", "ports": [{"containerPort": 80}, {"containerPort": 2, "hostPort": 2}]}],
        })
    };
    check(container(true), "/containers/0/ports/0", &json!({"containerPort": 80, "hostPort": 80, "protocol": "TCP"}));
    check(container(true), "/containers/0/ports/1/hostPort", &json!(2));
    check(container(true), "/initContainers/0/ports/0/hostPort", &json!(81));
    check(container(false), "/containers/0/ports/0", &json!({"containerPort": 80, "protocol": "TCP"}));
}

#[test]
fn missing_requests_equal_limits_rounded_up_to_milli() {
    let spec = json!({
        "containers": [{"name": "a", "resources": {
            "limits": {"cpu": "1500u", "memory": "1Gi", "example.com/x": 1},
            "requests": {"memory": "1Mi", "ephemeral-storage": "1.0001"},
        }}],
        "initContainers": [{"name": "i", "resources": {"limits": {"cpu": 1}}}],
        "overhead": {"cpu": "100u"},
    });
    let wanted = json!({
        "limits": {"cpu": "2m", "memory": "1Gi", "example.com/x": "1"},
        "requests": {"cpu": "2m", "memory": "1Mi", "ephemeral-storage": "1001m", "example.com/x": "1"},
    });
    check(spec.clone(), "/containers/0/resources", &wanted);
    check(spec.clone(), "/initContainers/0/resources/requests", &json!({"cpu": "1"}));
    check(spec, "/overhead/cpu", &json!("1m"));
}

#[test]
fn pod_level_requests_come_from_containers_then_limits() {
    let pod = |containers, resources| json!({"containers": containers, "resources": resources, "overhead": {"cpu": 9}});
    let asking = json!([
        {"name": "a", "resources": {"requests": {"cpu": "1", "example.com/x": 1}}},
        {"name": "b", "resources": {"requests": {"cpu": "2"}}},
    ]);
    check(
        pod(asking.clone(), json!({"limits": {"cpu": 5, "memory": "1Gi"}})),
        "/resources/requests",
        &json!({"cpu": "3", "memory": "1Gi"}),
    );
    check(pod(asking.clone(), json!({"requests": {"memory": 1}})), "/resources", &json!({"requests": {"memory": "1"}}));
    check(pod(asking, json!({})), "/resources", &json!({}));

    let huge = json!([
        {"name": "a", "resources": {"limits": {"hugepages-2Mi": "2Mi"}}},
        {"name": "b", "resources": {"limits": {"hugepages-2Mi": "4Mi"}}},
    ]);
    check(
        pod(huge, json!({"limits": {"memory": "1Gi"}})),
        "/resources",
        &json!({
            "limits": {"hugepages-2Mi": "6Mi", "memory": "1Gi"},
            "requests": {"hugepages-2Mi": "6Mi", "memory": "1Gi"},
        }),
    );
}

#[test]
fn each_volume_source_gets_its_defaults() {
    let volumes = json!([
        {"name": "a"},
        {"name": "b", "hostPath": {"path": "/x"}},
        {"name": "c", "image": {"reference": "r.example/a:1"}},
        {"name": "d", "projected": {"sources": [
            {"serviceAccountToken": {"path": "t"}},
            {"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        ]}},
        {"name": "e", "iscsi": {"iqn": "x", "iscsiInterface": "", "lun": 0, "targetPortal": "h"}},
        {"name": "f", "scaleIO": {"fsType": "ext4"}},
    ]);
    let spec = json!({"volumes": volumes});
    check(spec.clone(), "/volumes/0", &json!({"name": "a", "emptyDir": {}}));
    check(spec.clone(), "/volumes/1/hostPath", &json!({"path": "/x", "type": ""}));
    check(spec.clone(), "/volumes/2/image/pullPolicy", &json!("IfNotPresent"));
    check(spec.clone(), "/volumes/3/projected/defaultMode", &json!(420));
    check(
        spec.clone(),
        "/volumes/3/projected/sources/0/serviceAccountToken",
        &json!({"path": "t", "expirationSeconds": 3600}),
    );
    check(spec.clone(), "/volumes/3/projected/sources/1/downwardAPI/items/0/fieldRef/apiVersion", &json!("v1"));
    check(spec.clone(), "/volumes/4/iscsi/iscsiInterface", &json!("default"));
    check(spec, "/volumes/5/scaleIO", &json!({"fsType": "ext4", "storageMode": "ThinProvisioned"}));
}

#[test]
fn probes_and_hooks_get_path_scheme_and_service() {
    let spec = json!({"containers": [{
        "name": "a",
        "livenessProbe": {"grpc": {"port": 1}},
        "readinessProbe": {"httpGet": {"port": "web"}},
        "lifecycle": {"preStop": {"httpGet": {"port": 1}}},
        "env": [{"name": "E", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}}}],
    }]});
    let numbers = json!({"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3});
    let probe = |handler: Value| {
        let mut probe = numbers.clone();
        probe.as_object_mut().unwrap().extend(handler.as_object().unwrap().clone());
        probe
    };
    check(spec.clone(), "/containers/0/livenessProbe", &probe(json!({"grpc": {"port": 1, "service": ""}})));
    let request = |port: Value| json!({"httpGet": {"port": port, "path": "/", "scheme": "HTTP"}});
    check(spec.clone(), "/containers/0/readinessProbe", &probe(request(json!("web"))));
    check(spec.clone(), "/containers/0/lifecycle/preStop", &request(json!(1)));
    check(spec, "/containers/0/env/0/valueFrom/fileKeyRef/optional", &json!(false));
}

#[test]
fn app_armor_annotation_applies_without_a_field() {
    let profile = |value: &str, container: &str, own: Value| {
        let annotations = json!({"container.apparmor.security.beta.kubernetes.io/a": value});
        let container = json!({"name": container, "securityContext": {"appArmorProfile": own}});
        let pod = json!({"metadata": {"annotations": annotations}, "spec": {"containers": [container]}});
        defaulted(pod).pointer("/spec/containers/0/securityContext/appArmorProfile").cloned()
    };
    let local = json!({"type": "Localhost", "localhostProfile": "mine"});
    assert_eq!(profile("runtime/default", "a", json!(null)), Some(json!({"type": "RuntimeDefault"})));
    assert_eq!(profile("localhost/mine", "a", json!(null)), Some(local.clone()));
    assert_eq!(profile("unconfined", "a", local.clone()), Some(local));
    assert_eq!(profile("unconfined", "b", json!(null)), None);
    assert_eq!(profile("none", "a", json!(null)), None);
}
