//! Pods with faults, and the message of each; beside every one a pod that has none.

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

/// A pod that nothing is wrong with, changed by `patch`, with its defaults.
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

/// Objects are merged, everything else is replaced.
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

/// The faults of the pod that `patch` makes.
#[track_caller]
fn check(patch: Value, wanted: &[impl AsRef<str>]) {
    let wanted: Vec<&str> = wanted.iter().map(AsRef::as_ref).collect();
    assert_eq!(messages(&validate_pod(&pod(patch.clone()))), wanted, "{patch:#}");
}

/// As `check`, of a patch of the spec.
#[track_caller]
fn check_spec(patch: Value, wanted: &[impl AsRef<str>]) {
    check(json!({"spec": patch}), wanted);
}

/// As `check`, of a patch of the only container; the paths are those below it.
#[track_caller]
fn check_container(patch: Value, wanted: &[impl AsRef<str>]) {
    let wanted: Vec<String> = wanted.iter().map(|wanted| ["spec.containers[0].", wanted.as_ref()].concat()).collect();
    check_spec(container(patch), &wanted);
}

/// A spec whose only container is one that `patch` makes.
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
fn nothing_is_wrong_with_a_pod_that_names_a_container_and_its_image() {
    passes_spec(json!({}));
}

#[test]
fn recorded_pods_are_valid_and_refused_as_static_pods_only_for_their_references() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden/defaults");
    let refused = ["volumes"];
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let mut recorded: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let mut pod = decode::<Pod>(recorded["manifest"].take()).unwrap().value;
        defaults::apply(&mut pod);
        // Every pod in the cluster that they were recorded in has this.
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
fn the_examples_are_valid_static_pods() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        for document in yaml::parse(&fs::read(&path).unwrap()).unwrap() {
            if document.value["kind"] != "Pod" {
                continue;
            }
            let mut pod = decode::<Pod>(document.value).unwrap().value;
            defaults::apply(&mut pod);
            // Where a manifest leaves it out, the node fills it in.
            pod.metadata.namespace = "default".to_owned();
            assert_eq!(messages(&validate_static_pod(&pod)), [] as [&str; 0], "{}", path.display());
            count += 1;
        }
    }
    assert!(count >= 3, "only {count} examples");
}
