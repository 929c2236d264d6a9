//! Invalid pods and the message for each, next to valid ones.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{FieldError, validate_config_map, validate_pod, validate_secret, validate_static_pod};
use crate::types::api::{ConfigMap, Pod, Secret, decode, defaults, yaml};

mod bounds;
mod config_objects;
mod containers;
mod environment;
mod metadata;
mod names;
mod network;
mod pod_spec;
mod probes;
mod resources;
mod security;
mod static_pod;
mod volumes;

const DNS_LABEL: &str = "must be a DNS label (RFC 1123): at most 63 lower case letters, digits or '-', \
                         beginning and ending with a letter or digit";
const DNS_SUBDOMAIN: &str = "must be a DNS subdomain (RFC 1123): at most 253 lower case letters, digits, '-' or '.', \
                             every part beginning and ending with a letter or digit";
const LABEL_KEY: &str = "must be a qualified name such as example.com/MyName: at most 63 letters, digits, '-', '_' or \
                         '.', beginning and ending with a letter or digit, and before it perhaps a DNS subdomain and \
                         '/'";
const LABEL_VALUE: &str = "must be empty or at most 63 letters, digits, '-', '_' or '.', beginning and ending with a \
                           letter or digit";
const PORT_NAME: &str = "must be a port name (RFC 6335): at most 15 lower case letters, digits or single '-', \
                         at least one letter, beginning and ending with a letter or digit";

/// A valid pod, changed by `patch` and with its defaults.
#[track_caller]
fn pod(patch: Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    merge(&mut pod, patch);
    let mut pod = decode::<Pod>(pod).unwrap().value;
    defaults::apply(&mut pod);
    pod
}

/// Merges objects and replaces everything else.
fn merge(target: &mut Value, patch: Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(target.entry(key).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch,
    }
}

fn messages(faults: &[FieldError]) -> Vec<String> {
    faults.iter().map(ToString::to_string).collect()
}

/// Asserts the errors of the pod that `patch` makes.
#[track_caller]
fn check(patch: Value, wanted: &[impl AsRef<str>]) {
    let wanted: Vec<&str> = wanted.iter().map(AsRef::as_ref).collect();
    assert_eq!(messages(&validate_pod(&pod(patch.clone()))), wanted, "{patch:#}");
}

/// As `check`, for a patch of the spec.
#[track_caller]
fn check_spec(patch: Value, wanted: &[impl AsRef<str>]) {
    check(json!({"spec": patch}), wanted);
}

/// As `check`, for a patch of the only container; the paths are relative to it.
#[track_caller]
fn check_container(patch: Value, wanted: &[impl AsRef<str>]) {
    let wanted: Vec<String> = wanted.iter().map(|wanted| ["spec.containers[0].", wanted.as_ref()].concat()).collect();
    check_spec(container(patch), &wanted);
}

/// A spec with one container, changed by `patch`.
fn container(patch: Value) -> Value {
    let mut container = json!({"name": "c", "image": "i"});
    merge(&mut container, patch);
    json!({"containers": [container]})
}

#[track_caller]
fn passes_spec(patch: Value) {
    check_spec(patch, &[] as &[&str]);
}

#[track_caller]
fn passes_container(patch: Value) {
    passes_spec(container(patch));
}

#[test]
fn container_with_name_and_image_is_enough() {
    passes_spec(json!({}));
}

#[test]
fn recorded_pods_are_valid_except_as_static_pods() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden/defaults");
    let refused = ["volumes"];
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let mut recorded: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let mut pod = decode::<Pod>(recorded["manifest"].take()).unwrap().value;
        defaults::apply(&mut pod);
        // Every pod of the recorded cluster has this service account.
        pod.spec.service_account_name = "default".to_owned();
        assert_eq!(validate_pod(&pod), [], "{name}");
        pod.spec.service_account_name.clear();
        let faults = messages(&validate_static_pod(&pod));
        assert_eq!(!faults.is_empty(), refused.contains(&name), "{name}: {faults:#?}");
        count += 1;
    }
    assert!(count > 20, "only {count} recordings");
}

#[test]
fn examples_are_valid_static_pods() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        for document in yaml::parse(&fs::read(&path).unwrap()).unwrap() {
            if document.value["kind"] != "Pod" {
                continue;
            }
            let mut pod = decode::<Pod>(document.value).unwrap().value;
            defaults::apply(&mut pod);
            // The kubelet sets the default namespace.
            pod.metadata.namespace = "default".to_owned();
            assert_eq!(messages(&validate_static_pod(&pod)), [] as [&str; 0], "{}", path.display());
            count += 1;
        }
    }
    assert!(count >= 3, "only {count} examples");
}
