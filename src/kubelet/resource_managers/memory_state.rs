//! The file `memory_manager_state` in the upstream kubelet's format. Pure.
//!
//! `MemoryManagerCheckpointV1` in pkg/kubelet/cm/memorymanager/state, with the checksum of `cpu_manager_state`. The
//! machine state in it is derived from the assignments and is not read.

use serde_json::{Map, Value, json};

use super::memory_policy::{Block, Blocks, NodeState, OwnMemory};
use super::topology_manager::Nodes;
use crate::types::api::{PodUid, fnv_32a};
use crate::types::cpu_set::CpuSet;

/// The file's text for a policy; under `None` state and blocks are empty.
pub(super) fn text(policy: &str, state: &[NodeState], blocks: &Blocks) -> String {
    let mut file = Map::new();
    file.insert("policyName".to_owned(), json!(policy));
    file.insert("machineState".to_owned(), machine_state(state));
    let mut entries = Map::new();
    for (pod, containers) in blocks.iter() {
        let containers = containers.iter().map(|(name, blocks)| (name.clone(), blocks.iter().map(entry).collect()));
        entries.insert(pod.to_string(), Value::Object(containers.collect()));
    }
    if !entries.is_empty() {
        file.insert("entries".to_owned(), Value::Object(entries));
    }
    let unsigned = Value::Object(file.clone());
    file.insert("checksum".to_owned(), json!(fnv_32a(dump(&unsigned).as_bytes())));
    Value::Object(file).to_string()
}

/// The policy and the assignments; `None` if the text is corrupt or in another format.
pub(super) fn parse(text: &[u8]) -> Option<(String, Blocks)> {
    let file: Value = serde_json::from_slice(text).ok()?;
    let checksum = file.get("checksum")?.as_u64()?;
    if checksum != 0 && checksum != u64::from(fnv_32a(dump(&file).as_bytes())) {
        return None;
    }
    let mut all = Blocks::new();
    for (pod, containers) in object(&file, "entries") {
        let mut own = OwnMemory::new();
        for (name, entries) in containers.as_object()? {
            own.insert(name.clone(), entries.as_array()?.iter().map(block).collect::<Option<_>>()?);
        }
        all.insert(PodUid::from(pod.as_str()), own);
    }
    Some((file.get("policyName")?.as_str()?.to_owned(), all))
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

/// Go's dump of the structure: pointers in maps are printed as `<*>`, numeric keys are sorted numerically.
fn dump(file: &Value) -> String {
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let number = |value: &Value, name: &str| value.get(name).and_then(Value::as_u64).unwrap_or_default();
    let numbers = |value: &Value, name: &str| {
        let numbers = value.get(name).and_then(Value::as_array).into_iter().flatten();
        numbers.map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    let mut nodes: Vec<(u64, &Value)> =
        object(file, "machineState").map(|(node, state)| (node.parse().unwrap_or_default(), state)).collect();
    nodes.sort_by_key(|(node, _)| *node);
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
    let pods = object(file, "entries").map(|(pod, containers)| {
        let containers = containers.as_object().into_iter().flatten().map(|(name, blocks)| {
            let blocks = blocks.as_array().into_iter().flatten().map(|block| {
                format!(
                    "{{NUMAAffinity:([]int)[{}] Type:(v1.ResourceName){} Size:(uint64){}}}",
                    numbers(block, "numaAffinity"),
                    text(block, "type"),
                    number(block, "size")
                )
            });
            format!("{name}:[{}]", blocks.collect::<Vec<_>>().join(" "))
        });
        format!("{pod}:map[{}]", containers.collect::<Vec<_>>().join(" "))
    });
    format!(
        "(*state.MemoryManagerCheckpoint){{PolicyName:(string){} MachineState:(state.NUMANodeMap)map[{}] \
         Entries:(state.ContainerMemoryAssignments)map[{}] Checksum:(checksum.Checksum)0}}",
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
        let own: OwnMemory =
            [("container1".to_owned(), vec![block("memory", 512), block("hugepages-2Mi", 0)])].into_iter().collect();
        [("pod".into(), own)].into_iter().collect()
    }

    #[test]
    fn upstream_file_is_read() {
        let (policy, found) = parse(UPSTREAM.as_bytes()).unwrap();
        let mut expected = blocks("0");
        expected.get_mut("pod").unwrap().get_mut("container1").unwrap().truncate(1);
        assert_eq!((policy.as_str(), found), ("static", expected));
        assert_eq!(parse(UPSTREAM.replace("\"size\":512", "\"size\":513").as_bytes()), None);
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
