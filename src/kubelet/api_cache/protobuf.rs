//! Lists and events of a watch in protobuf (`application/vnd.kubernetes.protobuf`). Pure.
//!
//! ```text
//!   k8s\0 Unknown { type, raw }           an answer; raw is the message of the kind
//!   List { 1: ListMeta, 2: object, ... }  a list of every kind
//!   Object { 1: ObjectMeta, ... }         an object of every kind
//!   WatchEvent { type, object }           a frame of a watch; its object is an answer again
//! ```

use super::object_set::{Change, Content, ObjectSet, WatchedEvent, is_other_form, key_of};
use super::own_node::{CorrectedObject, Endpoint, EndpointChange, OwnKind, OwnNode};
use crate::protocol::protobuf::{decode, each_field, encode, message, put_bytes, put_str};
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

    struct EndpointSlice {
        4 => address_type: String,
    }

    struct SliceEndpoint {
        1 => addresses: Vec<String>,
        2 => conditions: Vec<u8>,
        4 => target: Option<ObjectReference>,
        6 => node_name: String,
    }

    struct ObjectReference {
        1 => kind: String,
        2 => namespace: String,
        3 => name: String,
    }

    struct NodeCondition {
        1 => kind: String,
        2 => status: String,
    }
}

const MAGIC: &[u8] = b"k8s\0";
/// Of every object.
const METADATA_FIELD: u32 = 1;
/// Fields of `ObjectMeta`.
const RESOURCE_VERSION_FIELD: u32 = 6;
const MANAGED_FIELDS_FIELD: u32 = 17;
/// Of `Node`.
const STATUS_FIELD: u32 = 3;
/// Fields of `NodeStatus`.
const CONDITIONS_FIELD: u32 = 4;
const ADDRESSES_FIELD: u32 = 5;
const IMAGES_FIELD: u32 = 8;
/// Of `EndpointSlice`.
const ENDPOINTS_FIELD: u32 = 2;
/// Of `Endpoint`, where addresses are the first field.
const ENDPOINT_CONDITIONS_FIELD: u32 = 2;

pub(super) fn read(body: &[u8]) -> Option<Content> {
    let (TypeMeta { api_version, kind }, raw) = open(body)?;
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
    envelope(&set.kind, &set.api_version, raw)
}

/// An answer, or the object of an event.
pub(super) fn envelope(kind: &str, api_version: &str, raw: Vec<u8>) -> Vec<u8> {
    let type_meta = TypeMeta { api_version: api_version.to_owned(), kind: kind.to_owned() };
    [MAGIC, &encode(&Envelope { type_meta: Some(type_meta), raw })].concat()
}

fn open(body: &[u8]) -> Option<(TypeMeta, Vec<u8>)> {
    let Envelope { type_meta, raw } = decode(body.strip_prefix(MAGIC)?).ok()?;
    Some((type_meta?, raw))
}

/// One object as a set, with the version of the object.
pub(super) fn single(body: &[u8]) -> Option<ObjectSet> {
    let (TypeMeta { api_version, kind }, object) = open(body)?;
    let metadata = metadata_of(&object)?;
    let version = metadata.resource_version.parse().ok()?;
    Some(ObjectSet { kind, api_version, version, objects: [(name_of(&metadata), object)].into_iter().collect() })
}

pub(super) fn read_event(frame: &[u8]) -> Option<WatchedEvent> {
    let Frame { change, object } = decode(frame).ok()?;
    let (TypeMeta { api_version, kind }, raw) = open(&object?.raw)?;
    let metadata = metadata_of(&raw)?;
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
    let read = each_field(object, &mut |number, content, whole_field| match number {
        METADATA_FIELD => without(content, [RESOURCE_VERSION_FIELD, MANAGED_FIELDS_FIELD], &mut kept),
        STATUS_FIELD if is_node => without(content, [CONDITIONS_FIELD, IMAGES_FIELD], &mut kept),
        _ => kept.extend_from_slice(whole_field),
    });
    if read.is_ok() { kept } else { object.to_vec() }
}

fn without(message: &[u8], numbers: [u32; 2], kept: &mut Vec<u8>) {
    // What is malformed was refused before.
    let _ = each_field(message, &mut |number, _, whole_field| {
        if !numbers.contains(&number) {
            kept.extend_from_slice(whole_field);
        }
    });
}

/// The object with what the node knows better; `None` if it is not about this node.
pub(super) fn correct(object: &[u8], kind: OwnKind, node: &OwnNode, version: u64) -> Option<CorrectedObject> {
    let (corrected, is_changed) = match kind {
        OwnKind::EndpointSlice => correct_slice(object, node)?,
        OwnKind::Node => correct_node(object, node)?,
    };
    metadata_of(&corrected)?;
    let object = rewritten(&corrected, METADATA_FIELD, &mut |metadata| {
        let mut metadata = rewritten(metadata, RESOURCE_VERSION_FIELD, &mut |_| None)?;
        put_str(RESOURCE_VERSION_FIELD, &version.to_string(), &mut metadata);
        Some(metadata)
    })?;
    Some(CorrectedObject { object, is_changed })
}

/// The message with the fields of this number as `write` has them, or without them. `None` if it is malformed.
fn rewritten(message: &[u8], number: u32, write: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(message.len());
    let read = each_field(message, &mut |field, content, whole_field| match field == number {
        true => write(content).into_iter().for_each(|content| put_bytes(number, &content, &mut out)),
        false => out.extend_from_slice(whole_field),
    });
    read.ok().map(|()| out)
}

fn correct_slice(slice: &[u8], node: &OwnNode) -> Option<(Vec<u8>, bool)> {
    let EndpointSlice { address_type } = decode(slice).ok()?;
    let (mut is_own, mut is_changed) = (false, false);
    let corrected = rewritten(slice, ENDPOINTS_FIELD, &mut |endpoint| {
        let Some(change) = change_of(endpoint, &address_type, node) else { return Some(endpoint.to_vec()) };
        is_own = true;
        is_changed |= change != EndpointChange::Same;
        match change {
            EndpointChange::Same => Some(endpoint.to_vec()),
            EndpointChange::Gone => None,
            EndpointChange::Changed { address, conditions: [ready, serving, terminating] } => {
                let flags = [1 << 3, ready.into(), 2 << 3, serving.into(), 3 << 3, terminating.into()];
                let mut changed = Vec::with_capacity(endpoint.len());
                put_str(1, address, &mut changed);
                put_bytes(ENDPOINT_CONDITIONS_FIELD, &flags, &mut changed);
                without(endpoint, [1, ENDPOINT_CONDITIONS_FIELD], &mut changed);
                Some(changed)
            }
        }
    })?;
    is_own.then_some((corrected, is_changed))
}

fn change_of<'a>(endpoint: &[u8], address_type: &str, this_node: &'a OwnNode) -> Option<EndpointChange<'a>> {
    let SliceEndpoint { addresses, conditions, target, node_name } = decode(endpoint).ok()?;
    let target = target.filter(|target| target.kind == "Pod")?;
    let seen = Endpoint {
        pod: &key_of(&target.namespace, &target.name),
        node: &node_name,
        address: addresses.first()?,
        conditions: [1, 2, 3].map(|number| flag(&conditions, number)),
    };
    this_node.endpoint(&seen, address_type)
}

/// A `bool` that may be absent.
fn flag(message: &[u8], number: u8) -> Option<bool> {
    let mut flag_value = None;
    let _ = each_field(message, &mut |_, _, whole_field| match whole_field {
        [key, value] if *key == number << 3 => flag_value = Some(*value != 0),
        _ => {}
    });
    flag_value
}

fn correct_node(node: &[u8], this_node: &OwnNode) -> Option<(Vec<u8>, bool)> {
    if metadata_of(node)?.name != this_node.name {
        return None;
    }
    let mut addresses = Vec::new();
    for address in &this_node.addresses {
        let mut message = Vec::new();
        put_str(1, &address.kind, &mut message);
        put_str(2, &address.address, &mut message);
        put_bytes(ADDRESSES_FIELD, &message, &mut addresses);
    }
    let (mut status, mut old_addresses) = (&[][..], Vec::new());
    each_field(node, &mut |number, content, _| {
        if number == STATUS_FIELD {
            status = content;
        }
    })
    .ok()?;
    each_field(status, &mut |number, _, whole_field| {
        if number == ADDRESSES_FIELD {
            old_addresses.extend_from_slice(whole_field);
        }
    })
    .ok()?;
    let mut is_changed = false;
    let mut corrected = rewritten(status, CONDITIONS_FIELD, &mut |condition| {
        let changed = changed_condition(condition, &this_node.ready);
        is_changed |= changed.is_some();
        Some(changed.unwrap_or_else(|| condition.to_vec()))
    })?;
    if !addresses.is_empty() && old_addresses != addresses {
        is_changed = true;
        corrected = rewritten(&corrected, ADDRESSES_FIELD, &mut |_| None)?;
        corrected.extend_from_slice(&addresses);
    }
    let node = rewritten(node, STATUS_FIELD, &mut |_| Some(std::mem::take(&mut corrected)))?;
    Some((node, is_changed))
}

/// The condition `Ready`, if the node knows better.
fn changed_condition(condition: &[u8], ready: &[String; 3]) -> Option<Vec<u8>> {
    let NodeCondition { kind, status } = decode(condition).ok()?;
    let [now, reason, message] = ready;
    if kind != "Ready" || status == *now {
        return None;
    }
    let mut changed = Vec::with_capacity(condition.len());
    put_str(1, &kind, &mut changed);
    put_str(2, now, &mut changed);
    each_field(condition, &mut |number, _, whole_field| {
        if matches!(number, 3 | 4) {
            // The times.
            changed.extend_from_slice(whole_field);
        }
    })
    .ok()?;
    put_str(5, reason, &mut changed);
    put_str(6, message, &mut changed);
    Some(changed)
}

/// An event of a watch. The object is in its envelope.
pub(super) fn write_event(change: &str, object: Vec<u8>) -> Vec<u8> {
    let event = encode(&Frame { change: change.to_owned(), object: Some(RawExtension { raw: object }) });
    let length = u32::try_from(event.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], &event].concat()
}
