//! The file `cpu_manager_state` in the upstream kubelet's format. Pure.
//!
//! `CPUManagerCheckpointV2` in pkg/kubelet/cm/cpumanager/state. The checksum is FNV-32a over Go's dump of the
//! structure, under the structure's original name.

use serde_json::{Map, Value, json};

use crate::state::pods::Assigned;
use crate::types::api::{PodUid, fnv_32a};
use crate::types::cpu_set::CpuSet;
use crate::types::sorted::SortedMap;

/// The content of a state file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SavedState {
    pub(super) policy: String,
    pub(super) assigned: Assigned,
}

/// The file's text for a policy, its shared CPUs and the exclusive ones.
pub(super) fn text(policy: &str, shared: &CpuSet, assigned: &Assigned) -> String {
    let mut entries = Map::new();
    for (pod, containers) in assigned.iter() {
        let containers = containers.iter().map(|(name, cpus)| (name.clone(), Value::String(cpus.to_string())));
        entries.insert(pod.to_string(), containers.collect());
    }
    let shared = shared.to_string();
    let checksum = fnv_32a(dump(policy, &shared, &entries).as_bytes());
    let middle = if entries.is_empty() { String::new() } else { format!("\"entries\":{},", Value::Object(entries)) };
    let [policy, shared] = [json!(policy), json!(shared)];
    format!("{{\"policyName\":{policy},\"defaultCpuSet\":{shared},{middle}\"checksum\":{checksum}}}")
}

/// `None` if the text is corrupt or in another format.
pub(super) fn parse(text: &[u8]) -> Option<SavedState> {
    let file: Value = serde_json::from_slice(text).ok()?;
    let of = |name| file.get(name).and_then(Value::as_str).unwrap_or_default();
    let none = Map::new();
    let entries = match file.get("entries") {
        Some(entries) => entries.as_object()?,
        None => &none,
    };
    let (policy, shared) = (of("policyName"), of("defaultCpuSet"));
    let checksum = file.get("checksum").and_then(Value::as_u64)?;
    // The first versions of the file had no checksum.
    if checksum != 0 && checksum != u64::from(fnv_32a(dump(policy, shared, entries).as_bytes())) {
        return None;
    }
    CpuSet::parse(shared)?;
    let mut assigned = Assigned::new();
    for (pod, containers) in entries {
        let mut sets = SortedMap::new();
        for (name, cpus) in containers.as_object()? {
            sets.insert(name.clone(), CpuSet::parse(cpus.as_str()?)?);
        }
        assigned.insert(PodUid::from(pod.as_str()), sets);
    }
    Some(SavedState { policy: policy.to_owned(), assigned })
}

/// Maps are already sorted by key.
fn dump(policy: &str, shared: &str, entries: &Map<String, Value>) -> String {
    let of = |name: &str, value: &Value| format!("{name}:{}", value.as_str().unwrap_or_default());
    let pods = entries.iter().map(|(pod, containers)| {
        let containers = containers.as_object().into_iter().flatten().map(|(name, cpus)| of(name, cpus));
        format!("{pod}:map[{}]", containers.collect::<Vec<_>>().join(" "))
    });
    let pods = pods.collect::<Vec<_>>().join(" ");
    format!(
        "(*state.CPUManagerCheckpoint){{PolicyName:(string){policy} DefaultCPUSet:(string){shared} \
         Entries:(map[string]map[string]string)map[{pods}] Checksum:(checksum.Checksum)0}}"
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
            assigned.entry(PodUid::from(*pod)).or_default().insert((*container).to_owned(), set(cpus));
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
