//! Memory assignments of containers by NUMA node, and their state file. Pure.

use super::memory_policy::{Block, Blocks, MemoryPlanning, OwnMemory, StaticMemory};
use super::pod_level::PodLevel;
use super::settings_error::SettingsError;
use super::state_files::State;
use super::topology_manager::Nodes;
use super::{InUse, MemoryNodes, memory_state};
use crate::platform::config::Config;
use crate::state::pods::{AssignedMemory, MemoryBlock};
use crate::types::api::{MEMORY, Pod, PodUid};
use crate::types::sorted::SortedMap;

#[derive(Debug, Default)]
pub(super) struct MemoryManager {
    /// `None`: memory comes from any node.
    policy: Option<StaticMemory>,
    blocks: Blocks,
    /// NUMA nodes of running containers, used if there is no state file.
    observed_nodes: SortedMap<PodUid, SortedMap<String, Nodes>>,
    is_forgetful: bool,
    /// The file is out of date.
    unwritten: bool,
}

const NONE_MEMORY_POLICY: &str = "None";
const STATIC_MEMORY_POLICY: &str = "Static";

impl MemoryManager {
    /// `nodes`: the NUMA nodes with memory. `kept`: bytes that are not allocatable.
    pub(super) fn new(
        config: &Config,
        nodes: &MemoryNodes,
        kept: u64,
        state: State<(String, Blocks)>,
    ) -> Result<Self, SettingsError> {
        let mut manager = Self::default();
        if !config.managers.static_memory {
            manager.unwritten = !matches!(&state, State::Nothing)
                && !matches!(&state, State::Whole((policy, _)) if policy == NONE_MEMORY_POLICY);
            return Ok(manager);
        }
        let reserved = &config.managers.reserved_memory;
        if let Some((node, ..)) = reserved.iter().find(|(node, ..)| !nodes.iter().any(|(number, _)| number == node)) {
            return Err(SettingsError::UnknownNode(*node));
        }
        for kind in reserved.iter().map(|(_, kind, _)| kind.as_str()).chain([MEMORY]) {
            let reserved_total: u64 = reserved.iter().filter(|(_, name, _)| name == kind).map(|(.., size)| size).sum();
            let expected = if kind == MEMORY { kept } else { 0 };
            if reserved_total != expected {
                return Err(SettingsError::ReservedMemory { kind: kind.to_owned(), expected, found: reserved_total });
            }
        }
        let policy = StaticMemory::new(nodes, reserved, PodLevel::of(config));
        match state {
            State::Whole((name, blocks)) if name == STATIC_MEMORY_POLICY => manager.blocks = policy.plausible(blocks),
            _ => manager.is_forgetful = true,
        }
        manager.policy = Some(policy);
        manager.unwritten = true;
        Ok(manager)
    }

    pub(super) fn is_static(&self) -> bool {
        self.policy.is_some()
    }

    pub(super) fn is_forgetful(&self) -> bool {
        self.is_forgetful
    }

    pub(super) fn is_unwritten(&self) -> bool {
        self.unwritten
    }

    /// Allocatable memory by node and type.
    pub(super) fn allocatable(&self) -> Vec<MemoryBlock> {
        self.policy.iter().flat_map(StaticMemory::allocatable).map(|block| shown(&block)).collect()
    }

    /// Without a state file, running containers keep the nodes they are on.
    pub(super) fn rebuild(&mut self, in_use: &[InUse]) {
        let in_use = in_use.iter().filter(|in_use| self.is_forgetful && !in_use.mems.is_empty());
        for InUse { pod, container, mems, .. } in in_use {
            self.observed_nodes.entry(pod.clone()).or_default().insert(container.clone(), Nodes::of(mems));
        }
    }

    /// `None` without the static policy.
    pub(super) fn plan<'a>(&self, pod: &'a Pod) -> Option<MemoryPlanning<'a>> {
        let none = SortedMap::new();
        let observed_nodes = self.observed_nodes.get(&pod.metadata.uid).unwrap_or(&none);
        Some(self.policy.as_ref()?.plan(&self.blocks, pod, observed_nodes))
    }

    /// Assigns memory to the pod. Returns whether the placements may have changed.
    pub(super) fn allocate(&mut self, pod: &PodUid, memory: OwnMemory) -> bool {
        if self.policy.is_none() {
            return false;
        }
        self.observed_nodes.remove(pod);
        let had = self.blocks.remove(pod);
        self.unwritten |= had.as_ref().is_none_or(|had| *had != memory) && (had.is_some() || !memory.is_empty());
        if !memory.is_empty() {
            self.blocks.insert(pod.clone(), memory);
        }
        true
    }

    /// Releases the memory of pods that are not kept. Returns whether anything was released.
    pub(super) fn release_others(&mut self, is_kept: &dyn Fn(&PodUid) -> bool) -> bool {
        let before = self.blocks.len();
        self.blocks.retain(|pod, _| is_kept(pod));
        let is_less = self.blocks.len() < before;
        self.unwritten |= is_less;
        is_less
    }

    /// The new content of the state file, if it is out of date. Marks it as written.
    pub(super) fn take_unwritten(&mut self) -> Option<String> {
        let text = || match &self.policy {
            Some(policy) => memory_state::text(STATIC_MEMORY_POLICY, &policy.state(&self.blocks), &self.blocks),
            None => memory_state::text(NONE_MEMORY_POLICY, &[], &self.blocks),
        };
        let text = self.unwritten.then(text);
        self.unwritten = false;
        text
    }

    /// Called when the file could not be written.
    pub(super) fn not_written(&mut self) {
        self.unwritten = self.policy.is_some();
    }

    /// Assignments by container, for the pod resources API.
    pub(super) fn placed(&self) -> Vec<AssignedMemory> {
        let mut placed = Vec::new();
        for (pod, pod_memory) in self.blocks.iter() {
            for (container, blocks) in pod_memory.containers.iter() {
                let is_shared = pod_memory.sharing.contains(container);
                let one = |block| {
                    let (pod, container) = (pod.clone(), container.clone());
                    AssignedMemory { pod, container, is_shared, block: shown(block) }
                };
                placed.extend(blocks.iter().map(one));
            }
        }
        placed
    }

    /// Memory of pods as a whole.
    pub(super) fn of_pods(&self) -> SortedMap<PodUid, Vec<MemoryBlock>> {
        let whole = self.blocks.iter().filter(|(_, pod_memory)| !pod_memory.whole.is_empty());
        whole.map(|(pod, pod_memory)| (pod.clone(), pod_memory.whole.iter().map(shown).collect())).collect()
    }

    /// The pod's memory so far.
    pub(super) fn allocated_memory(&self, pod: &PodUid) -> Option<&OwnMemory> {
        self.blocks.get(pod)
    }
}

fn shown(block: &Block) -> MemoryBlock {
    MemoryBlock { nodes: block.nodes.numbers(), kind: block.kind.clone(), size: block.size }
}
