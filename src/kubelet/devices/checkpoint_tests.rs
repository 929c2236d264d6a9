use std::time::Instant;

use super::allocations::{DeviceAllocation, DeviceAllocations};
use super::checkpoint::{Checkpoint, ListedIds, read, write};
use super::v1beta1::{ContainerAllocateResponse, Device, DevicePluginOptions, HEALTHY};
use crate::types::api::{Container, Pod};

/// Written by upstream's code: no pods; nothing; names with quotes and line breaks, several NUMA nodes, empty and
/// missing lists; a longer response.
const UPSTREAMS: [&str; 4] = [
    r#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":3467439661}"#,
    r#"{"Data":{"PodDeviceEntries":[],"RegisteredDevices":null},"Checksum":3252601439}"#,
    r#"{"Data":{"PodDeviceEntries":[{"PodUID":"pod1","ContainerName":"con1","ResourceName":"domain1.com/resource1","DeviceIDs":{"-1":["dev1","dev\"2\\\u003cé\n\u0026\u003e"],"0":["a"],"10":["c"],"2":[],"3":null},"AllocResp":"CgMA/2F+"},{"PodUID":"p","ContainerName":"c","ResourceName":"r","DeviceIDs":null,"AllocResp":null},{"PodUID":"p","ContainerName":"c","ResourceName":"r","DeviceIDs":{},"AllocResp":""}],"RegisteredDevices":{"a.com/b":[],"b.com/c":null,"z.com/b":["x","y"]}},"Checksum":1995607878}"#,
    r#"{"Data":{"PodDeviceEntries":[{"PodUID":"p","ContainerName":"c","ResourceName":"r","DeviceIDs":{"-1":["d"]},"AllocResp":"AAcOFRwjKjE4P0ZNVFtiaXB3foWMk5qhqK+2vcTL0tng5+71/AMKEQ=="}],"RegisteredDevices":{}},"Checksum":933515721}"#,
];

#[test]
fn checksum_is_upstreams() {
    for text in UPSTREAMS {
        let file: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(u64::from(super::checkpoint::checksum(&file["Data"])), file["Checksum"].as_u64().unwrap(), "{text}");
    }
    assert!(!read(UPSTREAMS[0]).is_damaged && !read(UPSTREAMS[1]).is_damaged);
}

/// Allocations with one allocated device.
fn allocations() -> DeviceAllocations {
    let mut allocations = DeviceAllocations::default();
    let registration = allocations.register("a.com/b", DevicePluginOptions::default());
    let device = |id: &str| Device { id: id.to_owned(), health: HEALTHY.to_owned(), topology: None };
    allocations.set_devices("a.com/b", registration, vec![device("x"), device("y")]);
    let mut pod = Pod::default();
    pod.metadata.uid = "u".into();
    let mut container = Container { name: "c".to_owned(), ..Container::default() };
    container.resources.limits.insert("a.com/b", "1".parse().unwrap());
    pod.spec.containers = vec![container];
    allocations.reserve(&pod, |_| false).unwrap();
    let given = allocations.unallocated(&pod.metadata.uid).remove(0);
    let envs = [("A".to_owned(), "b".to_owned())].into_iter().collect();
    assert!(
        allocations.set_response(&given, ContainerAllocateResponse { envs, ..ContainerAllocateResponse::default() })
    );
    allocations
}

/// The devices of each container, the resources, and whether it is corrupt.
type Found = (Vec<(String, Vec<String>)>, Vec<String>, bool);

fn kept(text: &str) -> Found {
    let Checkpoint { entries, resources, is_damaged } = read(text);
    let ids = entries.iter().map(|given| (given.container.clone(), given.ids().cloned().collect())).collect();
    (ids, resources, is_damaged)
}

#[test]
fn checkpoint_is_read_back_with_a_valid_checksum() {
    let allocations = allocations();
    let text = write(&allocations, ListedIds::Healthy);
    let read = read(&text);
    assert!(!read.is_damaged);
    assert_eq!(read.resources, ["a.com/b"]);
    let mut expected = allocations.entries.to_vec();
    expected[0].is_confirmed = false;
    assert_eq!(read.entries, expected);
    let mut again = DeviceAllocations::default();
    again.restore(read.entries, read.resources, Instant::now());
    let capacity = &again.amounts()[0];
    assert_eq!(capacity.get("a.com/b").map(|amount| amount.value()), Some(0), "no plugin has registered yet");
}

#[test]
fn unanswered_allocation_is_not_written() {
    let mut allocations = allocations();
    allocations.entries.push(DeviceAllocation { response: None, ..allocations.entries[0].clone() });
    assert!(write(&allocations, ListedIds::Healthy).contains("\"PodDeviceEntries\":[]"));
}

#[test]
fn intact_entries_of_a_corrupt_file_are_used() {
    let text = write(&allocations(), ListedIds::Healthy);
    let whole = (vec![("c".to_owned(), vec!["x".to_owned()])], vec!["a.com/b".to_owned()]);
    let (other, checksum) = (text.replace("\"x\",\"y\"", "\"x\",\"z\""), text.replace("Checksum\":", "Checksum\":1"));
    for damaged in [other, checksum] {
        assert_eq!(kept(&damaged), (whole.0.clone(), whole.1.clone(), true), "{damaged}");
    }
    let without_end = text.split("\"RegisteredDevices\"").next().unwrap();
    assert_eq!(kept(without_end), (whole.0, Vec::new(), true));
    for rest in ["", "{", "null", "[]", "{\"Data\":1}", "{\"PodUID\":", "\u{fffd}{\"AllocResp\":[]}"] {
        assert_eq!(kept(rest), (Vec::new(), Vec::new(), true), "{rest}");
    }
}

#[test]
fn truncated_or_changed_file_never_fails_to_read() {
    let text = write(&allocations(), ListedIds::Healthy);
    for end in 0..text.len() {
        read(text.get(..end).unwrap());
        let mut bytes = text.clone().into_bytes();
        bytes[end] ^= 1;
        let changed = read(&String::from_utf8_lossy(&bytes));
        assert!(changed.is_damaged || changed.resources == ["a.com/b"], "{end}");
    }
}
