//! Lists and events of a watch in protobuf (`application/vnd.kubernetes.protobuf`). Pure.
//!
//! ```text
//!   k8s\0 Unknown { type, raw }           an answer; raw is the message of the kind
//!   List { 1: ListMeta, 2: object, ... }  a list of every kind
//!   Object { 1: ObjectMeta, ... }         an object of every kind
//!   WatchEvent { type, object }           a frame of a watch; its object is an answer again
//! ```

use super::object_set::{Change, Content, ObjectSet, WatchedEvent, is_other_form, key_of};
use crate::protocol::protobuf::{decode, each_field, encode, message, put_bytes};
use crate::types::sorted::SortedMap;

message! {
    struct Envelope {
        1 => type_meta: Option<TypeMeta>,
        2 => raw: Vec<u8>,
    }

    struct TypeMeta {
        1 => api_version: String,
        2 => kind: String,
    }

    struct ListMeta {
        2 => resource_version: String,
        3 => next: String,
    }

    struct Object {
        1 => metadata: Option<ObjectMeta>,
    }

    struct ObjectMeta {
        1 => name: String,
        3 => namespace: String,
        6 => resource_version: String,
        12 => annotations: SortedMap<String, String>,
    }

    struct Frame {
        1 => change: String,
        2 => object: Option<RawExtension>,
    }

    struct RawExtension {
        1 => raw: Vec<u8>,
    }
}

const MAGIC: &[u8] = b"k8s\0";
/// Fields of `ObjectMeta`.
const RESOURCE_VERSION_FIELD: u32 = 6;
const MANAGED_FIELDS_FIELD: u32 = 17;
/// Fields of `NodeStatus`.
const CONDITIONS_FIELD: u32 = 4;
const IMAGES_FIELD: u32 = 8;

pub(super) fn read(body: &[u8]) -> Option<Content> {
    let Envelope { type_meta, raw } = decode(body.strip_prefix(MAGIC)?).ok()?;
    let TypeMeta { api_version, kind } = type_meta?;
    if is_other_form(&kind) {
        return Some(Content::OtherForm);
    }
    if !kind.ends_with("List") {
        return Some(Content::Object(lasting(&raw, kind == "Node")));
    }
    let (mut metadata, mut items) = (&[][..], Vec::new());
    each_field(&raw, &mut |number, content, _| match number {
        1 => metadata = content,
        2 => items.push(content),
        _ => {}
    })
    .ok()?;
    let ListMeta { resource_version, next } = decode(metadata).ok()?;
    if !next.is_empty() {
        return Some(Content::Page);
    }
    let named = items.into_iter().map(|item| Some((name_of(&metadata_of(item)?), item.to_vec())));
    let objects: Option<SortedMap<String, Vec<u8>>> = named.collect();
    Some(Content::List(ObjectSet { kind, api_version, version: resource_version.parse().ok()?, objects: objects? }))
}

pub(super) fn write(set: &ObjectSet) -> Vec<u8> {
    let metadata = ListMeta { resource_version: set.version.to_string(), next: String::new() };
    let mut raw = Vec::new();
    put_bytes(1, &encode(&metadata), &mut raw);
    set.objects.values().for_each(|object| put_bytes(2, object, &mut raw));
    let type_meta = TypeMeta { api_version: set.api_version.clone(), kind: set.kind.clone() };
    [MAGIC, &encode(&Envelope { type_meta: Some(type_meta), raw })].concat()
}

pub(super) fn read_event(frame: &[u8]) -> Option<WatchedEvent> {
    let Frame { change, object } = decode(frame).ok()?;
    let Envelope { type_meta, raw } = decode(object?.raw.strip_prefix(MAGIC)?).ok()?;
    let (TypeMeta { api_version, kind }, metadata) = (type_meta?, metadata_of(&raw)?);
    let ends = metadata.annotations.get("k8s.io/initial-events-end").is_some_and(|end| end == "true");
    let change = match &*change {
        "ADDED" | "MODIFIED" => Change::Set,
        "DELETED" => Change::Removed,
        "BOOKMARK" if ends => Change::EndOfInitialEvents,
        "BOOKMARK" => Change::Bookmark,
        _ => return None,
    };
    if is_other_form(&kind) {
        return None;
    }
    let version = metadata.resource_version.parse().ok()?;
    Some(WatchedEvent { change, kind, api_version, name: name_of(&metadata), version, object: raw })
}

fn metadata_of(object: &[u8]) -> Option<ObjectMeta> {
    decode::<Object>(object).ok()?.metadata
}

fn name_of(metadata: &ObjectMeta) -> String {
    key_of(&metadata.namespace, &metadata.name)
}

pub(super) fn lasting(object: &[u8], is_node: bool) -> Vec<u8> {
    let mut kept = Vec::with_capacity(object.len());
    let read = each_field(object, &mut |number, content, whole| match number {
        1 => without(content, [RESOURCE_VERSION_FIELD, MANAGED_FIELDS_FIELD], &mut kept),
        3 if is_node => without(content, [CONDITIONS_FIELD, IMAGES_FIELD], &mut kept),
        _ => kept.extend_from_slice(whole),
    });
    if read.is_ok() { kept } else { object.to_vec() }
}

fn without(message: &[u8], numbers: [u32; 2], kept: &mut Vec<u8>) {
    // What is malformed was refused before.
    let _ = each_field(message, &mut |number, _, whole| {
        if !numbers.contains(&number) {
            kept.extend_from_slice(whole);
        }
    });
}
