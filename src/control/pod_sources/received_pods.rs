//! Pods as the API server sends them. Pure.

use serde_json::Value;

use crate::kubelet::offline::without_managed_fields;
use crate::platform::apiserver::Change;
use crate::types::api::{DecodeError, Pod, PodUid, decode};

/// A [`Change`] with decoded pods.
pub(super) enum PodChange {
    Replaced(Vec<ReceivedPod>),
    Applied(Box<ReceivedPod>),
    Deleted(Value),
    Away(String),
}

/// A pod, and what of it can be read if it cannot be decoded.
pub(super) struct ReceivedPod {
    /// `pod NAMESPACE/NAME`.
    pub(super) name: String,
    pub(super) uid: PodUid,
    pub(super) version: String,
    /// As received, without managed fields.
    pub(super) content: Vec<u8>,
    pub(super) pod: Result<Pod, DecodeError>,
}

/// Bytes of pods that are decoded at once. More take longer than a turn of the executor may.
const MAX_INLINE_POD_BYTES: usize = 64 << 10;

impl From<Change> for PodChange {
    fn from(change: Change) -> Self {
        match change {
            Change::Replaced(all) => Self::Replaced(all.into_iter().map(ReceivedPod::read).collect()),
            Change::Applied(object) => Self::Applied(Box::new(ReceivedPod::read(object))),
            Change::Deleted(object) => Self::Deleted(object),
            Change::Away(why) => Self::Away(why),
        }
    }
}

impl ReceivedPod {
    pub(super) fn read(object: Value) -> Self {
        let (name, uid) = (name_of(&object), PodUid::from(uid_of(&object)));
        let version = text(&object, "/metadata/resourceVersion").to_owned();
        let object = without_managed_fields(object);
        let content = object.to_string().into_bytes();
        Self { name, uid, version, content, pod: decode(object).map(|decoded| decoded.value) }
    }
}

/// Whether decoding the change takes longer than a turn of the executor may.
pub(super) fn is_large(change: &Change) -> bool {
    let mut room = MAX_INLINE_POD_BYTES;
    match change {
        Change::Replaced(all) => all.iter().any(|object| !fits(object, &mut room)),
        Change::Applied(object) => !fits(object, &mut room),
        Change::Deleted(_) | Change::Away(_) => false,
    }
}

/// Takes about the length of the value's text from `room`; false once that is used up.
fn fits(value: &Value, room: &mut usize) -> bool {
    let own = match value {
        Value::String(text) => text.len(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => 2,
    };
    let Some(left) = room.checked_sub(own) else { return false };
    *room = left;
    match value {
        Value::Array(values) => values.iter().all(|value| fits(value, room)),
        Value::Object(fields) => fields.iter().all(|(key, value)| {
            *room = room.saturating_sub(key.len());
            fits(value, room)
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

pub(super) fn uid_of(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

pub(super) fn name_of(object: &Value) -> String {
    format!("pod {}/{}", text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}

fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_are_large_by_their_text() {
        let with = |value: Value| Change::Applied(json!({"spec": {"x": value}}));
        assert!(!is_large(&with(json!("a".repeat(60_000)))));
        assert!(is_large(&with(json!("a".repeat(66_000)))));
        assert!(is_large(&with(json!(vec![json!({}); 40_000]))));
        assert!(!is_large(&Change::Replaced(vec![json!("a".repeat(60_000))])));
        assert!(is_large(&Change::Replaced(vec![json!("a".repeat(40_000)); 2])));
    }
}
