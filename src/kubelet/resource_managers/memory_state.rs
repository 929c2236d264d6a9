//! The file `memory_manager_state` in the upstream kubelet's format. Pure.
//!
//! `MemoryManagerCheckpoint` in pkg/kubelet/cm/memorymanager/state, versions one to three, with the checksums of
//! `cpu_manager_state`. The machine state in it is derived from the assignments and is not read.

use serde_json::{Map, Value, json};

use super::cpu_state::{content, data_checksum};
use super::memory_policy::{Block, Blocks, NodeState, OwnMemory};
use super::topology_manager::Nodes;
use crate::types::api::{PodUid, fnv_32a};
use crate::types::cpu_set::CpuSet;
use crate::types::sorted::SortOnce;

/// The file's text for a policy; under `None` state and blocks are empty. It has the first version of the format, which
/// all kubelets read, until a pod has memory as a whole.
pub(super) fn text(policy: &str, state: &[NodeState], blocks: &Blocks) -> String {
    let mut file = Map::new();
    file.insert("policyName".to_owned(), json!(policy));
    file.insert("machineState".to_owned(), machine_state(state));
    let (mut entries, mut pods) = (Map::new(), Map::new());
    for (pod, pod_memory) in blocks.iter() {
        let of = |blocks: &Vec<Block>| -> Value { blocks.iter().map(entry).collect() };
        let containers = pod_memory.containers.iter().map(|(name, blocks)| (name.clone(), of(blocks)));
        entries.insert(pod.to_string(), Value::Object(containers.collect()));
        if !pod_memory.whole.is_empty() {
            pods.insert(pod.to_string(), json!({ "memoryBlocks": of(&pod_memory.whole) }));
        }
    }
    if !entries.is_empty() {
        file.insert("entries".to_owned(), Value::Object(entries));
    }
    let mut data = Value::Object(file.clone());
    file.insert("checksum".to_owned(), json!(fnv_32a(dump(&data, false).as_bytes())));
    if let (Some(map), false) = (data.as_object_mut(), pods.is_empty()) {
        map.insert("podEntries".to_owned(), Value::Object(pods));
        let data = data.to_string();
        file.insert("dataChecksum".to_owned(), json!(data_checksum(&data)));
        file.insert("data".to_owned(), Value::String(data));
    }
    Value::Object(file).to_string()
}

/// The policy and the assignments; `None` if the text is corrupt or in another format.
pub(super) fn parse(text: &[u8]) -> Option<(String, Blocks)> {
    let (file, is_checked) = content(serde_json::from_slice(text).ok()?)?;
    if !is_checked {
        let checksum = file.get("checksum")?.as_u64()?;
        let is = |has_pods| checksum == u64::from(fnv_32a(dump(&file, has_pods).as_bytes()));
        if checksum != 0 && !is(true) && (file.get("podEntries").is_some() || !is(false)) {
            return None;
        }
    }
    let blocks = |entries: &Value| -> Option<Vec<Block>> { entries.as_array()?.iter().map(block).collect() };
    let mut blocks_of_pods = Blocks::new();
    for (pod, containers) in object(&file, "entries") {
        let mut pod_memory = OwnMemory::default();
        for (name, entries) in containers.as_object()? {
            pod_memory.containers.insert(name.clone(), blocks(entries)?);
        }
        blocks_of_pods.insert(PodUid::from(pod.as_str()), pod_memory);
    }
    for (pod, entry) in object(&file, "podEntries") {
        blocks_of_pods.entry(PodUid::from(pod.as_str())).or_default().whole = blocks(entry.get("memoryBlocks")?)?;
    }
    Some((file.get("policyName")?.as_str()?.to_owned(), blocks_of_pods))
}

fn machine_state(state: &[NodeState]) -> Value {
    let nodes = state.iter().map(|node| {
        let tables = node.tables.iter().map(|(kind, table)| {
            let table = json!({
                "total": table.total, "systemReserved": table.system, "allocatable": table.allocatable,
                "reserved": table.used, "free": table.allocatable.saturating_sub(table.used),
            });
            (kind.clone(), table)
        });
        let tables: Map<String, Value> = tables.collect();
        let cells: Vec<u32> = node.cells.numbers().iter().collect();
        let state = json!({ "numberOfAssignments": node.assignments, "memoryMap": tables, "cells": cells });
        (node.number.to_string(), state)
    });
    Value::Object(nodes.collect())
}

fn entry(block: &Block) -> Value {
    let nodes: Vec<u32> = block.nodes.numbers().iter().collect();
    json!({ "numaAffinity": nodes, "type": block.kind, "size": block.size })
}

fn block(entry: &Value) -> Option<Block> {
    let nodes = entry.get("numaAffinity")?.as_array()?;
    let nodes: CpuSet = nodes
        .iter()
        .map(|node| u32::try_from(node.as_u64()?).ok())
        .collect::<Option<Vec<u32>>>()?
        .into_iter()
        .collect();
    Some(Block {
        nodes: Nodes::of(&nodes),
        kind: entry.get("type")?.as_str()?.to_owned(),
        size: entry.get("size")?.as_u64()?,
    })
}

fn object<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value.get(name).and_then(Value::as_object).into_iter().flatten()
}

/// Go's dump of the structure: pointers in maps are printed as `<*>`, numeric keys are sorted numerically. `has_pods`: it
/// has the memory of pods as a whole, as the second version.
fn dump(file: &Value, has_pods: bool) -> String {
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let number = |value: &Value, name: &str| value.get(name).and_then(Value::as_u64).unwrap_or_default();
    let numbers = |value: &Value, name: &str| {
        let numbers = value.get(name).and_then(Value::as_array).into_iter().flatten();
        numbers.map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    let mut nodes: Vec<(u64, &Value)> =
        object(file, "machineState").map(|(node, state)| (node.parse().unwrap_or_default(), state)).collect();
    nodes.sort_once_by_key(|(node, _)| *node);
    let nodes = nodes.into_iter().map(|(node, state)| {
        let tables = object(state, "memoryMap").map(|(kind, table)| {
            format!(
                "{kind}:<*>{{TotalMemSize:(uint64){} SystemReserved:(uint64){} Allocatable:(uint64){} \
                 Reserved:(uint64){} Free:(uint64){}}}",
                number(table, "total"),
                number(table, "systemReserved"),
                number(table, "allocatable"),
                number(table, "reserved"),
                number(table, "free")
            )
        });
        format!(
            "{node}:<*>{{NumberOfAssignments:(int){} MemoryMap:(map[v1.ResourceName]*state.MemoryTable)map[{}] \
             Cells:([]int)[{}]}}",
            number(state, "numberOfAssignments"),
            tables.collect::<Vec<_>>().join(" "),
            numbers(state, "cells")
        )
    });
    let of_blocks = |blocks: &Value| {
        let blocks = blocks.as_array().into_iter().flatten().map(|block| {
            format!(
                "{{NUMAAffinity:([]int)[{}] Type:(v1.ResourceName){} Size:(uint64){}}}",
                numbers(block, "numaAffinity"),
                text(block, "type"),
                number(block, "size")
            )
        });
        format!("[{}]", blocks.collect::<Vec<_>>().join(" "))
    };
    let pods = object(file, "entries").map(|(pod, containers)| {
        let containers = containers.as_object().into_iter().flatten();
        let containers = containers.map(|(name, blocks)| format!("{name}:{}", of_blocks(blocks)));
        format!("{pod}:map[{}]", containers.collect::<Vec<_>>().join(" "))
    });
    let wholes = object(file, "podEntries").map(|(pod, entry)| {
        let blocks = of_blocks(entry.get("memoryBlocks").unwrap_or(&Value::Null));
        format!("{pod}:{{MemoryBlocks:([]state.Block){blocks}}}")
    });
    let wholes = match has_pods {
        true => format!(" PodEntries:(state.PodMemoryAssignments)map[{}]", wholes.collect::<Vec<_>>().join(" ")),
        false => String::new(),
    };
    format!(
        "(*state.MemoryManagerCheckpoint){{PolicyName:(string){} MachineState:(state.NUMANodeMap)map[{}] \
         Entries:(state.ContainerMemoryAssignments)map[{}]{wholes} Checksum:(checksum.Checksum)0}}",
        text(file, "policyName"),
        nodes.collect::<Vec<_>>().join(" "),
        pods.collect::<Vec<_>>().join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checksum is from the upstream kubelet's tests.
    const UPSTREAM: &str = r#"{"policyName":"static","machineState":{"0":{"numberOfAssignments":0,"memoryMap":{"memory":
        {"total":2048,"systemReserved":512,"allocatable":1536,"reserved":512,"free":1024}},"cells":[]}},
        "entries":{"pod":{"container1":[{"numaAffinity":[0],"type":"memory","size":512}]}},"checksum": 4215593881}"#;

    fn blocks(nodes: &str) -> Blocks {
        let nodes = Nodes::of(&CpuSet::parse(nodes).unwrap());
        let block = |kind: &str, size| Block { nodes, kind: kind.to_owned(), size };
        let mut own = OwnMemory::default();
        own.containers.insert("container1".to_owned(), vec![block("memory", 512), block("hugepages-2Mi", 0)]);
        [("pod".into(), own)].into_iter().collect()
    }

    #[test]
    fn upstream_file_is_read() {
        let (policy, found) = parse(UPSTREAM.as_bytes()).unwrap();
        let mut expected = blocks("0");
        expected.get_mut("pod").unwrap().containers.get_mut("container1").unwrap().truncate(1);
        assert_eq!((policy.as_str(), found), ("static", expected));
        assert_eq!(parse(UPSTREAM.replace("\"size\":512", "\"size\":513").as_bytes()), None);
    }

    /// The checksums are from the upstream kubelet's tests.
    #[test]
    fn memory_of_pods_is_read_from_upstreams_files_and_written() {
        let with_pods = UPSTREAM.replace(
            r#""checksum": 4215593881"#,
            r#""podEntries":{"pod":{"memoryBlocks":[{"numaAffinity":[0],"type":"memory","size":512}]}},"checksum":1278640530"#,
        );
        let (_, found) = parse(with_pods.as_bytes()).unwrap();
        assert_eq!(found["pod"].whole, found["pod"].containers["container1"]);
        assert_eq!(parse(with_pods.replace("\"podEntries\"", "\"others\"").as_bytes()), None);
        let data = r#"{"policyName":"static","machineState":{"0":{"numberOfAssignments":0,"memoryMap":{"memory":{"total":2048,"systemReserved":512,"allocatable":1536,"reserved":512,"free":1024}},"cells":[]}},"entries":{"pod":{"container1":[{"numaAffinity":[0],"type":"memory","size":512}]}}}"#;
        // What is beside the data is not read.
        let third = json!({"policyName": "other", "checksum": 1234, "data": data, "dataChecksum": 1_849_615_440_u32});
        let (policy, read) = parse(third.to_string().as_bytes()).unwrap();
        assert_eq!((policy.as_str(), read["pod"].containers["container1"].len()), ("static", 1));
        assert_eq!(parse(third.to_string().replace("1849615440", "1").as_bytes()), None);
        let written = text("Static", &[], &found);
        assert_eq!(parse(written.as_bytes()), Some(("Static".to_owned(), found)));
        let file: Value = serde_json::from_str(&written).unwrap();
        assert_eq!(file["checksum"], json!(fnv_32a(dump(&file, false).as_bytes())), "for kubelets before 1.37");
    }

    #[test]
    fn written_file_is_read_back_and_truncated_one_is_corrupt() {
        let whole = text("Static", &[], &blocks("0-1"));
        assert_eq!(parse(whole.as_bytes()), Some(("Static".to_owned(), blocks("0-1"))));
        for at in 0..whole.len() {
            assert_eq!(parse(&whole.as_bytes()[..at]), None, "cut at {at}");
        }
        assert_eq!(parse(text("None", &[], &Blocks::new()).as_bytes()), Some(("None".to_owned(), Blocks::new())));
    }
}
