//! What to send so that the API server's object of this node becomes what it should be. Pure.
//!
//! A strategic merge patch of `nodes/status` with what differs and nothing else: this is the largest object that a node
//! writes, and most of it never changes. Conditions are merged by their type; addresses would be too, and wrongly
//! (two of them may have one type), so that they are replaced as a whole (`preparePatchBytesforNodeStatus`).

use serde_json::{Map, Value, json};

use crate::kubelet::node::NodeProfile;
use crate::kubelet::node::profile::{ATTACHED_BY_CONTROLLER, DEFAULT_LABELS, PROVIDED_IP, STANDING_LABELS};
use crate::types::api::{Map as Names, Node, NodeCondition, NodeStatus, encode};

/// A patch of the node's status.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StatusPatch {
    pub(crate) body: Value,
    /// It says more than that the node is still there.
    pub(crate) has_news: bool,
}

impl StatusPatch {
    /// The body without the heartbeats.
    pub(crate) fn news(&self) -> Value {
        let mut news = self.body.clone();
        if let Some(Value::Array(conditions)) = news.pointer_mut("/status/conditions") {
            for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
                condition.remove(HEARTBEAT);
            }
            conditions.retain(|condition| condition.as_object().is_some_and(|fields| fields.len() > 1));
        }
        news
    }
}

/// When a patch is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// The object was there already when the node came.
    Registration,
    /// Only what has changed is worth a word.
    Change,
    /// It is time to say that the node is still there.
    Heartbeat,
}

impl NodeProfile {
    /// `None`: there is nothing to send.
    pub(crate) fn patch(&self, server: &Node, wanted: &NodeStatus, occasion: Occasion) -> Option<StatusPatch> {
        let mut patch = Map::new();
        if let Some(metadata) = self.metadata_patch(server, occasion) {
            patch.insert("metadata".to_owned(), metadata);
        }
        let mut status = status_changes(&server.status, wanted);
        let conditions = condition_changes(&server.status, wanted);
        let has_news = !patch.is_empty() || !status.is_empty() || conditions.iter().any(|change| change.is_news);
        if !has_news && occasion != Occasion::Heartbeat {
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

    fn metadata_patch(&self, server: &Node, occasion: Occasion) -> Option<Value> {
        let own: &[&str] = if occasion == Occasion::Registration { &DEFAULT_LABELS } else { &STANDING_LABELS };
        let mut labels = Map::new();
        for name in own {
            let Some(value) = self.metadata.labels.get(name) else { continue };
            if server.metadata.labels.get(name) != Some(value) {
                labels.insert((*name).to_owned(), value.as_str().into());
            }
        }
        let registers = occasion == Occasion::Registration;
        let own = [ATTACHED_BY_CONTROLLER].into_iter().filter(|_| registers).chain([PROVIDED_IP]);
        let annotations = changes_of(own, &server.metadata.annotations, &self.metadata.annotations);
        let parts = [("labels", labels), ("annotations", annotations)];
        let parts = parts.into_iter().filter(|(_, part)| !part.is_empty());
        let metadata: Map<String, Value> = parts.map(|(name, part)| (name.to_owned(), part.into())).collect();
        (!metadata.is_empty()).then_some(Value::Object(metadata))
    }
}

/// Of these names, what is another value now, or none.
fn changes_of<'a>(
    names: impl Iterator<Item = &'a str>,
    old: &Names<String>,
    new: &Names<String>,
) -> Map<String, Value> {
    let changed = names.filter(|name| old.get(name) != new.get(name));
    changed.map(|name| (name.to_owned(), new.get(name).map_or(Value::Null, |value| value.as_str().into()))).collect()
}

/// All but the conditions.
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

/// What is to be said of one condition.
struct ConditionChange {
    patch: Value,
    /// It is not the heartbeat alone.
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

/// How `old` becomes `new` when mappings are merged and everything else is replaced; `None` if it is the same.
fn changes(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = after.iter().filter_map(|(key, value)| {
        let change = before.get(key).map_or_else(|| Some(value.clone()), |old| changes(old, value))?;
        Some((key.clone(), change))
    });
    let all: Map<String, Value> = gone.chain(changed).collect();
    (!all.is_empty()).then_some(Value::Object(all))
}

#[cfg(test)]
mod tests;
