//! Names, labels, annotations.

use serde_json::{Value, json};

use super::*;

#[track_caller]
fn check_meta(patch: Value, wanted: &[impl AsRef<str>]) {
    check(json!({"metadata": patch}), wanted);
}

#[test]
fn pods_need_a_name_and_a_namespace() {
    check_meta(json!({"name": ""}), &["metadata.name: required"]);
    check_meta(json!({"name": "A_b"}), &[format!("metadata.name: \"A_b\": {DNS_SUBDOMAIN}")]);
    check_meta(json!({"namespace": ""}), &["metadata.namespace: required"]);
    check_meta(json!({"namespace": "a.b"}), &[format!("metadata.namespace: \"a.b\": {DNS_LABEL}")]);
    check_meta(json!({"name": "a.b-1", "namespace": "kube-system", "generateName": "web-"}), &[] as &[&str]);
    check_meta(
        json!({"generateName": "Web-"}),
        &["metadata.generateName: \"Web-\": must be a DNS subdomain (RFC 1123), but may end in '-'"],
    );
    check_meta(json!({"generation": -1}), &["metadata.generation: -1: must not be negative"]);
}

#[test]
fn label_keys_and_values_are_validated() {
    check_meta(json!({"labels": {"app": "web", "example.com/Part": ""}}), &[] as &[&str]);
    check_meta(json!({"labels": {"a b": "c"}}), &[format!("metadata.labels: \"a b\": {LABEL_KEY}")]);
    check_meta(json!({"labels": {"app": "a b"}}), &[format!("metadata.labels.app: \"a b\": {LABEL_VALUE}")]);
    check_meta(json!({"labels": {"a.b/c": "-"}}), &[format!("metadata.labels[\"a.b/c\"]: \"-\": {LABEL_VALUE}")]);
}

#[test]
fn annotations_hold_at_most_256_kib() {
    check_meta(
        json!({"annotations": {"Example.com/note": "any text\n", "a": "x".repeat(256 * 1024 - 26)}}),
        &[] as &[&str],
    );
    check_meta(
        json!({"annotations": {"a/b/c": ""}}),
        &[
            "metadata.annotations: \"a/b/c\": must be an annotation key such as example.com/MyName: at most 63 letters, \
           digits, '-', '_' or '.', beginning and ending with a letter or digit, and before it perhaps a DNS subdomain \
           and '/'",
        ],
    );
    check_meta(
        json!({"annotations": {"a": "x".repeat(256 * 1024)}}),
        &["metadata.annotations: 262145 bytes: must be at most 262144 in all"],
    );
}

#[test]
fn owners_and_finalizers_are_validated() {
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"});
    check_meta(json!({"ownerReferences": [owner], "finalizers": ["example.com/f", "orphan"]}), &[] as &[&str]);
    check_meta(
        json!({"ownerReferences": [{"kind": "Node", "uid": "u"}]}),
        &["metadata.ownerReferences[0].apiVersion: required", "metadata.ownerReferences[0].name: required"],
    );
    check_meta(
        json!({"finalizers": ["mine"]}),
        &["metadata.finalizers[0]: \"mine\": must have a domain before it, as in example.com/name"],
    );
    check_meta(json!({"finalizers": ["a/b/c"]}), &[format!("metadata.finalizers[0]: \"a/b/c\": {LABEL_KEY}")]);
}
