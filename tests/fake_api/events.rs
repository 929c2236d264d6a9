//! Events, which are stored once and shown by two groups under different names. Pure.

use serde_json::{Value, json};

use super::resources::Target;

/// The fields of `v1` and what `events.k8s.io/v1` calls them.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// As it is stored.
pub(crate) fn stored(target: &Target, mut object: Value) -> Value {
    if target.resource.is("events.k8s.io", "events") {
        rename(&mut object, |(core, events)| (*events, *core));
        object["apiVersion"] = json!("v1");
    }
    object
}

/// As it is answered.
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
