//! The files `allocated_pods_state` and `actuated_pods_state` in the upstream kubelet's format. Pure.
//!
//! `Checkpoint` in pkg/kubelet/allocation/state: JSON in a string, with the FNV-1a hash of Go's dump of that string.

use serde_json::{Map, Value, json};

use super::pod_resource_info::PodResourceInfo;
use crate::types::api::{PodUid, ResourceRequirements, decode, encode, fnv_32a};
use crate::types::sorted::SortedMap;

/// Pods with their resources.
pub(super) type Entries = SortedMap<PodUid, PodResourceInfo>;

pub(super) fn text(entries: &Entries) -> String {
    let entries: Map<String, Value> = entries.iter().map(|(uid, info)| (uid.to_string(), entry(info))).collect();
    let data = match entries.is_empty() {
        true => json!({}),
        false => json!({ "entries": entries }),
    };
    let data = data.to_string();
    let checksum = checksum(&data);
    json!({ "data": data, "checksum": checksum }).to_string()
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
    entries.iter_mut().map(|(uid, entry)| Some((PodUid::from(uid.as_str()), read_entry(entry)?))).collect()
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
        assert_eq!(text(&entries), format!(r#"{{"checksum":{},"data":"{{}}"}}"#, checksum("{}")));
        assert_eq!(parse(text(&entries).as_bytes()), Some(Entries::new()));
        let mut info = PodResourceInfo { pod_level: Some(Box::new(resources("2"))), ..PodResourceInfo::default() };
        info.containers.insert("main".to_owned(), resources("1"));
        entries.insert("u".into(), info);
        let written = text(&entries);
        assert_eq!(parse(written.as_bytes()), Some(entries));
        assert_eq!(parse(written.replace("64Mi", "65Mi").as_bytes()), None);
        assert_eq!(parse(b"{"), None);
    }

    #[test]
    fn upstreams_file_is_read() {
        let entries = parse(UPSTREAM.as_bytes()).unwrap();
        let info = entries.get(&PodUid::from("pod1")).unwrap();
        assert_eq!(info.containers.get("container1").unwrap().request("cpu").unwrap().value(), 1024);
        assert_eq!(info.pod_level, None);
    }
}
