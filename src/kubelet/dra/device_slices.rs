//! The ResourceSlices of this node's device files. Pure.

use serde_json::{Map, Value, json};

use crate::kubelet::devices::{DeviceRecord, device_name};
use crate::state::objects::DEVICE_FILES_DRIVER;
use crate::types::api::{DeviceAttribute, MAX_ATTRIBUTE_BYTES, MAX_ATTRIBUTES};
use crate::types::sorted::SortOnce;

/// Upstream's limit of devices in a slice.
const MAX_SLICE_DEVICES: usize = 128;

/// A ResourceSlice that the API server has.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KnownSlice {
    pub(super) name: String,
    pub(super) version: String,
    /// The uid of the Node that owns it, or empty.
    owner: String,
    spec: Value,
}

/// A request that makes the slices as wanted.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    Create(Value),
    /// A merge patch, for the version that was read.
    Update {
        name: String,
        patch: Value,
    },
    Delete {
        name: String,
    },
}

/// The devices as slices show them, sorted by name. Devices that containers have as limits are left out.
pub(super) fn published(files: &[DeviceRecord]) -> Vec<Value> {
    let shown = files.iter().filter(|file| file.is_healthy && file.holder.is_none());
    let mut devices: Vec<(String, Value)> = shown.map(device).collect();
    devices.sort_once_by(|(one, _), (other, _)| one.cmp(other));
    // One device file may be of two rules.
    devices.dedup_by(|(one, _), (other, _)| one == other);
    devices.into_iter().map(|(_, device)| device).collect()
}

fn device(file: &DeviceRecord) -> (String, Value) {
    let mut attributes: Map<String, Value> = Map::new();
    for (name, text) in [("resource", &file.resource), ("path", &file.id)] {
        if text.len() <= MAX_ATTRIBUTE_BYTES {
            attributes.insert(name.to_owned(), DeviceAttribute::String(text.clone()).to_json());
        }
    }
    for (name, attribute) in &file.attributes {
        if attributes.len() < MAX_ATTRIBUTES {
            attributes.insert(name.clone(), attribute.to_json());
        }
    }
    let name = device_name(&file.id);
    let device = json!({"name": name, "attributes": attributes});
    (name, device)
}

impl KnownSlice {
    /// The slices of a list.
    pub(super) fn read(list: &Value) -> Vec<Self> {
        let items = list.get("items").and_then(Value::as_array).into_iter().flatten();
        let slice = |item: &Value| {
            let text = |path: &str| item.pointer(path).and_then(Value::as_str).map(str::to_owned);
            let spec = item.get("spec").cloned().unwrap_or_default();
            let owner = text("/metadata/ownerReferences/0/uid").unwrap_or_default();
            Some(Self { name: text("/metadata/name")?, version: text("/metadata/resourceVersion")?, owner, spec })
        };
        items.filter_map(slice).collect()
    }

    fn generation(&self) -> i64 {
        self.spec.pointer("/pool/generation").and_then(Value::as_i64).unwrap_or_default()
    }
}

/// The requests that publish these devices; none if the API server has them. All slices get a new generation, removals
/// come last: until then the pool is incomplete, and nothing is allocated from it.
///
/// Slices of a former Node object of this name are removed first: the garbage collector would do so later.
pub(super) fn changes(node: &str, node_uid: &str, devices: &[Value], slices: &[KnownSlice]) -> Vec<Change> {
    let is_of_former = |slice: &&KnownSlice| !node_uid.is_empty() && slice.owner != node_uid;
    let former = slices.iter().filter(is_of_former).map(|slice| Change::Delete { name: slice.name.clone() });
    let mut changes: Vec<Change> = former.collect();
    let current_slices: Vec<&KnownSlice> = slices.iter().filter(|slice| !is_of_former(slice)).collect();
    let chunks: Vec<&[Value]> = devices.chunks(MAX_SLICE_DEVICES).collect();
    let name = |index: usize| format!("{node}-{DEVICE_FILES_DRIVER}-{index}");
    let of = |index: usize| current_slices.iter().find(|slice| slice.name == name(index));
    let spec = |generation: i64, devices: &[Value]| {
        json!({
            "driver": DEVICE_FILES_DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": chunks.len()},
            "devices": devices,
        })
    };
    let generation = current_slices.iter().map(|slice| slice.generation()).max().unwrap_or_default();
    let is_there =
        |(index, devices): (usize, &&[Value])| of(index).is_some_and(|slice| slice.spec == spec(generation, devices));
    if current_slices.len() == chunks.len() && chunks.iter().enumerate().all(is_there) {
        return changes;
    }
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid, "controller": true});
    let change = |(index, devices): (usize, &&[Value])| {
        let spec = spec(generation + 1, devices);
        match of(index) {
            Some(slice) => {
                let patch = json!({"metadata": {"resourceVersion": slice.version}, "spec": spec});
                Change::Update { name: slice.name.clone(), patch }
            }
            None => {
                let metadata = match node_uid.is_empty() {
                    true => json!({"name": name(index)}),
                    false => json!({"name": name(index), "ownerReferences": [owner]}),
                };
                Change::Create(json!({
                    "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec,
                }))
            }
        }
    };
    changes.extend(chunks.iter().enumerate().map(change));
    let stays = |slice: &KnownSlice| (0..chunks.len()).any(|index| name(index) == slice.name);
    let surplus = current_slices.iter().filter(|slice| !stays(slice));
    changes.extend(surplus.map(|slice| Change::Delete { name: slice.name.clone() }));
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> DeviceRecord {
        DeviceRecord {
            resource: "example.com/camera".to_owned(),
            id: path.to_owned(),
            is_healthy: true,
            attributes: [("lanes".to_owned(), DeviceAttribute::Int(2))].into_iter().collect(),
            holder: None,
            claim: None,
        }
    }

    /// What the API server lists after these changes.
    fn applied(changes: &[Change], mut slices: Vec<KnownSlice>) -> Vec<KnownSlice> {
        for change in changes {
            match change {
                Change::Create(object) => slices.extend(KnownSlice::read(&json!({"items": [{
                    "metadata": {
                        "name": object["metadata"]["name"], "resourceVersion": "1",
                        "ownerReferences": object["metadata"]["ownerReferences"],
                    },
                    "spec": object["spec"],
                }]}))),
                Change::Update { name, patch } => {
                    let slice = slices.iter_mut().find(|slice| slice.name == *name).unwrap();
                    assert_eq!(patch["metadata"]["resourceVersion"], slice.version.as_str());
                    slice.spec = patch["spec"].clone();
                }
                Change::Delete { name } => slices.retain(|slice| slice.name != *name),
            }
        }
        slices
    }

    #[test]
    fn devices_have_typed_attributes_and_names() {
        let devices = published(&[file("/dev/video1"), file("/dev/video0"), file("/dev/video0")]);
        let expected = |name: &str| {
            json!({"name": name, "attributes": {
                "lanes": {"int": 2}, "path": {"string": format!("/dev/{name}")},
                "resource": {"string": "example.com/camera"},
            }})
        };
        assert_eq!(devices, [expected("video0"), expected("video1")]);
        let taken = DeviceRecord { holder: Some(("u".into(), "main".to_owned())), ..file("/dev/video0") };
        assert!(published(&[taken]).is_empty());
        let claimed = DeviceRecord { claim: Some("ns/c".to_owned()), ..file("/dev/video0") };
        assert_eq!(published(&[claimed]).len(), 1, "the scheduler counts what it allocates");
    }

    #[test]
    fn generation_grows_only_with_a_change() {
        let devices = published(&[file("/dev/video0")]);
        let first = changes("n", "uid", &devices, &[]);
        let [Change::Create(object)] = &first[..] else { panic!("{first:?}") };
        assert_eq!(object["metadata"]["name"], "n-devices.coracle.dev-0");
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "uid");
        assert_eq!(object["spec"]["pool"], json!({"name": "n", "generation": 1, "resourceSliceCount": 1}));
        let known = applied(&first, Vec::new());
        assert_eq!(changes("n", "uid", &devices, &known), []);
        let more = published(&[file("/dev/video0"), file("/dev/video1")]);
        let second = changes("n", "uid", &more, &known);
        let known = applied(&second, known);
        assert_eq!((known.len(), known[0].generation()), (1, 2));
        let [Change::Delete { .. }, Change::Create(_)] = &changes("n", "new", &more, &known)[..] else { panic!() };
        assert_eq!(changes("n", "uid", &[], &known), [Change::Delete { name: "n-devices.coracle.dev-0".to_owned() }]);
    }

    #[test]
    fn many_devices_are_in_several_slices_of_one_generation() {
        let files: Vec<DeviceRecord> = (0..300).map(|number| file(&format!("/dev/video{number}"))).collect();
        let known = applied(&changes("n", "", &published(&files), &[]), Vec::new());
        assert_eq!(known.len(), 3);
        assert!(known.iter().all(|slice| slice.spec["pool"]["resourceSliceCount"] == 3));
        let fewer = published(&files[..200]);
        let known = applied(&changes("n", "", &fewer, &known), known);
        assert_eq!((known.len(), known.iter().map(KnownSlice::generation).collect()), (2, vec![2, 2]));
        assert_eq!(changes("n", "", &fewer, &known), []);
    }
}
