//! DELETE: immediate, or graceful for pods on a node. Pure.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::api_error::ApiError;
use super::resources::Resource;

/// The result of a deletion.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Deletion {
    /// The object stays with a deletion timestamp.
    Mark(Value),
    /// The object gets a deletion timestamp and is removed.
    MarkAndRemove(Value),
    Remove,
    /// The object is already terminating, with no shorter grace period.
    Pending,
}

/// The parsed DeleteOptions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeleteOptions {
    pub grace: Option<i64>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
}

impl DeleteOptions {
    /// Parses a body, which may be empty, and a query.
    pub(crate) fn parse(body: &[u8], grace_in_query: Option<&str>) -> Result<Self, ApiError> {
        let body = match body {
            [] => json!({}),
            body => serde_json::from_slice(body).map_err(|error| ApiError::bad_request(error.to_string()))?,
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let grace = body["gracePeriodSeconds"].as_i64();
        Ok(Self {
            grace: grace.or_else(|| grace_in_query?.parse().ok()),
            uid: text(&body["preconditions"]["uid"]),
            resource_version: text(&body["preconditions"]["resourceVersion"]),
        })
    }
}

pub(crate) fn decide(
    resource: &Resource,
    object: &Value,
    options: &DeleteOptions,
    now: Timestamp,
) -> Result<Deletion, ApiError> {
    check_preconditions(resource, object, options)?;
    let has_finalizers = object["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    if !resource.is_core("pods") {
        return Ok(if has_finalizers { Deletion::Mark(marked(object, now, 0)) } else { Deletion::Remove });
    }
    let metadata = &object["metadata"];
    let Some(deletion) = metadata["deletionTimestamp"].as_str().and_then(|time| time.parse::<Timestamp>().ok()) else {
        let grace = first_grace(object, options);
        let mut marked = marked(object, now, grace);
        let generation = metadata["generation"].as_u64().unwrap_or_default();
        marked["metadata"]["generation"] = json!(generation + 1);
        return Ok(if grace > 0 || has_finalizers { Deletion::Mark(marked) } else { Deletion::MarkAndRemove(marked) });
    };
    let granted = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
    if granted == 0 {
        return Ok(if has_finalizers { Deletion::Pending } else { Deletion::Remove });
    }
    let Some(mut grace) = options.grace.map(|grace| if grace < 0 { 1 } else { grace }) else {
        return Ok(Deletion::Pending);
    };
    if grace >= granted {
        return Ok(Deletion::Pending);
    }
    // A request may only shorten the grace period, and not into the past.
    let begun = deletion - SignedDuration::from_secs(granted);
    if begun + SignedDuration::from_secs(grace) < now && grace != 0 {
        grace = 1;
    }
    let end = (begun + SignedDuration::from_secs(grace)).max(now);
    let mut marked = object.clone();
    marked["metadata"]["deletionTimestamp"] = json!(end.to_string());
    marked["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    Ok(if grace > 0 || has_finalizers { Deletion::Mark(marked) } else { Deletion::MarkAndRemove(marked) })
}

fn check_preconditions(resource: &Resource, object: &Value, options: &DeleteOptions) -> Result<(), ApiError> {
    let metadata = &object["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    for (wanted, field, what, hint) in [
        (&options.uid, "uid", "UID", "deleted and then recreated"),
        (&options.resource_version, "resourceVersion", "ResourceVersion", "modified"),
    ] {
        if let Some(wanted) = wanted.as_ref().filter(|wanted| *wanted != text(field)) {
            let found = text(field);
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). \
                 The object might have been {hint}"
            );
            let mut error = ApiError::conflict(resource, text("name"), &why);
            // Upstream uses the kind here, unlike elsewhere.
            error.details = Some(json!({ "name": text("name"), "kind": resource.kind }));
            error.message = error.message.replacen(&resource.qualified(), &resource.qualified_kind(), 1);
            return Err(error);
        }
    }
    Ok(())
}

fn first_grace(pod: &Value, options: &DeleteOptions) -> i64 {
    let is_bound = pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let is_ended = ["Failed", "Succeeded"].contains(&pod["status"]["phase"].as_str().unwrap_or_default());
    if !is_bound || is_ended {
        return 0;
    }
    let grace = options.grace.or(pod["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(0);
    if grace < 0 { 1 } else { grace }
}

fn marked(object: &Value, now: Timestamp, grace: i64) -> Value {
    let mut object = object.clone();
    let metadata = &mut object["metadata"];
    if metadata["deletionTimestamp"].is_null() {
        metadata["deletionTimestamp"] = json!((now + SignedDuration::from_secs(grace)).to_string());
    }
    metadata["deletionGracePeriodSeconds"] = json!(grace);
    object
}
