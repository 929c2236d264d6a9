//! Puts unfit and extreme values into every known field of a pod.

use serde_json::{Value, json};

use super::*;
use crate::kubelet::kuberuntime::golden;
use crate::types::api::fields::{Field, Kind, fields_of};

const BAD_INPUT_ORIGIN: Origin<'_> = Origin {
    source: SourceName::File,
    path: "/manifests/x.yaml",
    node_name: "node1",
    config_seen: "2026-11-20T20:03:54Z",
    board_key: None,
};

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "a", "image": "b"}]}
    })
}

/// A valid pod except for this field.
fn pod_with(field: &Field, value: Value) -> Value {
    field.put(pod(), value, &json!({}))
}

/// The pod of the manifest, or its error.
fn read(manifest: &Value) -> Result<Box<Pod>, ObjectError> {
    let mut objects = read_manifest(manifest.to_string().as_bytes(), &BAD_INPUT_ORIGIN).expect("it is YAML");
    assert_eq!(objects.len(), 1);
    match objects.remove(0).object? {
        Object::Pod(pod) => Ok(pod),
        other => panic!("{other:?}"),
    }
}

/// Values of the wrong kind.
fn misfits(kind: Kind) -> Vec<Value> {
    let (list, object, text, number, yes) = (json!([1]), json!({"x": 1}), json!("\u{1}no"), json!(7), json!(true));
    match kind {
        Kind::Any => vec![],
        Kind::Bool => vec![list, object, text, number],
        Kind::Int32 => vec![list, object, text, yes, json!(1.5), json!(1_i64 << 31), json!(i64::MIN), json!(1e300)],
        Kind::Int64 => vec![list, object, text, yes, json!(1.5), json!(u64::MAX), json!(-1e300)],
        Kind::IntOrText => vec![list, object, yes, json!(1.5), json!(1_i64 << 31)],
        Kind::List => vec![object, text, number, yes],
        Kind::Map | Kind::Object => vec![list, text, number, yes],
        Kind::Quantity => vec![list, object, text, yes, json!("1Xi"), json!("--1"), json!("1e99999999999999999999")],
        Kind::Text => vec![list, object, number, yes],
        Kind::Time => vec![list, object, text, number, yes, json!("2026-13-45T99:99:99Z")],
        Kind::Words(_) => vec![list, object, json!("NoSuchWord"), number, yes],
    }
}

/// Values of the right kind that mostly make no sense.
fn extremes(kind: Kind) -> Vec<Value> {
    match kind {
        Kind::Any => vec![json!([[[]]]), json!({"": {"": null}}), json!("x"), json!(-1)],
        Kind::Bool => vec![json!(true), json!(false)],
        Kind::Int32 => vec![json!(i32::MIN), json!(-1), json!(0), json!(i32::MAX)],
        Kind::Int64 => vec![json!(i64::MIN), json!(-1), json!(0), json!(i64::MAX)],
        Kind::IntOrText => vec![json!(i32::MIN), json!(i32::MAX), json!(""), json!("no-such-port"), json!("%")],
        Kind::List => vec![json!([]), Value::Array(vec![json!({}); 300]), json!([null])],
        Kind::Map => vec![json!({"": ""}), json!({"a/b/c": "\n"}), json!({"k": null})],
        Kind::Object => vec![json!({}), Value::Null],
        Kind::Quantity => {
            vec![
                json!("-1"),
                json!("0"),
                json!("9223372036854775807Ei"),
                json!("1e18"),
                json!("0.000000001n"),
                json!(-5),
            ]
        }
        Kind::Text => vec![
            json!(""),
            json!("\0"),
            json!(".."),
            json!("../../x"),
            json!("/"),
            json!("$(A)$$(B)$("),
            json!("\u{1F6A3}\u{202e}"),
            json!("x".repeat(70_000)),
        ],
        Kind::Time => vec![json!("0000-01-01T00:00:00Z"), json!("9999-12-31T23:59:59Z")],
        Kind::Words(words) => words.iter().map(|word| json!(word)).collect(),
    }
}

/// All fields except those that identify the object as a pod.
fn fields() -> impl Iterator<Item = Field> {
    fields_of::<Pod>().into_iter().filter(|field| !["", "apiVersion", "kind"].contains(&field.written().as_str()))
}

#[test]
fn every_field_rejects_unfit_values_by_name() {
    let mut tried = 0;
    for field in fields() {
        for value in misfits(field.kind) {
            let shown = value.to_string();
            match read(&pod_with(&field, value)) {
                Err(ObjectError::Decode(errors, _)) => {
                    let error = &errors[0];
                    // The error path may lead further into the value.
                    assert!(error.path().starts_with(&field.written()), "{}: {shown}: {error}", field.written());
                }
                other => panic!("{}: {shown}: {other:?}", field.written()),
            }
            tried += 1;
        }
    }
    assert!(tried > 2000, "{tried}");
}

#[test]
fn fitting_values_are_refused_with_a_path_or_reach_the_runtime() {
    let (mut accepted, mut refused) = (0, 0);
    for field in fields() {
        for value in extremes(field.kind) {
            match read(&pod_with(&field, value)) {
                Ok(pod) => {
                    golden::report_everything(&pod);
                    accepted += 1;
                }
                Err(ObjectError::Decode(errors, _)) => {
                    let error = &errors[0];
                    assert!(!error.path().is_empty(), "{}: {error}", field.written());
                    refused += 1;
                }
                Err(ObjectError::Invalid(faults)) => {
                    for fault in &faults {
                        let message = fault.to_string();
                        let known = message.starts_with("metadata.") || message.starts_with("spec.");
                        assert!(known, "{}: {message}", field.written());
                    }
                    refused += 1;
                }
                Err(other) => panic!("{}: {other:?}", field.written()),
            }
        }
    }
    assert!(accepted > 500 && refused > 500, "{accepted} {refused}");
}

#[test]
fn recursive_aliases_are_refused_at_once() {
    let nested: String = (1..40).map(|n| format!("a{n}: &a{n} [*a{0},*a{0},*a{0},*a{0}]\n", n - 1)).collect();
    let bomb = format!("a0: &a0 [x,x,x,x]\n{nested}");
    let within_itself = "refers to no earlier anchor of its document";
    for (text, why) in [
        (bomb.as_str(), "the aliases make the text too large"),
        ("apiVersion: v1\nkind: Pod\nmetadata: &m {name: web, labels: *m}\n", within_itself),
        ("apiVersion: v1\nkind: Pod\nspec: &s\n  <<: *s\n", within_itself),
        ("&a [*a]", within_itself),
    ] {
        let error = read_manifest(text.as_bytes(), &BAD_INPUT_ORIGIN).unwrap_err().to_string();
        assert!(error.contains(why), "{error}: {text}");
    }
}
