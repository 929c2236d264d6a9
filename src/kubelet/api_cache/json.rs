//! Lists and events of a watch in JSON. Pure.

use serde_json::{Value, json};

use super::object_set::{Change, Content, ObjectSet, WatchedEvent, is_other_form, key_of};
use super::own_node::{CorrectedObject, Endpoint, EndpointChange, OwnKind, OwnNode};
use crate::types::api::{NodeAddress, ObjectText};
use crate::types::sorted::SortedMap;

pub(super) fn read(body: Vec<u8>) -> Option<Content> {
    let all = ObjectText::parse(body).ok()?;
    if !all.is_object() {
        return None;
    }
    let [kind, api_version, items] = all.parts(["kind", "apiVersion", "items"]).ok()?;
    let kind = text(kind);
    if is_other_form(&kind) {
        return Some(Content::OtherForm);
    }
    let Some(items) = items.filter(|_| kind.ends_with("List")) else {
        return Some(Content::Object(lasting(all.as_str().as_bytes(), kind == "Node")));
    };
    let [version, more] = all.metadata(["resourceVersion", "continue"]);
    if !more.is_empty() {
        return Some(Content::Page);
    }
    let items = if items.as_str() == "null" { Vec::new() } else { items.elements().ok()? };
    let objects: SortedMap<String, Vec<u8>> =
        items.into_iter().map(|item| (name_of(&item).0, item.into_bytes())).collect();
    Some(Content::List(ObjectSet { kind, api_version: text(api_version), version: version.parse().ok()?, objects }))
}

pub(super) fn write(set: &ObjectSet) -> Vec<u8> {
    let mut list = format!(
        r#"{{"kind":{:?},"apiVersion":{:?},"metadata":{{"resourceVersion":"{}"}},"items":["#,
        set.kind, set.api_version, set.version
    )
    .into_bytes();
    for (index, object) in set.objects.values().enumerate() {
        if index > 0 {
            list.push(b',');
        }
        list.extend_from_slice(object);
    }
    list.extend_from_slice(b"]}");
    list
}

pub(super) fn read_event(line: Vec<u8>) -> Option<WatchedEvent> {
    let [change, object] = ObjectText::parse(line).ok()?.parts(["type", "object"]).ok()?;
    let object = object.filter(ObjectText::is_object)?;
    let change = match &*text(change) {
        "ADDED" | "MODIFIED" => Change::Set,
        "DELETED" => Change::Removed,
        "BOOKMARK" if ends_initial_events(&object) => Change::EndOfInitialEvents,
        "BOOKMARK" => Change::Bookmark,
        _ => return None,
    };
    let [kind, api_version] = object.parts(["kind", "apiVersion"]).ok()?;
    let (kind, api_version) = (text(kind), text(api_version));
    let (name, version) = name_of(&object);
    if is_other_form(&kind) {
        return None;
    }
    Some(WatchedEvent { change, kind, api_version, name, version: version?, object: object.into_bytes() })
}

fn ends_initial_events(bookmark: &ObjectText) -> bool {
    let Ok(bookmark) = bookmark.value() else { return false };
    bookmark.pointer("/metadata/annotations/k8s.io~1initial-events-end").is_some_and(|end| end == "true")
}

fn name_of(object: &ObjectText) -> (String, Option<u64>) {
    let [namespace, name, version] = object.metadata(["namespace", "name", "resourceVersion"]);
    (key_of(&namespace, &name), version.parse().ok())
}

/// A string; empty if it is something else.
fn text(value: Option<ObjectText>) -> String {
    let value = value.and_then(|value| value.value().ok());
    value.as_ref().and_then(|value| value.as_str()).unwrap_or_default().to_owned()
}

pub(super) fn lasting(object: &[u8], is_node: bool) -> Vec<u8> {
    // Items of a list have neither kind nor API version, objects of a watch have both.
    const CHANGING: [&str; 6] = [
        "kind",
        "apiVersion",
        "metadata.resourceVersion",
        "metadata.managedFields",
        "status.conditions",
        "status.images",
    ];
    let changing = if is_node { &CHANGING[..] } else { CHANGING.split_at(4).0 };
    match ObjectText::parse(object.to_vec()) {
        Ok(object) => object.without(changing).into_bytes(),
        Err(_) => object.to_vec(),
    }
}

/// One object as a set, with the version of the object.
pub(super) fn single(body: &[u8]) -> Option<ObjectSet> {
    let object = ObjectText::parse(body.to_vec()).ok()?;
    let [kind, api_version] = object.parts(["kind", "apiVersion"]).ok()?;
    let (name, version) = name_of(&object);
    let objects = [(name, body.to_vec())].into_iter().collect();
    Some(ObjectSet { kind: text(kind), api_version: text(api_version), version: version?, objects })
}

/// The answer with an object of a list.
pub(super) fn answer(kind: &str, api_version: &str, object: &[u8]) -> Option<Vec<u8>> {
    let mut object: Value = serde_json::from_slice(object).ok()?;
    set_kind(&mut object, kind, api_version);
    Some(object.to_string().into_bytes())
}

fn set_kind(object: &mut Value, kind: &str, api_version: &str) {
    set(object, "kind", kind.into());
    set(object, "apiVersion", api_version.into());
}

/// The object with what the node knows better, as an event of a watch has it; `None` if it is not about this node.
pub(super) fn correct(object: &[u8], kind: OwnKind, node: &OwnNode, version: u64) -> Option<CorrectedObject> {
    let mut object: Value = serde_json::from_slice(object).ok()?;
    let is_changed = match kind {
        OwnKind::EndpointSlice => correct_slice(&mut object, node)?,
        OwnKind::Node => correct_node(&mut object, node)?,
    };
    set(object.get_mut("metadata")?, "resourceVersion", version.to_string().into());
    let [kind, api_version] = kind.names();
    set_kind(&mut object, kind, api_version);
    Some(CorrectedObject { object: object.to_string().into_bytes(), is_changed })
}

fn correct_slice(slice: &mut Value, node: &OwnNode) -> Option<bool> {
    let address_type = str_at(slice, "/addressType").to_owned();
    let (mut is_own, mut is_changed) = (false, false);
    slice.get_mut("endpoints")?.as_array_mut()?.retain_mut(|endpoint| {
        let Some(change) = change_of(endpoint, &address_type, node) else { return true };
        is_own = true;
        is_changed |= change != EndpointChange::Same;
        if let EndpointChange::Changed { address, conditions: [ready, serving, terminating] } = change {
            set(endpoint, "addresses", json!([address]));
            let conditions = json!({"ready": ready, "serving": serving, "terminating": terminating});
            set(endpoint, "conditions", conditions);
        }
        change != EndpointChange::Gone
    });
    is_own.then_some(is_changed)
}

fn change_of<'a>(endpoint: &Value, address_type: &str, this_node: &'a OwnNode) -> Option<EndpointChange<'a>> {
    if str_at(endpoint, "/targetRef/kind") != "Pod" {
        return None;
    }
    let condition = |path: &str| endpoint.pointer(path).and_then(Value::as_bool);
    let seen = Endpoint {
        pod: &key_of(str_at(endpoint, "/targetRef/namespace"), str_at(endpoint, "/targetRef/name")),
        node: str_at(endpoint, "/nodeName"),
        address: str_at(endpoint, "/addresses/0"),
        conditions: ["/conditions/ready", "/conditions/serving", "/conditions/terminating"].map(condition),
    };
    this_node.endpoint(&seen, address_type)
}

fn correct_node(node: &mut Value, this_node: &OwnNode) -> Option<bool> {
    if str_at(node, "/metadata/name") != this_node.name {
        return None;
    }
    let status = node.get_mut("status")?;
    let conditions = status.get_mut("conditions")?.as_array_mut()?;
    let ready = conditions.iter_mut().find(|condition| str_at(condition, "/type") == "Ready")?;
    let mut is_changed = str_at(ready, "/status") != this_node.ready[0];
    if is_changed {
        for (name, value) in ["status", "reason", "message"].into_iter().zip(&this_node.ready) {
            set(ready, name, value.as_str().into());
        }
    }
    let address = |address: &NodeAddress| json!({"type": address.kind, "address": address.address});
    let addresses: Value = this_node.addresses.iter().map(address).collect();
    if !this_node.addresses.is_empty() && status.get("addresses") != Some(&addresses) {
        set(status, "addresses", addresses);
        is_changed = true;
    }
    Some(is_changed)
}

fn set(object: &mut Value, name: &str, value: Value) {
    object.as_object_mut().map(|object| object.insert(name.to_owned(), value));
}

fn str_at<'a>(value: &'a Value, path: &str) -> &'a str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// An event of a watch.
pub(super) fn write_event(change: &str, object: &[u8]) -> Vec<u8> {
    [br#"{"type":""#, change.as_bytes(), br#"","object":"#, object, b"}\n"].concat()
}
