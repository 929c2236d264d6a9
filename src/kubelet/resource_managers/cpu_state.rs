//! The file `cpu_manager_state` in the upstream kubelet's format. Pure.
//!
//! `CPUManagerCheckpoint` in pkg/kubelet/cm/cpumanager/state, versions two to four. The checksum is FNV-32a over Go's
//! dump of the structure, under the structure's original name.

use serde_json::{Map, Value, json};

use crate::state::pods::{Assigned, PodCpus};
use crate::types::api::{PodUid, fnv_32a};
use crate::types::cpu_set::CpuSet;

/// The content of a state file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SavedState {
    pub(super) policy: String,
    pub(super) assigned: Assigned,
}

/// The file's text for a policy, its shared CPUs and the exclusive ones. It has the second version of the format, which
/// all kubelets read, until a pod has CPUs as a whole.
pub(super) fn text(policy: &str, shared: &CpuSet, assigned: &Assigned) -> String {
    let (mut entries, mut pods) = (Map::new(), Map::new());
    for (pod, pod_cpus) in assigned.iter() {
        let containers = pod_cpus.containers.iter().map(|(name, cpus)| (name.clone(), json!(cpus.to_string())));
        entries.insert(pod.to_string(), containers.collect());
        if !pod_cpus.whole.is_empty() {
            pods.insert(pod.to_string(), json!({ "cpuSet": pod_cpus.whole.to_string() }));
        }
    }
    let shared = shared.to_string();
    let middle = |name: &str, entries: &Map<String, Value>| match entries.is_empty() {
        true => String::new(),
        false => format!("\"{name}\":{},", json!(entries)),
    };
    let middle = middle("entries", &entries) + &middle("podEntries", &pods);
    let start = format!("{{\"policyName\":{},\"defaultCpuSet\":{},{middle}", json!(policy), json!(shared));
    if pods.is_empty() {
        let checksum = fnv_32a(dump("", policy, &shared, &entries, None).as_bytes());
        return format!("{start}\"checksum\":{checksum}}}");
    }
    let data = start.trim_end_matches(',').to_owned() + "}";
    let checksum = data_checksum(&data);
    // Kubelets that do not know the data accept what is before it, as its checksum is zero.
    format!("{start}\"checksum\":0,\"data\":{},\"dataChecksum\":{checksum}}}", json!(data))
}

/// Checksum of the text that a state file contains since 1.37.
pub(super) fn data_checksum(data: &str) -> u32 {
    fnv_32a(["(string)", data].concat().as_bytes())
}

/// The content of a file's `data`; the file itself if it has none. `None`: the checksum is another.
pub(super) fn content(file: Value) -> Option<(Value, bool)> {
    let Some(data) = file.get("data") else { return Some((file, false)) };
    let data = data.as_str()?;
    let is_same = file.get("dataChecksum")?.as_u64()? == u64::from(data_checksum(data));
    is_same.then_some(())?;
    Some((serde_json::from_str(data).ok()?, true))
}

/// `None` if the text is corrupt or in another format.
pub(super) fn parse(text: &[u8]) -> Option<SavedState> {
    let (file, is_checked) = content(serde_json::from_slice(text).ok()?)?;
    let of = |name| file.get(name).and_then(Value::as_str).unwrap_or_default();
    let none = Map::new();
    let map_of = |name| match file.get(name) {
        Some(entries) => entries.as_object(),
        None => Some(&none),
    };
    let (entries, pods) = (map_of("entries")?, map_of("podEntries")?);
    let (policy, shared) = (of("policyName"), of("defaultCpuSet"));
    if !is_checked {
        let checksum = file.get("checksum").and_then(Value::as_u64)?;
        let is = |name, pods| checksum == u64::from(fnv_32a(dump(name, policy, shared, entries, pods).as_bytes()));
        // The first versions of the file had no checksum.
        if checksum != 0 && !(pods.is_empty() && is("", None)) && !["", "V3"].iter().any(|name| is(*name, Some(pods))) {
            return None;
        }
    }
    CpuSet::parse(shared)?;
    let mut assigned = Assigned::new();
    for (pod, containers) in entries {
        let mut pod_cpus = PodCpus::default();
        for (name, cpus) in containers.as_object()? {
            pod_cpus.containers.insert(name.clone(), CpuSet::parse(cpus.as_str()?)?);
        }
        assigned.insert(PodUid::from(pod.as_str()), pod_cpus);
    }
    for (pod, entry) in pods {
        let whole = CpuSet::parse(entry.get("cpuSet").and_then(Value::as_str).unwrap_or_default())?;
        assigned.entry(PodUid::from(pod.as_str())).or_default().whole = whole;
    }
    Some(SavedState { policy: policy.to_owned(), assigned })
}

/// Go's dump of the structure with this version in its name. Maps are already sorted by key. `pods`: the CPUs of pods as
/// a whole, in the third version.
fn dump(
    version: &str,
    policy: &str,
    shared: &str,
    entries: &Map<String, Value>,
    pods: Option<&Map<String, Value>>,
) -> String {
    let of = |name: &str, value: &Value| format!("{name}:{}", value.as_str().unwrap_or_default());
    let entries = entries.iter().map(|(pod, containers)| {
        let containers = containers.as_object().into_iter().flatten().map(|(name, cpus)| of(name, cpus));
        format!("{pod}:map[{}]", containers.collect::<Vec<_>>().join(" "))
    });
    let entries = entries.collect::<Vec<_>>().join(" ");
    let pod = |(pod, entry): (&String, &Value)| {
        let cpus = entry.get("cpuSet").and_then(Value::as_str).and_then(CpuSet::parse).unwrap_or_default();
        let cpus = cpus.iter().map(|cpu| format!("{cpu}:{{}}")).collect::<Vec<_>>().join(" ");
        format!("{pod}:{{CPUSet:(cpuset.CPUSet){{elems:(map[int]struct {{}})map[{cpus}]}}}}")
    };
    let pods = pods.map_or_else(String::new, |pods| {
        let pods = pods.iter().map(pod).collect::<Vec<_>>().join(" ");
        format!(" PodEntries:(state.PodCPUAssignments)map[{pods}]")
    });
    format!(
        "(*state.CPUManagerCheckpoint{version}){{PolicyName:(string){policy} DefaultCPUSet:(string){shared} \
         Entries:(map[string]map[string]string)map[{entries}]{pods} Checksum:(checksum.Checksum)0}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> CpuSet {
        CpuSet::parse(text).unwrap()
    }

    fn assigned(entries: &[(&str, &str, &str)]) -> Assigned {
        let mut assigned = Assigned::new();
        for (pod, container, cpus) in entries {
            assigned.entry(PodUid::from(*pod)).or_default().containers.insert((*container).to_owned(), set(cpus));
        }
        assigned
    }

    /// Checksums are from the upstream kubelet's tests.
    #[test]
    fn upstream_file_is_read_and_written_byte_by_byte() {
        let empty = r#"{"policyName":"none","defaultCpuSet":"4-6","checksum":354655845}"#;
        assert_eq!(text("none", &set("4-6"), &Assigned::new()), empty);
        assert_eq!(parse(empty.as_bytes()), Some(SavedState { policy: "none".to_owned(), assigned: Assigned::new() }));
        let full = r#"{"policyName":"none","defaultCpuSet":"1-3","entries":{"pod":{"container1":"4-6","container2":"1-3"}},"checksum":3610638499}"#;
        let entries = assigned(&[("pod", "container2", "1-3"), ("pod", "container1", "4-6")]);
        assert_eq!(text("none", &set("1-3"), &entries), full);
        assert_eq!(parse(full.as_bytes()), Some(SavedState { policy: "none".to_owned(), assigned: entries }));
    }

    /// Files and checksums are from the upstream kubelet's tests.
    #[test]
    fn cpus_of_pods_are_read_from_upstreams_files_and_written() {
        let third = r#"{"policyName":"static","defaultCpuSet":"1-2","entries":{"pod1":{"container1":"5-6","container2":"3-4"}},"podEntries":{"pod2":{"cpuSet":"7-9"}},"checksum":2284712151}"#;
        let mut expected = assigned(&[("pod1", "container1", "5-6"), ("pod1", "container2", "3-4")]);
        expected.entry("pod2".into()).or_default().whole = set("7-9");
        assert_eq!(parse(third.as_bytes()).unwrap().assigned, expected);
        assert_eq!(parse(third.replace("7-9", "7-8").as_bytes()), None);
        let data = r#"{"policyName":"static","defaultCPUSet":"1-3","entries":{"pod":{"container1":"4-6","container2":"7-9"}},"podEntries":{"pod":{"cpuSet":"4-10"}}}"#;
        assert_eq!(data_checksum(data), 2_328_898_362);
        let mut own = assigned(&[("pod", "container1", "4-6"), ("pod", "container2", "7-9")]);
        own.get_mut("pod").unwrap().whole = set("4-10");
        let written = text("static", &set("1-3"), &own);
        let start = r#"{"policyName":"static","defaultCpuSet":"1-3","entries":{"pod":{"container1":"4-6","container2":"7-9"}},"podEntries":{"pod":{"cpuSet":"4-10"}}"#;
        let data = Value::String(format!("{start}}}"));
        let checksum = data_checksum(&format!("{start}}}"));
        assert_eq!(written, format!("{start},\"checksum\":0,\"data\":{data},\"dataChecksum\":{checksum}}}"));
        assert_eq!(parse(written.as_bytes()), Some(SavedState { policy: "static".to_owned(), assigned: own }));
        assert_eq!(parse(written.replace("4-10\\\"", "4-11\\\"").as_bytes()), None);
    }

    #[test]
    fn truncated_or_changed_file_is_corrupt() {
        let whole = text("static", &set("0,3"), &assigned(&[("a-b", "main", "1-2"), ("c", "x", "4")]));
        assert!(parse(whole.as_bytes()).is_some());
        for at in 0..whole.len() {
            assert_eq!(parse(&whole.as_bytes()[..at]), None, "cut at {at}");
            let mut other = whole.clone().into_bytes();
            other[at] ^= 1;
            let read = parse(&other);
            assert!(read.is_none() || other[at].is_ascii_whitespace(), "changed at {at}: {read:?}");
        }
    }

    #[test]
    fn other_formats_are_corrupt() {
        for text in ["", "{}", "null", "[]", r#"{"checksum":1}"#, r#"{"entries":[],"checksum":0}"#] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        // The first version's entries by container only, and an invalid CPU set.
        for entries in [r#"{"id":"1"}"#, r#"{"pod":{"c":"asd"}}"#, r#"{"pod":{"c":1}}"#] {
            let text = format!(r#"{{"policyName":"static","defaultCpuSet":"0","entries":{entries},"checksum":0}}"#);
            assert_eq!(parse(text.as_bytes()), None, "{entries}");
        }
        let old = r#"{"policyName":"static","defaultCpuSet":"0","checksum":0}"#;
        assert!(parse(old.as_bytes()).is_some());
    }
}
