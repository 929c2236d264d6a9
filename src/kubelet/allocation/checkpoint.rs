//! The files `allocated_pods_state` and `actuated_pods_state` in the upstream kubelet's format. Pure.
//!
//! `Checkpoint` in pkg/kubelet/allocation/state: JSON in a string, with the FNV-1a hash of Go's dump of that string.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::pod_resource_info::PodResourceInfo;
use crate::types::api::{PodUid, ResourceRequirements, decode, encode, fnv_32a};
use crate::types::sorted::SortedMap;

/// Pods with their resources.
pub(super) type Entries = SortedMap<PodUid, Arc<PodResourceInfo>>;

/// Size limit of a file in bytes.
pub(super) const MAX_ALLOCATION_STATE_BYTES: usize = 16 << 20;
/// Of one pod: four hundred containers with requests and limits.
const MAX_POD_ALLOCATION_BYTES: usize = 64 << 10;
/// The file without its entries is shorter.
const ALLOCATION_FRAME_BYTES: usize = 1024;

/// The file, and the pods that are left out of it, so that the others are in it.
pub(super) fn text(entries: &Entries) -> (String, Vec<PodUid>) {
    let (mut data, mut left_out) = (String::new(), Vec::new());
    let mut bytes_left = MAX_ALLOCATION_STATE_BYTES - ALLOCATION_FRAME_BYTES;
    for (uid, info) in entries.iter() {
        let comma = if data.is_empty() { "" } else { "," };
        let part = format!("{comma}{}:{}", json!(uid.as_str()), entry(info));
        // The data are a string in the file.
        let length = part.len() + part.matches(['"', '\\']).count();
        match bytes_left.checked_sub(length).filter(|_| length <= MAX_POD_ALLOCATION_BYTES) {
            Some(rest) => {
                bytes_left = rest;
                data.push_str(&part);
            }
            None => left_out.push(uid.clone()),
        }
    }
    let data = if data.is_empty() { "{}".to_owned() } else { ["{\"entries\":{", &data, "}}"].concat() };
    let checksum = checksum(&data);
    (json!({ "data": data, "checksum": checksum }).to_string(), left_out)
}

/// `None` if the text is corrupt or in another format.
pub(super) fn parse(text: &[u8]) -> Option<Entries> {
    let file: Value = serde_json::from_slice(text).ok()?;
    let data = file.get("data")?.as_str()?;
    if file.get("checksum")?.as_u64()? != u64::from(checksum(data)) {
        return None;
    }
    let mut data: Value = serde_json::from_str(data).ok()?;
    let Some(entries) = data.get_mut("entries") else { return Some(Entries::new()) };
    let entries = entries.as_object_mut()?;
    entries.iter_mut().map(|(uid, entry)| Some((PodUid::from(uid.as_str()), Arc::new(read_entry(entry)?)))).collect()
}

fn entry(info: &PodResourceInfo) -> Value {
    let containers: Map<String, Value> =
        info.containers.iter().map(|(name, resources)| (name.clone(), encode(resources))).collect();
    let pod_level = info.pod_level.as_deref().map(|resources| encode(resources));
    json!({ "ContainerResources": containers, "PodLevelResources": pod_level })
}

fn read_entry(entry: &mut Value) -> Option<PodResourceInfo> {
    let mut info = PodResourceInfo::default();
    for (name, resources) in entry.get_mut("ContainerResources").and_then(Value::as_object_mut).into_iter().flatten() {
        info.containers.insert(name.clone(), read_resources(resources.take())?);
    }
    let pod_level = entry.get_mut("PodLevelResources").map(Value::take).filter(|value| !value.is_null());
    if let Some(value) = pod_level {
        info.pod_level = Some(Box::new(read_resources(value)?));
    }
    Some(info)
}

fn read_resources(value: Value) -> Option<ResourceRequirements> {
    decode(value).ok().map(|decoded| decoded.value)
}

fn checksum(data: &str) -> u32 {
    fnv_32a(["(string)", data].concat().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of the upstream kubelet, from its tests.
    const UPSTREAM: &str = r#"{"data":"{\"entries\":{\"pod1\":{\"ContainerResources\":{\"container1\":{\"requests\":{\"cpu\":\"1Ki\",\"memory\":\"1Ki\"}}}}}}","checksum":1178570812}"#;

    #[test]
    fn text_is_read_back_and_corrupt_text_is_not() {
        let resources = |cpu: &str| {
            let mut resources = ResourceRequirements::default();
            resources.requests.insert("cpu", cpu.parse().unwrap());
            resources.limits.insert("memory", "64Mi".parse().unwrap());
            resources
        };
        let mut entries = Entries::new();
        assert_eq!(text(&entries).0, format!(r#"{{"checksum":{},"data":"{{}}"}}"#, checksum("{}")));
        assert_eq!(parse(text(&entries).0.as_bytes()), Some(Entries::new()));
        let mut info = PodResourceInfo { pod_level: Some(Box::new(resources("2"))), ..PodResourceInfo::default() };
        info.containers.insert("main".to_owned(), resources("1"));
        entries.insert("u".into(), Arc::new(info.clone()));
        entries.insert("v".into(), Arc::new(info));
        let (written, left_out) = text(&entries);
        assert!(left_out.is_empty());
        assert_eq!(parse(written.as_bytes()), Some(entries));
        assert_eq!(parse(written.replace("64Mi", "65Mi").as_bytes()), None);
        assert_eq!(parse(b"{"), None);
    }

    #[test]
    fn large_pods_are_left_out_and_the_file_can_be_read() {
        let info = |length: usize| {
            let name = "\"".repeat(length / 4);
            let containers = [(name, ResourceRequirements::default())].into_iter().collect();
            Arc::new(PodResourceInfo { containers, pod_level: None })
        };
        let mut entries: Entries = (0..300).map(|n| (format!("n{n:03}").as_str().into(), info(60_000))).collect();
        entries.insert("a".into(), info(70_000));
        entries.insert("b".into(), info(1000));
        let (written, left_out) = text(&entries);
        assert!(written.len() <= MAX_ALLOCATION_STATE_BYTES && written.len() > MAX_ALLOCATION_STATE_BYTES - 65_536);
        assert_eq!(left_out.iter().map(PodUid::as_str).take(2).collect::<Vec<_>>(), ["a", "n279"]);
        entries.retain(|uid, _| !left_out.contains(uid));
        assert_eq!(parse(written.as_bytes()), Some(entries));
    }

    #[test]
    fn upstreams_file_is_read() {
        let entries = parse(UPSTREAM.as_bytes()).unwrap();
        let info = entries.get(&PodUid::from("pod1")).unwrap();
        assert_eq!(info.containers.get("container1").unwrap().request("cpu").unwrap().value(), 1024);
        assert_eq!(info.pod_level, None);
    }
}
