//! The device checkpoint in the upstream kubelet's format, including its checksum. Pure.
//!
//! Another kubelet that takes over the node finds the pods' devices there, and the reverse.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::allocations::{DeviceAllocation, DeviceAllocations};
use super::v1beta1::ContainerAllocateResponse;
use crate::protocol::protobuf::{decode, encode};
use crate::types::api::{Bytes, PodUid};
use crate::types::sorted::{SortOnce, SortedMap};

/// The content of a checkpoint.
#[derive(Debug, Default)]
pub(super) struct Checkpoint {
    pub(super) entries: Vec<DeviceAllocation>,
    /// The registered resources.
    pub(super) resources: Vec<String>,
    /// The checksum does not match; the rest is what could be read.
    pub(super) is_damaged: bool,
}

/// The devices of a resource that a checkpoint lists. Only the names of resources are read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListedIds {
    Healthy,
    Nothing,
}

pub(super) fn write(allocations: &DeviceAllocations, listed: ListedIds) -> String {
    let entries = entries(&allocations.entries);
    let ids = |healthy: Vec<&str>| match listed {
        ListedIds::Healthy => json!(healthy),
        ListedIds::Nothing => json!([]),
    };
    let registered: serde_json::Map<String, Value> =
        allocations.registered().map(|(name, healthy)| (name.to_owned(), ids(healthy))).collect();
    let data = json!({"PodDeviceEntries": entries, "RegisteredDevices": registered});
    let checksum = checksum(&data);
    json!({"Data": data, "Checksum": checksum}).to_string()
}

/// The annotation of a container: the entries of its devices.
pub(super) fn mark(allocations: &[DeviceAllocation]) -> String {
    Value::from(entries(allocations)).to_string()
}

/// The entries in a container's annotation that belong to it.
pub(super) fn read_mark(pod: &PodUid, container: &str, text: &str) -> Vec<DeviceAllocation> {
    let list: Option<Value> = serde_json::from_str(text).ok();
    let entries = list.as_ref().and_then(Value::as_array).into_iter().flatten().filter_map(entry);
    entries.filter(|allocation| allocation.pod == *pod && allocation.container == container).collect()
}

/// Entries without an Allocate response are left out.
fn entries(allocations: &[DeviceAllocation]) -> Vec<Value> {
    let answered = allocations.iter().filter_map(|allocation| Some((allocation, allocation.response.as_ref()?)));
    let entry = |(allocation, response): (&DeviceAllocation, &ContainerAllocateResponse)| {
        let ids: serde_json::Map<String, Value> =
            allocation.ids.iter().map(|(node, ids)| (node.to_string(), json!(ids))).collect();
        json!({
            "PodUID": allocation.pod.as_str(),
            "ContainerName": allocation.container,
            "ResourceName": allocation.resource,
            "DeviceIDs": ids,
            "AllocResp": Bytes(encode(response)).to_base64(),
        })
    };
    answered.map(entry).collect()
}

pub(super) fn read(text: &str) -> Checkpoint {
    let document: Option<Value> = serde_json::from_str(text).ok();
    let Some((file, data)) =
        document.as_ref().and_then(|file| Some((file, file.get("Data").filter(|data| data.is_object())?)))
    else {
        return Checkpoint { entries: salvage(text), is_damaged: true, ..Checkpoint::default() };
    };
    let listed = data["PodDeviceEntries"].as_array();
    let entries: Vec<Option<DeviceAllocation>> = listed.into_iter().flatten().map(entry).collect();
    let is_damaged = file.get("Checksum").and_then(Value::as_u64) != Some(checksum(data).into())
        || entries.iter().any(Option::is_none);
    let resources = data["RegisteredDevices"].as_object().into_iter().flatten().map(|(name, _)| name.clone());
    Checkpoint { resources: resources.collect(), entries: entries.into_iter().flatten().collect(), is_damaged }
}

/// Reads the intact entries of a corrupt text: a device in use must not be allocated again.
fn salvage(text: &str) -> Vec<DeviceAllocation> {
    const BEGINNING: &str = "{\"PodUID\":";
    let places = text.match_indices('{').filter_map(|(index, _)| text.get(index..));
    let values = places.filter(|rest| rest.starts_with(BEGINNING) || rest.starts_with("{\"AllocResp\":"));
    let values = values.filter_map(|rest| {
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        values.next()?.ok()
    });
    values.filter_map(|value| entry(&value)).collect()
}

fn entry(value: &Value) -> Option<DeviceAllocation> {
    let text = |name: &str| value[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let mut ids: SortedMap<i64, Vec<String>> = SortedMap::new();
    for (node, listed) in value["DeviceIDs"].as_object().into_iter().flatten() {
        let listed = listed.as_array().into_iter().flatten().filter_map(|id| id.as_str().map(str::to_owned));
        ids.insert(node.parse().ok()?, listed.collect());
    }
    let response: ContainerAllocateResponse =
        decode(&Bytes::from_base64(value["AllocResp"].as_str().unwrap_or_default())?.0).ok()?;
    Some(DeviceAllocation {
        pod: text("PodUID")?.as_str().into(),
        container: text("ContainerName")?,
        resource: text("ResourceName")?,
        ids,
        response: Some(response),
        is_confirmed: false,
    })
}

/// FNV-1a of the data as printed by Go's spew (`DeepHashObject`).
pub(super) fn checksum(data: &Value) -> u32 {
    spew(data).bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

fn spew(data: &Value) -> String {
    let mut out = "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)".to_owned();
    sequence(&mut out, data["PodDeviceEntries"].as_array(), |out, entry| {
        for (before, name) in [("{", "PodUID"), (" ", "ContainerName"), (" ", "ResourceName")] {
            let _ = write!(out, "{before}{name}:(string){}", entry[name].as_str().unwrap_or_default());
        }
        out.push_str(" DeviceIDs:(checkpoint.DevicesPerNUMA)");
        let nodes = entry["DeviceIDs"].as_object().map(|nodes| {
            let mut nodes: Vec<(i64, &Value)> =
                nodes.iter().map(|(node, ids)| (node.parse().unwrap_or_default(), ids)).collect();
            nodes.sort_once_by_key(|(node, _)| *node);
            nodes
        });
        map(out, nodes);
        out.push_str(" AllocResp:([]uint8)");
        let bytes =
            entry["AllocResp"].as_str().map(|text| Bytes::from_base64(text).map(|bytes| bytes.0).unwrap_or_default());
        sequence(out, bytes.as_ref(), |out, byte| {
            let _ = write!(out, "{byte}");
        });
        out.push('}');
    });
    out.push_str(" RegisteredDevices:(map[string][]string)");
    let registered = data["RegisteredDevices"].as_object();
    map(&mut out, registered.map(|names| names.iter().collect::<Vec<_>>()));
    out.push('}');
    out
}

/// Lists of names by key, sorted.
fn map<K: std::fmt::Display>(out: &mut String, entries: Option<Vec<(K, &Value)>>) {
    if entries.is_some() {
        out.push_str("map");
    }
    sequence(out, entries.as_ref(), |out, (key, names)| {
        let _ = write!(out, "{key}:");
        sequence(out, names.as_array(), |out, name| out.push_str(name.as_str().unwrap_or_default()));
    });
}

fn sequence<T>(out: &mut String, items: Option<&Vec<T>>, put: impl Fn(&mut String, &T)) {
    let Some(items) = items else { return out.push_str("<nil>") };
    out.push('[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(' ');
        }
        put(out, item);
    }
    out.push(']');
}
