use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::kubelet::kuberuntime::golden;
use crate::state::objects::{Objects, SourceObject};
use crate::state::pods::PodDirs;
use crate::types::api::{ConfigMap, Secret, Time, decode};

fn objects() -> Objects {
    let meta = |name: &str| json!({"namespace": "ns", "name": name});
    let config_map = json!({"metadata": meta("cm"), "data": {"k1": "v1", "k2": "v2"}, "binaryData": {"bin": "AAEC"}});
    let secret = json!({"metadata": meta("sec"), "data": {"s1": "aHVzaA=="}});
    let config_map: ConfigMap = decode(config_map).unwrap().value;
    let secret: Secret = decode(secret).unwrap().value;
    let from = |object| SourceObject {
        object: Arc::new(object),
        origin: "".into(),
        since: Time::from_timestamp(crate::types::timestamp::Timestamp::UNIX_EPOCH),
    };
    let mut objects = Objects::default();
    objects.replace(&[from(config_map.into()), from(secret.into())]);
    objects
}

fn files(volume: Value) -> Result<Payload, FilesProblem> {
    let pod = json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "u", "labels": {"app": "x"}},
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "250m"}}}],
            "volumes": [volume],
        }
    });
    let mut pod: Pod = decode(pod).unwrap().value;
    crate::types::api::defaults::apply(&mut pod);
    let dirs = PodDirs::new(Path::new("/k"), Path::new("/l"));
    let with = SetUpInputs { dirs: &dirs, node: &golden::node(), objects: &objects() };
    payload(&PodFiles::new(&pod, with), &pod.spec.volumes[0].source)
}

#[track_caller]
fn check(volume: Value, expected: &[(&str, &str, u32)]) {
    let found = files(volume).unwrap();
    let found: Vec<(&str, &str, u32)> = found
        .iter()
        .map(|(path, file)| (path.to_str().unwrap(), std::str::from_utf8(&file.content).unwrap(), file.mode))
        .collect();
    assert_eq!(found, expected);
}

#[track_caller]
fn check_problem(volume: Value, expected: &str) {
    assert_eq!(files(volume).unwrap_err().to_string(), expected);
}

#[test]
fn without_items_every_key_is_a_file() {
    let all = [("bin", "\0\u{1}\u{2}", 0o644), ("k1", "v1", 0o644), ("k2", "v2", 0o644)];
    check(json!({"name": "v", "configMap": {"name": "cm"}}), &all);
    check(json!({"name": "v", "secret": {"secretName": "sec", "defaultMode": 0o440}}), &[("s1", "hush", 0o440)]);
}

#[test]
fn items_choose_keys_paths_and_modes() {
    let items = json!([{"key": "k1", "path": "./k1", "mode": 0o400}, {"key": "bin", "path": "d//e/bin"}]);
    let expected = [("d/e/bin", "\0\u{1}\u{2}", 0o600), ("k1", "v1", 0o400)];
    check(json!({"name": "v", "configMap": {"name": "cm", "items": items, "defaultMode": 0o600}}), &expected);
}

#[test]
fn missing_object_or_key_is_upstreams_error_unless_optional() {
    let config_map = |name: &str, optional| {
        let items = json!([{"key": "k1", "path": "a"}, {"key": "none", "path": "b"}]);
        json!({"name": "v", "configMap": {"name": name, "items": items, "optional": optional}})
    };
    check_problem(config_map("none", false), "configmap \"none\" not found");
    check(config_map("none", true), &[]);
    check_problem(config_map("cm", false), "configmap references non-existent config key: none");
    check(config_map("cm", true), &[("a", "v1", 0o644)]);
    let secret =
        |name: &str| json!({"name": "v", "secret": {"secretName": name, "items": [{"key": "k", "path": "p"}]}});
    check_problem(secret("none"), "secret \"none\" not found");
    check_problem(secret("sec"), "references non-existent secret key: k");
}

#[test]
fn downward_api_has_the_pods_fields() {
    let items = json!([
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "d/name", "mode": 0o400, "fieldRef": {"fieldPath": "metadata.name"}},
        {"path": "cpu", "resourceFieldRef": {"containerName": "main", "resource": "requests.cpu", "divisor": "1m"}},
        {"path": "memory", "resourceFieldRef": {"containerName": "main", "resource": "limits.memory", "divisor": "1Ki"}},
    ]);
    let expected = [
        ("cpu", "250", 0o644),
        ("d/name", "web", 0o400),
        ("labels", "app=\"x\"", 0o644),
        ("memory", "24632892", 0o644),
    ];
    check(json!({"name": "v", "downwardAPI": {"items": items}}), &expected);
    let other = json!([{"path": "x", "resourceFieldRef": {"containerName": "other", "resource": "limits.cpu"}}]);
    check_problem(json!({"name": "v", "downwardAPI": {"items": other}}), "container other not found");
}

#[test]
fn projected_sources_are_merged_and_all_problems_reported() {
    let name = json!({"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]});
    let sources = json!([
        {"configMap": {"name": "cm", "items": [{"key": "k1", "path": "c/k1", "mode": 0o400}]}},
        {"secret": {"name": "sec"}}, {"secret": {"name": "none", "optional": true}}, {"downwardAPI": name},
        {"configMap": {"name": "cm", "items": [{"key": "k2", "path": "s1"}]}},
    ]);
    let expected = [("c/k1", "v1", 0o400), ("name", "web", 0o640), ("s1", "v2", 0o640)];
    check(json!({"name": "v", "projected": {"sources": sources, "defaultMode": 0o640}}), &expected);
    let one = json!({"sources": [{"secret": {"name": "none"}}, {"configMap": {"name": "cm"}}]});
    check_problem(json!({"name": "v", "projected": one}), "secret \"none\" not found");
    let two = json!({"sources": [{"secret": {"name": "none"}}, {"serviceAccountToken": {"path": "token"}}]});
    let expected = "[secret \"none\" not found, serviceAccountToken needs a cluster, but this node is not part of one]";
    check_problem(json!({"name": "v", "projected": two}), expected);
}

#[test]
fn sources_that_repeat_files_share_the_room_of_the_pod() {
    let sources = |count: usize| json!({"sources": vec![json!({"configMap": {"name": "cm"}}); count]});
    // Each has three keys.
    let fitting = MAX_POD_FILE_BYTES / BYTES_OF_A_FILE / 3;
    assert_eq!(files(json!({"name": "v", "projected": sources(fitting - 1)})).unwrap().len(), 3);
    check_problem(
        json!({"name": "v", "projected": sources(fitting + 1)}),
        "the files of the pod's volumes take more than 67108864 bytes",
    );
}

#[test]
fn path_cannot_leave_the_volume_or_use_reserved_names() {
    for path in ["", ".", "..", "a/../b", "/a", "..data", "..data/x", "..."] {
        let items = json!([{"key": "k1", "path": path}]);
        let found = files(json!({"name": "v", "configMap": {"name": "cm", "items": items}}));
        assert!(matches!(found, Err(FilesProblem::BackSteps { .. })), "{path:?}");
    }
}

#[test]
fn key_under_many_items_is_held_once() {
    let items: Vec<Value> = (0..150).map(|number| json!({"key": "k1", "path": format!("f{number}")})).collect();
    let found = files(json!({"name": "v", "configMap": {"name": "cm", "items": items}})).unwrap();
    let first = &found.values().next().unwrap().content;
    assert_eq!(found.values().filter(|file| Arc::ptr_eq(&file.content, first)).count(), 150);
}
