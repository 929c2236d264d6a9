//! Lists and events of a watch in JSON. Pure.

use super::object_set::{Change, Content, ObjectSet, WatchedEvent, is_other_form, key_of};
use crate::types::api::ObjectText;
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
