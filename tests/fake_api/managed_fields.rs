//! Managed fields, which make up much of a real object's size. Pure.

use serde_json::{Map, Value, json};

type Set = Map<String, Value>;

/// The writer of an update, and the half it writes: `status`, or the rest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer<'a> {
    pub manager: &'a str,
    pub subresource: &'a str,
    /// RFC 3339.
    pub time: &'a str,
}

/// Whether an update is recorded. Recording stops once a client sets the list to empty or to one empty entry, which an
/// update of a subresource such as `status` cannot do.
pub(crate) fn is_recorded(subresource: &str, new: &Value, old: &Value) -> bool {
    let is_empty = entries(new).is_some_and(|entries| entries.is_empty() || *entries == [json!({})]);
    let is_reset = subresource.is_empty() && is_empty;
    !is_reset && entries(old).is_some_and(|entries| !entries.is_empty())
}

fn entries(object: &Value) -> Option<&Vec<Value>> {
    object["metadata"]["managedFields"].as_array()
}

pub(crate) fn strip(object: &mut Value) {
    if let Value::Object(metadata) = &mut object["metadata"] {
        metadata.remove("managedFields");
    }
}

/// Records in `new` which fields the writer owns.
pub(crate) fn record(new: &mut Value, old: Option<&Value>, writer: Writer<'_>) {
    let api_version = new["apiVersion"].clone();
    let (before, after) = (content(old.unwrap_or(&Value::Null)), content(new));
    let mut changed = changed(&before, &after);
    let existing = full_set(&after);
    // A writer does not own fields that it cannot change, even if the server has set them.
    let is_of_status = ["status", "approval"].contains(&writer.subresource);
    changed.remove(if is_of_status { "f:spec" } else { "f:status" });
    let is_left_out = |name: &String, part: &Value| PARTS.contains(&name.as_str()) && part == &json!({});
    changed.retain(|name, part| !is_left_out(name, part));
    let mut entries = old.and_then(entries).cloned().unwrap_or_default();
    let is_own = |entry: &Value| {
        entry["manager"] == writer.manager && entry["subresource"].as_str().unwrap_or_default() == writer.subresource
    };
    if !entries.iter().any(is_own) && !changed.is_empty() {
        let mut entry = json!({
            "manager": writer.manager,
            "operation": "Update",
            "apiVersion": api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": {},
        });
        if !writer.subresource.is_empty() {
            entry["subresource"] = json!(writer.subresource);
        }
        entries.push(entry);
    }
    for entry in &mut entries {
        let own = is_own(entry);
        let Value::Object(fields) = &mut entry["fieldsV1"] else { continue };
        if own {
            unite(fields, &changed);
        } else {
            subtract(fields, &changed);
        }
        intersect(fields, &existing);
        fields.retain(|name, part| !is_left_out(name, part));
        if own && !changed.is_empty() {
            entry["time"] = json!(writer.time);
        }
    }
    entries.retain(|entry| entry["fieldsV1"] != json!({}));
    entries.sort_by(|one, other| one["time"].as_str().cmp(&other["time"].as_str()));
    strip(new);
    if !entries.is_empty() {
        new["metadata"]["managedFields"] = Value::Array(entries);
    }
}

/// The parts of an object without an owner of their own.
const PARTS: &[&str] = &["f:metadata", "f:spec", "f:status"];

/// The content that managers can own.
fn content(object: &Value) -> Value {
    let Value::Object(fields) = object else { return Value::Null };
    // The spec of this kind is immutable.
    let has_owned_spec = object["kind"] != "CertificateSigningRequest";
    let is_event = fields.contains_key("involvedObject");
    let is_owned = |name: &str, value: &Value| match name {
        "apiVersion" | "kind" => false,
        "spec" => has_owned_spec,
        // Default fields of an event, which no client wrote.
        _ => !is_event || (!value.is_null() && value != ""),
    };
    let owned = fields.iter().filter(|(name, value)| is_owned(name, value));
    let owned = owned.map(|(name, value)| match (name.as_str(), value) {
        ("metadata", Value::Object(metadata)) => (name.clone(), Value::Object(owned_metadata(metadata))),
        _ => (name.clone(), value.clone()),
    });
    Value::Object(owned.collect())
}

fn owned_metadata(metadata: &Set) -> Set {
    const OWNED: &[&str] = &["labels", "annotations", "finalizers", "ownerReferences", "generateName"];
    let owned = metadata.iter().filter(|(name, _)| OWNED.contains(&name.as_str()));
    owned.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The keys that identify the elements of a list in a field set.
fn keys_of(name: &str) -> &'static [&'static str] {
    match name {
        "conditions" | "addresses" => &["type"],
        "containers" | "initContainers" | "ephemeralContainers" | "volumes" | "env" | "imagePullSecrets" => &["name"],
        "ports" => &["containerPort", "port", "protocol"],
        "volumeMounts" => &["mountPath"],
        "ownerReferences" => &["uid"],
        "podIPs" => &["ip"],
        _ => &[],
    }
}

/// Whether the field is a member of the set: a map with user-defined keys, or an optional part.
fn is_member(name: &str) -> bool {
    let members = [
        "configMap",
        "configMapKeyRef",
        "downwardAPI",
        "exec",
        "fieldRef",
        "hostPath",
        "httpGet",
        "livenessProbe",
        "persistentVolumeClaim",
        "projected",
        "readinessProbe",
        "secret",
        "secretKeyRef",
        "serviceAccountToken",
        "startupProbe",
        "tcpSocket",
        "valueFrom",
        "labels",
        "annotations",
        "capacity",
        "allocatable",
        "limits",
        "requests",
        "nodeSelector",
        "data",
        "binaryData",
        "matchLabels",
    ];
    members.contains(&name)
}

fn element_name(keys: &[&str], element: &Value) -> String {
    let named: Map<String, Value> =
        keys.iter().filter_map(|key| Some(((*key).to_owned(), element.get(key)?.clone()))).collect();
    format!("k:{}", Value::Object(named))
}

fn full_set(value: &Value) -> Set {
    changed(&Value::Null, value)
}

/// The fields of `new` that differ from `old`.
fn changed(old: &Value, new: &Value) -> Set {
    let Value::Object(fields) = new else { return Set::new() };
    let differing = fields.iter().filter(|(name, value)| old.get(name) != Some(value));
    let sets = differing.map(|(name, value)| (name, value, field(name, &old[name], value)));
    // A pure removal adds nothing.
    let written = sets.filter(|(name, value, set)| !(old[*name].is_object() && value.is_object() && set == &json!({})));
    written.map(|(name, _, set)| (format!("f:{name}"), set)).collect()
}

/// The entry under a field's name.
fn field(name: &str, old: &Value, new: &Value) -> Value {
    let mut set = match new {
        // An atomic field.
        Value::Object(_) if name == "involvedObject" => Set::new(),
        Value::Object(_) => changed(old, new),
        Value::Array(items) if !keys_of(name).is_empty() => elements(keys_of(name), old, items),
        Value::Array(items) if name == "finalizers" => {
            items.iter().map(|item| (format!("v:{item}"), json!({}))).collect()
        }
        _ => Set::new(),
    };
    // The list of containers always exists.
    let is_list = matches!(new, Value::Array(_)) && !set.is_empty() && name != "containers";
    if (is_member(name) || is_list) && old.is_null() {
        set.insert(".".to_owned(), json!({}));
    }
    Value::Object(set)
}

fn elements(keys: &[&str], old: &Value, items: &[Value]) -> Set {
    let known = old.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut set = Set::new();
    for item in items {
        let name = element_name(keys, item);
        let before = known.iter().find(|before| element_name(keys, before) == name).unwrap_or(&Value::Null);
        if before == item {
            continue;
        }
        if keys == ["uid"] {
            // An owner reference is atomic.
            set.insert(name, json!({}));
            continue;
        }
        let mut inner = changed(before, item);
        if before.is_null() {
            inner.insert(".".to_owned(), json!({}));
        }
        set.insert(name, Value::Object(inner));
    }
    set
}

fn unite(set: &mut Set, more: &Set) {
    for (name, value) in more {
        match (set.get_mut(name), value) {
            (Some(Value::Object(inner)), Value::Object(value)) => unite(inner, value),
            _ => drop(set.insert(name.clone(), value.clone())),
        }
    }
}

fn subtract(set: &mut Set, less: &Set) {
    set.retain(|name, value| match (value, less.get(name)) {
        (Value::Object(inner), Some(Value::Object(gone))) if !gone.is_empty() => {
            subtract(inner, gone);
            !inner.is_empty()
        }
        (_, gone) => gone.is_none(),
    });
}

fn intersect(set: &mut Set, with: &Set) {
    set.retain(|name, value| match (value, with.get(name)) {
        (Value::Object(inner), Some(Value::Object(kept))) => {
            let was_empty = inner.is_empty();
            intersect(inner, kept);
            was_empty || !inner.is_empty()
        }
        (_, kept) => kept.is_some(),
    });
}
