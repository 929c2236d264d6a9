//! Events: stored once, and served by two API groups with different field names. Pure.

use serde_json::{Value, json};

use super::resources::Target;

/// The field names in `v1` and in `events.k8s.io/v1`.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Converts an event to its stored form.
pub(crate) fn stored(target: &Target, mut object: Value) -> Value {
    if target.resource.is("events.k8s.io", "events") {
        rename(&mut object, |(core, events)| (*events, *core));
        object["apiVersion"] = json!("v1");
    }
    object
}

/// Converts an event to the requested group's form.
pub(crate) fn shown(target: &Target, mut object: Value) -> Value {
    if target.resource.is("events.k8s.io", "events") {
        rename(&mut object, |(core, events)| (*core, *events));
        if let Value::Object(fields) = &mut object {
            fields.retain(|name, value| !name.starts_with("reporting") || value != "");
        }
    }
    object
}

fn rename(object: &mut Value, names: impl Fn(&(&'static str, &'static str)) -> (&'static str, &'static str)) {
    let Value::Object(fields) = object else { return };
    for (from, to) in NAMES.iter().map(names) {
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
}
