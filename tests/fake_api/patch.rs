//! The three kinds of PATCH. Pure.

use serde_json::{Map, Value};

use super::api_error::ApiError;
use super::strategic_merge;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchType {
    Json,
    Merge,
    StrategicMerge,
}

impl PatchType {
    pub(crate) fn of_content_type(content_type: &str) -> Result<Self, ApiError> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" => Ok(Self::StrategicMerge),
            _ => Err(ApiError::unsupported_media_type()),
        }
    }

    /// The patched object.
    pub(crate) fn apply(self, object: &Value, patch: &Value) -> Result<Value, ApiError> {
        let mut object = object.clone();
        match self {
            Self::Json => json_patch(&mut object, patch)?,
            Self::Merge => merge(&mut object, patch),
            Self::StrategicMerge => strategic_merge::apply(&mut object, patch)?,
        }
        if object.is_object() { Ok(object) } else { Err(ApiError::bad_request("the patched object is no object")) }
    }
}

/// JSON merge patch, RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (name, value) in patch {
        if value.is_null() {
            target.remove(name);
        } else {
            merge(target.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// JSON patch, RFC 6902.
fn json_patch(object: &mut Value, patch: &Value) -> Result<(), ApiError> {
    let Value::Array(operations) = patch else {
        let why = "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp";
        return Err(ApiError::bad_request(why));
    };
    for operation in operations {
        let text = |name: &str| operation[name].as_str().unwrap_or_default();
        let (verb, path) = (text("op"), text("path"));
        // Upstream names neither the step nor the cause.
        let failed = || ApiError::unprocessable("the server rejected our request due to an error in our request");
        match verb {
            "add" => add(object, path, operation["value"].clone()).ok_or_else(failed)?,
            "remove" => drop(take(object, path).ok_or_else(failed)?),
            "replace" => *object.pointer_mut(path).ok_or_else(failed)? = operation["value"].clone(),
            "test" => {
                if object.pointer(path).unwrap_or(&Value::Null) != &operation["value"] {
                    return Err(failed());
                }
            }
            "copy" => {
                let value = object.pointer(text("from")).cloned().ok_or_else(failed)?;
                add(object, path, value).ok_or_else(failed)?;
            }
            "move" => {
                let value = take(object, text("from")).ok_or_else(failed)?;
                add(object, path, value).ok_or_else(failed)?;
            }
            _ => return Err(failed()),
        }
    }
    Ok(())
}

/// The parent of a pointer's target, and the pointer's last part.
fn parent<'a>(object: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (parent, name) = path.rsplit_once('/')?;
    Some((object.pointer_mut(parent)?, name.replace("~1", "/").replace("~0", "~")))
}

fn add(object: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        *object = value;
        return Some(());
    }
    let (parent, name) = parent(object, path)?;
    match parent {
        Value::Object(fields) => drop(fields.insert(name, value)),
        Value::Array(items) if name == "-" => items.push(value),
        Value::Array(items) => {
            let at = name.parse().ok().filter(|at| *at <= items.len())?;
            items.insert(at, value);
        }
        _ => return None,
    }
    Some(())
}

fn take(object: &mut Value, path: &str) -> Option<Value> {
    let (parent, name) = parent(object, path)?;
    match parent {
        Value::Object(fields) => fields.remove(&name),
        Value::Array(items) => {
            let at = name.parse().ok().filter(|at| *at < items.len())?;
            Some(items.remove(at))
        }
        _ => None,
    }
}
