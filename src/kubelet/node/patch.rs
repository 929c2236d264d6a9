//! Computes patches of the Node object at the API server. Pure.
//!
//! A strategic merge patch of `nodes/status` with only the fields that differ: this is the largest object that a node
//! writes, and most of it never changes. Conditions are merged by type. Addresses would be merged by type too, which
//! is wrong because two may have the same type, so they are replaced as a whole (`preparePatchBytesforNodeStatus`).

use serde_json::{Map, Value, json};

use crate::kubelet::node::NodeProfile;
use crate::kubelet::node::profile::{ATTACHED_BY_CONTROLLER, DEFAULT_LABELS, PROVIDED_IP, STANDING_LABELS};
use crate::types::api::{Map as Names, Node, NodeCondition, NodeStatus, encode};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StatusPatch {
    pub(crate) body: Value,
    /// It changes more than heartbeats.
    pub(crate) has_news: bool,
}

impl StatusPatch {
    /// The body without the heartbeats.
    pub(crate) fn changes(&self) -> Value {
        let mut changes = self.body.clone();
        if let Some(Value::Array(conditions)) = changes.pointer_mut("/status/conditions") {
            for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
                condition.remove(HEARTBEAT);
            }
            conditions.retain(|condition| condition.as_object().is_some_and(|fields| fields.len() > 1));
        }
        changes
    }
}

/// The occasion of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchReason {
    /// The object already existed when the node started.
    Registration,
    /// Send only changes.
    Change,
    /// A periodic report is due.
    Heartbeat,
}

impl NodeProfile {
    /// `None`: nothing to send.
    pub(crate) fn patch(&self, server: &Node, wanted: &NodeStatus, occasion: PatchReason) -> Option<StatusPatch> {
        let mut patch = Map::new();
        if let Some(metadata) = self.metadata_patch(server, occasion) {
            patch.insert("metadata".to_owned(), metadata);
        }
        let mut status = status_changes(&server.status, wanted);
        let conditions = condition_changes(&server.status, wanted);
        let has_news = !patch.is_empty() || !status.is_empty() || conditions.iter().any(|change| change.is_news);
        if !has_news && occasion != PatchReason::Heartbeat {
            return None;
        }
        if !conditions.is_empty() {
            let conditions = conditions.into_iter().map(|change| change.patch).collect();
            status.insert("conditions".to_owned(), Value::Array(conditions));
        }
        if !status.is_empty() {
            patch.insert("status".to_owned(), Value::Object(status));
        }
        (!patch.is_empty()).then_some(StatusPatch { body: Value::Object(patch), has_news })
    }

    fn metadata_patch(&self, server: &Node, occasion: PatchReason) -> Option<Value> {
        let label_names: &[&str] =
            if occasion == PatchReason::Registration { &DEFAULT_LABELS } else { &STANDING_LABELS };
        let mut labels = Map::new();
        for name in label_names {
            let Some(value) = self.metadata.labels.get(name) else { continue };
            if server.metadata.labels.get(name) != Some(value) {
                labels.insert((*name).to_owned(), value.as_str().into());
            }
        }
        let registers = occasion == PatchReason::Registration;
        let annotation_names = [ATTACHED_BY_CONTROLLER].into_iter().filter(|_| registers).chain([PROVIDED_IP]);
        let mut annotations = changes_of(annotation_names, &server.metadata.annotations, &self.metadata.annotations);
        for (name, value) in self.reports.iter() {
            let wanted = Some(value).filter(|value| !value.is_empty());
            if server.metadata.annotations.get(name) != wanted {
                annotations.insert(name.to_owned(), wanted.map_or(Value::Null, |value| value.as_str().into()));
            }
        }
        let parts = [("labels", labels), ("annotations", annotations)];
        let parts = parts.into_iter().filter(|(_, part)| !part.is_empty());
        let metadata: Map<String, Value> = parts.map(|(name, part)| (name.to_owned(), part.into())).collect();
        (!metadata.is_empty()).then_some(Value::Object(metadata))
    }
}

/// The entries among `names` that differ or are missing.
fn changes_of<'a>(
    names: impl Iterator<Item = &'a str>,
    old: &Names<String>,
    new: &Names<String>,
) -> Map<String, Value> {
    let changed = names.filter(|name| old.get(name) != new.get(name));
    changed.map(|name| (name.to_owned(), new.get(name).map_or(Value::Null, |value| value.as_str().into()))).collect()
}

/// The changes of everything but the conditions.
fn status_changes(server: &NodeStatus, wanted: &NodeStatus) -> Map<String, Value> {
    let plain = |status: &NodeStatus| {
        let mut value = encode(status);
        if let Value::Object(fields) = &mut value {
            fields.remove("conditions");
        }
        value
    };
    let Some(Value::Object(mut changes)) = changes(&plain(server), &plain(wanted)) else { return Map::new() };
    if let Some(Value::Array(addresses)) = changes.get_mut("addresses") {
        addresses.push(json!({ "$patch": "replace" }));
    }
    changes
}

const HEARTBEAT: &str = "lastHeartbeatTime";

/// The patch of one condition.
struct ConditionChange {
    patch: Value,
    /// It changes more than the heartbeat.
    is_news: bool,
}

fn condition_changes(server: &NodeStatus, wanted: &NodeStatus) -> Vec<ConditionChange> {
    let change = |new: &NodeCondition| {
        let old = server.conditions.iter().find(|old| old.kind == new.kind).map_or(Value::Null, |old| encode(old));
        let Some(Value::Object(mut patch)) = changes(&old, &encode(new)) else { return None };
        let is_news = patch.keys().any(|key| key != HEARTBEAT);
        patch.insert("type".to_owned(), new.kind.as_ref().into());
        Some(ConditionChange { patch: Value::Object(patch), is_news })
    };
    wanted.conditions.iter().filter_map(change).collect()
}

/// The merge patch from `old` to `new`; everything but mappings is replaced. `None` if they are equal.
fn changes(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = after.iter().filter_map(|(key, value)| {
        let change = before.get(key).map_or_else(|| Some(value.clone()), |old| changes(old, value))?;
        Some((key.clone(), change))
    });
    let changed_entries: Map<String, Value> = gone.chain(changed).collect();
    (!changed_entries.is_empty()).then_some(Value::Object(changed_entries))
}

#[cfg(test)]
mod tests;
