//! The static memory policy: NUMA nodes for the memory of guaranteed pods. Pure.
//!
//! `staticPolicy` in pkg/kubelet/cm/memorymanager. A node used by single-node assignments cannot be used by
//! multi-node ones, and the reverse.

use super::pod_level::{PodLevel, all_containers, check_pool, memory_of_pod};
use super::rejection::{AllocationRejection, unexpected};
use super::topology_manager::{self, Hint, Hints, Nodes};
use super::{MemoryNodes, Provider};
use crate::types::api::{Container, MEMORY, Pod, PodUid};
use crate::types::sorted::SortedMap;

/// `size` bytes of a type of memory, from these nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(super) nodes: Nodes,
    pub(super) kind: String,
    pub(super) size: u64,
}

/// Memory of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnMemory {
    pub(super) containers: SortedMap<String, Vec<Block>>,
    /// Memory of a pod that has it as a whole, and whose containers divide it; empty for other pods.
    pub(super) whole: Vec<Block>,
    /// The containers whose memory is not exclusive: they share that of the pod.
    pub(super) sharing: Vec<String>,
}

impl OwnMemory {
    pub(super) fn is_empty(&self) -> bool {
        self.containers.is_empty() && self.whole.is_empty()
    }

    /// What the pod takes from the nodes.
    fn taken(&self) -> impl Iterator<Item = &Block> {
        let parts = self.containers.values().flatten().filter(|_| self.whole.is_empty());
        self.whole.iter().chain(parts)
    }
}

/// By pod.
pub(crate) type Blocks = SortedMap<PodUid, OwnMemory>;

/// Memory of one type on a node, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    pub(super) total: u64,
    pub(super) system: u64,
    pub(super) allocatable: u64,
    pub(super) used: u64,
}

/// One node and its users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeState {
    pub(super) number: u32,
    pub(super) tables: SortedMap<String, Table>,
    pub(super) assignments: u32,
    /// The nodes with which it forms a group.
    pub(super) cells: Nodes,
}

impl NodeState {
    fn free(&self, kind: &str) -> u64 {
        self.tables.get(kind).map_or(0, |table| table.allocatable.saturating_sub(table.used))
    }

    fn allocatable(&self, kind: &str) -> u64 {
        self.tables.get(kind).map_or(0, |table| table.allocatable)
    }
}

#[derive(Clone, Debug)]
pub(super) struct StaticMemory {
    /// The nodes without any assignments.
    nodes: Vec<NodeState>,
    level: PodLevel,
}

impl StaticMemory {
    /// `reserved`: memory for the system, by node and type.
    pub(super) fn new(nodes: &MemoryNodes, reserved: &[(u32, String, u64)], level: PodLevel) -> Self {
        let node = |(number, sizes): &(u32, Vec<(String, u64)>)| {
            let huge: u64 = sizes.iter().filter(|(kind, _)| kind != MEMORY).map(|(_, size)| size).sum();
            let table = |(kind, total): &(String, u64)| {
                let kept = reserved.iter().filter(|(node, name, _)| node == number && name == kind);
                let system = kept.map(|(.., size)| size).sum();
                let huge = if kind == MEMORY { huge } else { 0 };
                let allocatable = total.saturating_sub(system).saturating_sub(huge);
                (kind.clone(), Table { total: *total, system, allocatable, used: 0 })
            };
            NodeState {
                number: *number,
                tables: sizes.iter().map(table).collect(),
                assignments: 0,
                cells: Nodes::of(&std::iter::once(*number).collect()),
            }
        };
        Self { nodes: nodes.iter().map(node).collect(), level }
    }

    /// The nodes with these blocks assigned.
    pub(super) fn state(&self, blocks: &Blocks) -> Vec<NodeState> {
        let mut state = self.nodes.clone();
        for block in blocks.values().flat_map(OwnMemory::taken) {
            take(&mut state, block, block.size);
        }
        state
    }

    /// Allocatable memory of each node.
    pub(super) fn allocatable(&self) -> Vec<Block> {
        let of_node = |node: &NodeState| {
            let nodes = node.cells;
            let kinds = node.tables.iter().filter(|(_, table)| table.allocatable > 0);
            kinds.map(|(kind, table)| Block { nodes, kind: kind.clone(), size: table.allocatable }).collect::<Vec<_>>()
        };
        self.nodes.iter().flat_map(of_node).collect()
    }

    /// The pods of `found` whose assignments are possible together on this machine.
    pub(super) fn plausible(&self, observed_blocks: Blocks) -> Blocks {
        let (mut state, mut blocks) = (self.nodes.clone(), Blocks::new());
        let all_nodes = self.nodes.iter().fold(0u64, |all_nodes, node| all_nodes | node.cells.bits());
        for (pod, pod_memory) in observed_blocks {
            let mut next = state.clone();
            let is_here = |block: &Block| block.nodes.bits() != 0 && block.nodes.bits() & !all_nodes == 0;
            let are_here = pod_memory.containers.values().flatten().all(is_here);
            let fits = pod_memory.taken().all(|block| {
                let is_free = is_here(block) && !is_split(&next, block.nodes);
                let free: u64 = within(&next, block.nodes).map(|node| node.free(&block.kind)).sum();
                take(&mut next, block, block.size);
                is_free && free >= block.size
            });
            if fits && are_here {
                state = next;
                blocks.insert(pod, pod_memory);
            }
        }
        blocks
    }

    pub(super) fn plan<'a>(
        &self,
        blocks: &Blocks,
        pod: &'a Pod,
        observed_nodes: &SortedMap<String, Nodes>,
    ) -> MemoryPlanning<'a> {
        let uid = &pod.metadata.uid;
        // What the pod had under another scope is free.
        let is_whole = self.level.is_whole(pod);
        let previous_memory =
            blocks.get(uid).filter(|previous| previous.whole.is_empty() != is_whole).cloned().unwrap_or_default();
        let others = blocks.iter().filter(|(other, _)| *other != uid);
        let others: Blocks = others.map(|(other, own)| (other.clone(), own.clone())).collect();
        let mut state = self.state(&others);
        for block in previous_memory.taken() {
            take(&mut state, block, block.size);
        }
        MemoryPlanning {
            pod,
            level: self.level,
            state,
            previous_memory,
            observed_nodes: observed_nodes.clone(),
            reusable: Vec::new(),
            pod_memory: OwnMemory::default(),
            requesting: 0,
            has_failed: false,
        }
    }
}

fn within(state: &[NodeState], nodes: Nodes) -> impl Iterator<Item = &NodeState> {
    state.iter().filter(move |node| nodes.has_all(Nodes::of(&std::iter::once(node.number).collect())))
}

fn take(state: &mut [NodeState], block: &Block, size: u64) {
    let mut missing = size;
    for node in state.iter_mut() {
        if !block.nodes.has_all(Nodes::of(&std::iter::once(node.number).collect())) {
            continue;
        }
        node.assignments += 1;
        node.cells = block.nodes;
        if let Some(table) = node.tables.get_mut(&block.kind) {
            let taken = missing.min(table.allocatable.saturating_sub(table.used));
            table.used += taken;
            missing -= taken;
        }
    }
}

/// Whether a node in `nodes` is already used alone or with other nodes.
fn is_split(state: &[NodeState], nodes: Nodes) -> bool {
    let is_one = nodes.count() == 1;
    within(state, nodes).any(|node| match is_one {
        true => node.cells.count() > 1,
        false => node.assignments > 0 && node.cells != nodes,
    })
}

/// The allocation of one pod's memory, container by container.
pub(super) struct MemoryPlanning<'a> {
    pod: &'a Pod,
    level: PodLevel,
    state: Vec<NodeState>,
    previous_memory: OwnMemory,
    /// NUMA nodes of running containers, if nothing else is known.
    observed_nodes: SortedMap<String, Nodes>,
    /// Memory of init containers that end.
    reusable: Vec<Block>,
    pod_memory: OwnMemory,
    /// Number of containers with memory requests, for the metrics.
    requesting: u32,
    has_failed: bool,
}

impl MemoryPlanning<'_> {
    pub(super) fn into_pod_memory(self) -> OwnMemory {
        self.pod_memory
    }

    pub(super) fn requesting(&self) -> u32 {
        self.requesting
    }

    pub(super) fn has_failed(&self) -> bool {
        self.has_failed
    }

    fn reusable(&self, nodes: Nodes, kind: &str) -> u64 {
        let same = self.reusable.iter().find(|block| block.nodes == nodes && block.kind == kind);
        same.map_or(0, |block| block.size)
    }

    /// The node sets that have all of the requested memory; the same for each type.
    fn sets(&self, requests: &[(String, u64)]) -> Hints {
        let all_nodes = Nodes::of(&self.state.iter().map(|node| node.number).collect());
        let sum = |nodes: Nodes, of: fn(&NodeState, &str) -> u64, kind: &str| -> u64 {
            within(&self.state, nodes).map(|node| of(node, kind)).sum()
        };
        let could = |nodes| requests.iter().all(|(kind, size)| sum(nodes, NodeState::allocatable, kind) >= *size);
        let can = |nodes| {
            let is_free = |(kind, size): &(String, u64)| {
                sum(nodes, NodeState::free, kind).saturating_add(self.reusable(nodes, kind)) >= *size
            };
            could(nodes) && !is_split(&self.state, nodes) && requests.iter().all(is_free)
        };
        topology_manager::hints(all_nodes, &could, &can)
    }

    fn requests_of(&self, container: &Container) -> Vec<(String, u64)> {
        self.level.own_memory(self.pod, container)
    }

    fn of_pod(&self) -> Vec<(String, u64)> {
        if self.level.is_whole(self.pod) {
            return memory_of_pod(self.pod);
        }
        let mut kinds: SortedMap<String, [u64; 2]> = SortedMap::new();
        for (container, ends) in all_containers(self.pod) {
            for (kind, size) in self.requests_of(container) {
                let [most, stay] = kinds.entry(kind).or_default();
                *most = (*most).max(stay.saturating_add(size));
                *stay = stay.saturating_add(if ends { 0 } else { size });
            }
        }
        kinds.into_iter().map(|(kind, [most, _])| (kind, most)).collect()
    }

    /// The nodes to allocate from, within the topology manager's `preferred_nodes` if they are set.
    fn choose(
        &self,
        name: &str,
        requests: &[(String, u64)],
        preferred_nodes: Option<Nodes>,
    ) -> Result<Nodes, AllocationRejection> {
        let sets = self.sets(requests);
        if let Some(nodes) =
            self.observed_nodes.get(name).filter(|observed| sets.iter().any(|hint| hint.nodes == Some(**observed)))
        {
            return Ok(*nodes);
        }
        if let Some(nodes) = preferred_nodes.filter(|nodes| sets.iter().any(|hint| hint.nodes == Some(*nodes))) {
            return Ok(nodes);
        }
        let able = sets.iter().filter(|hint| {
            preferred_nodes.is_none_or(|preferred| hint.nodes.is_some_and(|nodes| nodes.has_all(preferred)))
        });
        // Among equal sizes the lowest numbers come first; preferred hints are the narrowest.
        let best = able.min_by_key(|hint| (!hint.preferred, hint.nodes.map_or(0, Nodes::count)));
        let lack = match preferred_nodes {
            None => {
                "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
            }
            Some(_) => "[memorymanager] failed to find NUMA nodes to extend the current topology hint",
        };
        let best = best.ok_or_else(|| unexpected(lack))?;
        if preferred_nodes.is_none() && !best.preferred {
            return Err(unexpected("[memorymanager] failed to find the default preferred hint"));
        }
        best.nodes.ok_or_else(|| unexpected(lack))
    }

    /// Returns the bytes reused from ended init containers and subtracts them there, so that the sum of all blocks is
    /// the pod's memory.
    fn take_over(&mut self, block: &Block) -> u64 {
        let reused = self.reusable(block.nodes, &block.kind).min(block.size);
        let mut still_reused = reused;
        for init in self.pod.spec.init_containers.iter().filter(|init| !init.is_sidecar()) {
            for own in self.pod_memory.containers.get_mut(&init.name).into_iter().flatten() {
                if own.nodes == block.nodes && own.kind == block.kind {
                    let part = own.size.min(still_reused);
                    own.size -= part;
                    still_reused -= part;
                }
            }
        }
        reused
    }
}

impl Provider for MemoryPlanning<'_> {
    fn hints(&mut self, container: Option<&Container>) -> Vec<Hints> {
        let requests = container.map_or_else(|| self.of_pod(), |container| self.requests_of(container));
        let is_whole = self.level.is_whole(self.pod);
        if is_whole && self.check_pool().is_err() {
            return vec![Hints::new(); requests.len()];
        }
        let previous = match container {
            Some(container) => self.previous_memory.containers.get(&container.name),
            None if is_whole => Some(&self.previous_memory.whole).filter(|previous| !previous.is_empty()),
            None => self.previous_memory.containers.values().next(),
        };
        if let Some(previous) = previous {
            return previous.iter().map(|block| vec![Hint { nodes: Some(block.nodes), preferred: true }]).collect();
        }
        let sets = self.sets(&requests);
        // If no node set has enough, `allocate` reports it.
        if sets.is_empty() { Vec::new() } else { vec![sets; requests.len()] }
    }

    fn allocate(&mut self, container: &Container, nodes: Option<Nodes>) -> Result<(), AllocationRejection> {
        let is_whole = self.level.is_whole(self.pod);
        if is_whole && !self.pod_memory.whole.is_empty() {
            return Ok(());
        }
        let requests = if is_whole { self.of_pod() } else { self.requests_of(container) };
        if requests.is_empty() {
            return Ok(());
        }
        self.requesting += 1;
        // Reset on success.
        self.has_failed = true;
        if is_whole {
            self.place_pod(container, requests, nodes)?;
        } else {
            self.place(container, requests, nodes)?;
        }
        self.has_failed = false;
        Ok(())
    }
}

impl MemoryPlanning<'_> {
    fn place(
        &mut self,
        container: &Container,
        requests: Vec<(String, u64)>,
        nodes: Option<Nodes>,
    ) -> Result<(), AllocationRejection> {
        if let Some(previous) = self.previous_memory.containers.get(&container.name) {
            self.pod_memory.containers.insert(container.name.clone(), previous.clone());
            return Ok(());
        }
        let nodes = self.choose_unsplit(&container.name, &requests, nodes)?;
        let init = self.pod.spec.init_containers.iter().find(|init| init.name == container.name);
        let ends = init.is_some_and(|init| !init.is_sidecar());
        let blocks: Vec<Block> = requests.into_iter().map(|(kind, size)| Block { nodes, kind, size }).collect();
        for block in &blocks {
            let reused = self.take_over(block);
            take(&mut self.state, block, block.size - reused);
            let same = self.reusable.iter_mut().find(|other| other.nodes == nodes && other.kind == block.kind);
            match same {
                Some(same) if ends => same.size = same.size.max(block.size),
                Some(same) => same.size -= reused,
                None if ends => self.reusable.push(block.clone()),
                None => {}
            }
        }
        self.pod_memory.containers.insert(container.name.clone(), blocks);
        Ok(())
    }

    fn choose_unsplit(
        &self,
        name: &str,
        requests: &[(String, u64)],
        preferred_nodes: Option<Nodes>,
    ) -> Result<Nodes, AllocationRejection> {
        let nodes = self.choose(name, requests, preferred_nodes)?;
        match is_split(&self.state, nodes) {
            true => Err(unexpected("[memorymanager] preferred hint violates NUMA node allocation")),
            false => Ok(nodes),
        }
    }

    /// Memory of the pod as a whole: the present one, or else free memory. `first`: its first container.
    fn place_pod(
        &mut self,
        first: &Container,
        requests: Vec<(String, u64)>,
        preferred_nodes: Option<Nodes>,
    ) -> Result<(), AllocationRejection> {
        self.check_pool()?;
        self.pod_memory.whole = std::mem::take(&mut self.previous_memory.whole);
        if self.pod_memory.whole.is_empty() {
            let nodes = self.choose_unsplit(&first.name, &requests, preferred_nodes)?;
            self.pod_memory.whole = requests.into_iter().map(|(kind, size)| Block { nodes, kind, size }).collect();
            for block in &self.pod_memory.whole {
                take(&mut self.state, block, block.size);
            }
        }
        self.divide();
        Ok(())
    }

    /// Gives each container its exclusive memory of the pod, or what is left.
    fn divide(&mut self) {
        let Some(nodes) = self.pod_memory.whole.first().map(|block| block.nodes) else { return };
        let mut unassigned = self.pod_memory.whole.clone();
        let some = |unassigned: &[Block]| unassigned.iter().filter(|block| block.size > 0).cloned().collect::<Vec<_>>();
        for (container, ends) in all_containers(self.pod) {
            let requests = self.requests_of(container);
            if requests.is_empty() {
                self.pod_memory.sharing.push(container.name.clone());
                self.pod_memory.containers.insert(container.name.clone(), some(&unassigned));
                continue;
            }
            self.requesting += 1;
            for (kind, size) in requests.iter().filter(|_| !ends) {
                for block in unassigned.iter_mut().filter(|block| block.kind == *kind) {
                    block.size = block.size.saturating_sub(*size);
                }
            }
            let blocks = requests.into_iter().map(|(kind, size)| Block { nodes, kind, size }).collect();
            self.pod_memory.containers.insert(container.name.clone(), blocks);
        }
        // Containers that do not end get what all exclusive ones leave.
        for (container, _) in all_containers(self.pod).filter(|(_, ends)| !ends) {
            if self.pod_memory.sharing.contains(&container.name) {
                self.pod_memory.containers.insert(container.name.clone(), some(&unassigned));
            }
        }
    }

    fn check_pool(&self) -> Result<(), AllocationRejection> {
        self.of_pod().into_iter().try_for_each(|(kind, total)| {
            let own = |container: &Container| {
                let requests = self.requests_of(container);
                let of_kind = requests.iter().find(|(name, _)| *name == kind).map_or(0, |(_, size)| *size);
                (!requests.is_empty()).then_some(of_kind)
            };
            check_pool(self.pod, &kind, total, &own)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::guaranteed::{self, pod};
    use super::*;
    use crate::types::api::RestartPolicy;
    use crate::types::cpu_set::CpuSet;

    const GIB: u64 = 1 << 30;

    fn nodes(text: &str) -> Nodes {
        Nodes::of(&CpuSet::parse(text).unwrap())
    }

    /// Two nodes with 4 GiB each; 1 GiB of the first is reserved for the system.
    fn machine() -> StaticMemory {
        let node = |number| (number, vec![(MEMORY.to_owned(), 4 * GIB)]);
        StaticMemory::new(&vec![node(0), node(1)], &[(0, MEMORY.to_owned(), GIB)], PodLevel::Ignored)
    }

    fn container(name: &str, memory: &str) -> Container {
        guaranteed::container(name, "100m", memory)
    }

    /// Memory of each container as `name:nodes:size` when `preferred_nodes` is preferred.
    fn given(blocks: &Blocks, pod: &Pod, preferred_nodes: Option<&str>) -> Result<(OwnMemory, String), String> {
        let observed_nodes = SortedMap::new();
        let mut planning = machine().plan(blocks, pod, &observed_nodes);
        for container in pod.spec.init_containers.iter().chain(&pod.spec.containers) {
            planning
                .allocate(container, preferred_nodes.map(nodes))
                .map_err(|(reason, message)| format!("{reason}: {message}"))?;
        }
        let own = planning.into_pod_memory();
        let shown = own.containers.iter().flat_map(|(name, blocks)| {
            blocks.iter().map(move |block| format!("{name}:{}:{}", block.nodes.numbers(), block.size >> 20))
        });
        let shown = shown.collect::<Vec<_>>().join(" ");
        Ok((own, shown))
    }

    fn has(given: &[(&str, &str, u64)]) -> Blocks {
        let mut blocks = Blocks::new();
        for (uid, from, size) in given {
            let block = Block { nodes: nodes(from), kind: MEMORY.to_owned(), size: *size };
            blocks.entry((*uid).into()).or_default().containers.insert("main".to_owned(), vec![block]);
        }
        blocks
    }

    #[track_caller]
    fn check(blocks: &Blocks, pod: &Pod, preferred_nodes: Option<&str>, expected: &str) {
        assert_eq!(given(blocks, pod, preferred_nodes).map(|(_, shown)| shown), Ok(expected.to_owned()));
    }

    #[test]
    fn memory_is_from_the_first_fitting_or_the_preferred_node() {
        let one = pod("p", vec![], vec![container("a", "2Gi")]);
        check(&Blocks::new(), &one, None, "a:0:2048");
        check(&Blocks::new(), &one, Some("1"), "a:1:2048");
        check(&has(&[("o", "0", 2 * GIB)]), &one, None, "a:1:2048");
        let large = pod("p", vec![], vec![container("a", "6Gi")]);
        check(&Blocks::new(), &large, None, "a:0-1:6144");
        check(&Blocks::new(), &large, Some("0"), "a:0-1:6144");
        let mut burstable = one.clone();
        burstable.spec.containers[0].resources.limits = crate::types::api::ResourceList::default();
        check(&Blocks::new(), &burstable, None, "");
    }

    #[test]
    fn node_is_used_alone_or_with_the_same_nodes() {
        let large = pod("p", vec![], vec![container("a", "5Gi")]);
        let lack = "UnexpectedAdmissionError: Allocate failed due to [memorymanager] failed to get the default NUMA \
                    affinity, no NUMA nodes with enough memory is available, which is unexpected";
        assert_eq!(given(&has(&[("o", "1", GIB)]), &large, None).unwrap_err(), lack);
        let small = pod("p", vec![], vec![container("a", "1Gi")]);
        let lack = "UnexpectedAdmissionError: Allocate failed due to [memorymanager] failed to find the default \
                    preferred hint, which is unexpected";
        assert_eq!(given(&has(&[("o", "0-1", 5 * GIB)]), &small, None).unwrap_err(), lack);
    }

    #[test]
    fn memory_of_init_containers_is_reused() {
        let sidecar = Container { restart_policy: Some(RestartPolicy::Always), ..container("b", "256Mi") };
        let asks = pod("p", vec![container("i", "2Gi"), sidecar], vec![container("a", "1Gi")]);
        let (own, shown) = given(&Blocks::new(), &asks, None).unwrap();
        assert_eq!(shown, "a:0:1024 b:0:256 i:0:768");
        // The same after a restart, and another pod gets the rest.
        let blocks: Blocks = [("p".into(), own)].into_iter().collect();
        check(&blocks, &asks, None, "a:0:1024 b:0:256 i:0:768");
        check(&blocks, &pod("q", vec![], vec![container("a", "1Gi")]), None, "a:0:1024");
        check(&blocks, &pod("q", vec![], vec![container("a", "2Gi")]), None, "a:1:2048");
    }

    #[test]
    fn running_container_keeps_its_observed_nodes() {
        let asks = pod("p", vec![], vec![container("main", "1Gi")]);
        let observed_nodes = [("main".to_owned(), nodes("1"))].into_iter().collect();
        let machine = machine();
        let mut planning = machine.plan(&Blocks::new(), &asks, &observed_nodes);
        planning.allocate(&asks.spec.containers[0], None).unwrap();
        assert_eq!(planning.into_pod_memory().containers["main"][0].nodes, nodes("1"));
    }

    #[test]
    fn hints_are_given_for_each_memory_type() {
        let asks = pod("p", vec![container("i", "4Gi")], vec![container("a", "1Gi"), container("b", "1Gi")]);
        let (machine, observed_nodes) = (machine(), SortedMap::new());
        let mut planning = machine.plan(&Blocks::new(), &asks, &observed_nodes);
        let hint = |text, preferred| Hint { nodes: Some(nodes(text)), preferred };
        let all = vec![vec![hint("1", true), hint("0-1", false)]];
        assert_eq!(planning.hints(None), all, "the init container is the largest");
        assert_eq!(
            planning.hints(Some(&asks.spec.containers[0])),
            [[hint("0", true), hint("1", true), hint("0-1", false)]]
        );
        let (blocks, one) = (has(&[("p", "1", GIB)]), pod("p", vec![], vec![container("main", "1Gi")]));
        assert_eq!(machine.plan(&blocks, &one, &observed_nodes).hints(None), [[hint("1", true)]]);
    }

    #[test]
    fn state_file_is_used_as_far_as_it_fits_the_machine() {
        let found =
            has(&[("a", "0", 2 * GIB), ("b", "0", 2 * GIB), ("c", "2", GIB), ("d", "0-1", GIB), ("e", "1", GIB)]);
        let kept: Vec<String> = machine().plausible(found).keys().map(ToString::to_string).collect();
        assert_eq!(kept, ["a", "e"]);
    }

    fn whole(memory: &str, init: Vec<Container>, containers: Vec<Container>) -> Pod {
        let mut whole = pod("p", init, containers);
        whole.spec.resources = Some(Box::new(guaranteed::container("", "4", memory).resources));
        whole
    }

    fn given_at(
        level: PodLevel,
        blocks: &Blocks,
        pod: &Pod,
        preferred_nodes: Option<&str>,
    ) -> Result<OwnMemory, String> {
        let machine = StaticMemory { level, ..machine() };
        let mut planning = machine.plan(blocks, pod, &SortedMap::new());
        for (container, _) in all_containers(pod) {
            let placed = planning.allocate(container, preferred_nodes.map(nodes));
            placed.map_err(|(reason, message)| format!("{reason}: {message}"))?;
        }
        Ok(planning.into_pod_memory())
    }

    fn shown(own: &OwnMemory) -> String {
        let of = |name: &str, blocks: &[Block]| {
            let one = |block: &Block| format!("{name}:{}:{}", block.nodes.numbers(), block.size >> 20);
            blocks.iter().map(one).collect::<Vec<_>>()
        };
        let parts = own.containers.iter().flat_map(|(name, blocks)| of(name, blocks));
        of("whole", &own.whole).into_iter().chain(parts).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn containers_divide_the_memory_of_their_pod_in_the_pod_scope() {
        let sharing = |name: &str| Container { name: name.to_owned(), ..Container::default() };
        let sidecar = Container { restart_policy: Some(RestartPolicy::Always), ..container("s", "512Mi") };
        let pod = whole("2Gi", vec![sidecar, sharing("i")], vec![container("a", "1Gi"), sharing("b")]);
        let own = given_at(PodLevel::Whole, &Blocks::new(), &pod, Some("1")).unwrap();
        assert_eq!(shown(&own), "whole:1:2048 a:1:1024 b:1:512 i:1:1536 s:1:512");
        assert_eq!(own.sharing, ["i", "b"]);
        // The pod takes its memory once, and has the same after a restart.
        let taken = machine().state(&[("p".into(), own.clone())].into_iter().collect());
        assert_eq!((taken[1].tables[MEMORY].used, taken[1].assignments), (2 * GIB, 1));
        let blocks: Blocks = [("p".into(), OwnMemory { sharing: Vec::new(), ..own.clone() })].into_iter().collect();
        assert_eq!(given_at(PodLevel::Whole, &blocks, &pod, None).unwrap(), own);
        let by_container = given_at(PodLevel::ByContainer, &blocks, &pod, None).unwrap();
        assert_eq!(shown(&by_container), "a:0:1024 s:0:512", "under another scope");
        assert_eq!(shown(&given_at(PodLevel::Ignored, &blocks, &pod, None).unwrap()), "");
        let full = whole("1Gi", vec![], vec![container("a", "1Gi"), sharing("b")]);
        let message = "EmptyPodSharedPoolError: pod rejected, sum of exclusive container memory requests equals pod \
                       budget, leaving no memory for shared containers";
        assert_eq!(given_at(PodLevel::Whole, &Blocks::new(), &full, None).unwrap_err(), message);
    }
}
