//! Exclusive CPUs, and memory by NUMA node.
//!
//! A pod's resources are allocated as part of its admission. The result is plain data ([`Placements`]) that others
//! read. It is stored in files of the upstream kubelet's format; if those are lost, it is rebuilt from the running
//! containers.
//!
//! ```text
//!   host_topology, cpu_topology -> CPUs and memory         state_files, cpu_state, memory_state -> last assignments
//!   plan: hints -> topology_manager::merge -> cpu_manager, memory_manager, other providers -> give
//! ```

mod alignment_metrics;
mod cpu_assignment;
mod cpu_manager;
mod cpu_state;
mod cpu_topology;
#[cfg(test)]
mod guaranteed;
mod host_topology;
mod memory_manager;
mod memory_policy;
mod memory_state;
mod pod_level;
mod rejection;
mod settings_error;
mod state_files;
mod topology_manager;

use std::cell::Cell;
use std::path::PathBuf;

use crate::platform::config::{Config, Gate, TopologyManager, TopologyPolicy};
use crate::state::pods::{MemoryBlock, Placements, PodCpus};
use crate::types::api::{CPU, Container, MEMORY, Pod, PodUid, Quantity, Reason};
use crate::types::cpu_set::CpuSet;
use crate::types::metrics::{self, Count};
use crate::types::owned::{Owned, View};

pub(crate) use cpu_topology::Topology;
pub(crate) use host_topology::{MemoryNodes, read_memory};
pub(crate) use memory_policy::Blocks;
pub(crate) use rejection::{AllocationRejection, unexpected};
pub(crate) use settings_error::SettingsError;
pub(crate) use state_files::{State, read_states, write_state};
pub(crate) use topology_manager::{Hints, Nodes, hints};

use alignment_metrics::{AssignmentCounts, CONTAINER_SCOPE, NUMA_NODE, PHYSICAL_CPU, POD_SCOPE, expose_alignment};
use cpu_manager::CpuManager;
use cpu_state::SavedState;
use memory_manager::MemoryManager;
use memory_policy::{MemoryPlanning, OwnMemory};
use pod_level::{PodLevel, cpus_of_pod};
use state_files::{CPU_STATE, MEMORY_STATE};

/// CPUs and memory that can be allocated exclusively.
#[derive(Clone, Debug)]
pub(crate) struct Allocatable {
    pub(crate) cpus: CpuSet,
    pub(crate) memory: Vec<MemoryBlock>,
}

#[derive(Debug)]
pub(crate) struct ResourceManagers {
    /// `None`: no exclusive CPUs.
    cpus: Option<CpuManager>,
    /// Aligns resources of different kinds; `None`: no alignment.
    topology: Option<TopologyManager>,
    level: PodLevel,
    /// NUMA nodes of the machine.
    nodes: Nodes,
    /// With `prefer-closest-numa-nodes`.
    distances: Vec<(u32, Vec<u32>)>,
    placements: Owned<Placements>,
    state_file: PathBuf,
    /// No valid state file was found, so running containers must be observed.
    is_forgetful: bool,
    /// The state file is out of date.
    unwritten: bool,
    memory: MemoryManager,
}

/// Allocation for the containers of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodAllocation {
    pub(crate) cpus: PodCpus,
    memory: OwnMemory,
}

/// Cpuset of a running container, as shown by the kernel.
#[derive(Clone, Debug)]
pub(crate) struct InUse {
    pub(crate) pod: PodUid,
    pub(crate) container: String,
    pub(crate) cpus: CpuSet,
    /// NUMA node numbers.
    pub(crate) mems: CpuSet,
}

/// Another manager of resources that have NUMA locality.
pub(crate) trait Provider {
    /// The hints for each resource requested by the container, or by the pod as a whole.
    fn hints(&mut self, container: Option<&Container>) -> Vec<Hints>;
    /// Allocates the container's resources, from these nodes if given. Called in the order of container starts.
    fn allocate(&mut self, container: &Container, nodes: Option<Nodes>) -> Result<(), AllocationRejection>;
}

/// Upstream's message.
const NO_LOCALITY: &str = "Resources cannot be allocated with Topology locality";

impl ResourceManagers {
    /// Starts from the state file.
    pub(crate) fn new(config: &Config, topology: Topology, state: State<SavedState>) -> Result<Self, SettingsError> {
        let nodes = topology.nodes();
        if let Some(TopologyManager { most_nodes, .. }) =
            config.managers.topology.filter(|manager| manager.most_nodes < nodes.len())
        {
            return Err(SettingsError::TooManyNodes { most: most_nodes, found: nodes.len() });
        }
        let distances = match config.managers.topology {
            Some(manager) if manager.closest_nodes => distances(&topology)?,
            _ => Vec::new(),
        };
        let keeps_quota = !config.gates.is_on(Gate::DisableCpuQuotaWithExclusiveCpus);
        expose_alignment(config.managers.topology.is_some(), config.managers.static_cpus.is_some());
        let mut managers = Self {
            cpus: None,
            topology: config.managers.topology,
            level: PodLevel::of(config),
            nodes: Nodes::of(&nodes),
            distances,
            placements: Owned::new(Placements { keeps_quota, ..Default::default() }),
            state_file: config.root_dir.join(CPU_STATE),
            is_forgetful: false,
            unwritten: false,
            memory: MemoryManager::default(),
        };
        let Some(options) = config.managers.static_cpus else {
            // The static policy was disabled: containers pinned earlier get all CPUs.
            if !matches!(&state, State::Nothing)
                && !matches!(&state, State::Whole(saved) if saved.policy == NONE_POLICY)
            {
                managers.placements.write().shared = topology.all();
                managers.unwritten = true;
            }
            return Ok(managers);
        };
        let kept = [&config.reserved.system, &config.reserved.kube].map(|list| list.get(CPU).copied());
        let kept = kept.into_iter().flatten().fold(Quantity::ZERO, Quantity::plus);
        let count = usize::try_from(kept.value()).unwrap_or(0);
        let cpus = CpuManager::new(topology, &config.managers.reserved_cpus, count, options, managers.level)?;
        let isolated = cpus.reserved.common(&cpus.topology.isolated);
        log!(
            info,
            "CPU manager started",
            online = cpus.topology.all(),
            reserved = cpus.reserved,
            isolated = cpus.topology.isolated
        );
        if !isolated.is_empty() {
            log!(
                warn,
                "reserved CPUs are isolated, the scheduler does not balance load over them",
                processors = isolated
            );
        }
        managers.cpus = Some(cpus);
        managers.unwritten = true;
        match state {
            State::Whole(SavedState { policy, assigned }) if policy == STATIC_POLICY => {
                let (mut exclusive_cpus, mut pod_cpu_sets) = (Vec::new(), Vec::new());
                for (pod, pod_cpus) in assigned {
                    exclusive_cpus
                        .extend(pod_cpus.containers.into_iter().map(|(name, cpus)| (pod.clone(), name, cpus)));
                    pod_cpu_sets.push((pod, pod_cpus.whole));
                }
                managers.rebuild_cpus(exclusive_cpus, pod_cpu_sets);
            }
            _ => {
                managers.is_forgetful = true;
                managers.rebuild_cpus(Vec::new(), Vec::new());
            }
        }
        Ok(managers)
    }

    /// Adds the memory manager. `nodes`: the NUMA nodes with memory. `kept`: bytes that are not allocatable.
    pub(crate) fn with_memory(
        mut self,
        config: &Config,
        nodes: &MemoryNodes,
        kept: u64,
        state: State<(String, Blocks)>,
    ) -> Result<Self, SettingsError> {
        self.memory = MemoryManager::new(config, nodes, kept, state)?;
        self.place_memory();
        Ok(self)
    }

    /// Whether the memory manager assigns memory to containers.
    pub(crate) fn has_static_memory(&self) -> bool {
        self.memory.is_static()
    }

    /// Whether pods may be rejected because of their NUMA alignment.
    pub(crate) fn has_topology(&self) -> bool {
        self.topology.is_some()
    }

    pub(crate) fn nodes(&self) -> Nodes {
        self.nodes
    }

    /// All CPUs and memory that can be exclusive.
    pub(crate) fn allocatable(&self) -> Allocatable {
        let cpus = self.cpus.as_ref().map(CpuManager::allocatable);
        Allocatable { cpus: cpus.unwrap_or_default(), memory: self.memory.allocatable() }
    }

    pub(crate) fn placements(&self) -> View<Placements> {
        self.placements.view()
    }

    pub(crate) fn is_static(&self) -> bool {
        self.cpus.is_some()
    }

    /// Whether running containers must be observed with `rebuild`.
    pub(crate) fn is_forgetful(&self) -> bool {
        self.is_forgetful || self.memory.is_forgetful()
    }

    /// Rebuilds the assignments from running containers where no state file has them.
    pub(crate) fn rebuild(&mut self, in_use: Vec<InUse>) {
        self.memory.rebuild(&in_use);
        if self.is_forgetful {
            let in_use = in_use.into_iter().map(|in_use| (in_use.pod, in_use.container, in_use.cpus));
            self.rebuild_cpus(in_use.collect(), Vec::new());
        }
    }

    /// Takes the CPU sets that are possible exclusive ones.
    fn rebuild_cpus(&mut self, observed_cpus: Vec<(PodUid, String, CpuSet)>, pod_cpu_sets: Vec<(PodUid, CpuSet)>) {
        let Some(cpus) = &self.cpus else { return };
        let mut placements = self.placements.write();
        placements.exclusive = cpus.plausible(observed_cpus);
        cpus.add_whole(&mut placements.exclusive, pod_cpu_sets);
        placements.shared = cpus.shared(&placements.exclusive);
        cpus.count(&placements);
        self.unwritten = true;
    }

    /// Computes the pod's allocation, aligned with the other providers' resources.
    pub(crate) fn plan(
        &self,
        pod: &Pod,
        providers: Vec<&mut dyn Provider>,
    ) -> Result<PodAllocation, AllocationRejection> {
        let mut memory = self.memory.plan(pod);
        let mut hint_providers: Vec<&mut dyn Provider> = Vec::new();
        for provider in providers {
            hint_providers.push(provider);
        }
        if let Some(memory) = &mut memory {
            hint_providers.push(memory);
        }
        let cpus = self.plan_cpus(pod, &mut hint_providers);
        if let Some(planned) = memory.as_ref().map(MemoryPlanning::requesting) {
            (0..planned).for_each(|_| metrics::count(Count::MemoryPinnings, &[]));
        }
        let counts = AssignmentCounts { level: self.level, pod };
        if memory.as_ref().is_some_and(MemoryPlanning::has_failed) {
            metrics::count(Count::MemoryPinningErrors, &[]);
            counts.failed(MEMORY);
        }
        let allocation =
            PodAllocation { cpus: cpus?, memory: memory.map(MemoryPlanning::into_pod_memory).unwrap_or_default() };
        counts.cpus(self.placements.read().exclusive.get(&pod.metadata.uid), &allocation.cpus);
        counts.memory(self.memory.allocated_memory(&pod.metadata.uid), &allocation.memory);
        Ok(allocation)
    }

    fn plan_cpus(&self, pod: &Pod, providers: &mut [&mut dyn Provider]) -> Result<PodCpus, AllocationRejection> {
        let assigned = &self.placements.read().exclusive;
        let merged = |policy, scope, resources: Vec<Hints>| {
            let nodes = topology_manager::merge(policy, self.nodes, &self.distances, &resources);
            if policy == TopologyPolicy::SingleNumaNode && nodes.is_none() {
                metrics::count(Count::AlignedResourcesFailures, &[scope, NUMA_NODE]);
            }
            nodes.ok_or_else(|| (Reason::TOPOLOGY_AFFINITY_ERROR, NO_LOCALITY.to_owned()))
        };
        let mut of_pod = None;
        if let Some(TopologyManager { policy, pod_scope: true, .. }) = self.topology {
            let cpus = self.cpus.as_ref().and_then(|cpus| cpus.pod_hints(assigned, pod));
            let others = providers.iter_mut().flat_map(|provider| provider.hints(None));
            of_pod = merged(policy, POD_SCOPE, cpus.into_iter().chain(others).collect())?;
        }
        let is_whole = self.level.is_whole(pod);
        // A container's CPUs are allocated after all its other resources.
        let pinning = Cell::new(false);
        let mut near = |container: &Container, cpus: &dyn Fn() -> Option<Hints>| {
            pinning.set(false);
            let mut nodes = of_pod;
            if let Some(TopologyManager { policy, pod_scope: false, .. }) = self.topology {
                let others = providers.iter_mut().flat_map(|provider| provider.hints(Some(container)));
                nodes = merged(policy, CONTAINER_SCOPE, cpus().into_iter().chain(others).collect())?;
            }
            for provider in providers.iter_mut() {
                provider.allocate(container, nodes)?;
            }
            if self.cpus.as_ref().is_some_and(|cpus| cpus.own_cpus(pod, container) > 0) {
                pinning.set(true);
                metrics::count(Count::CpuPinnings, &[]);
            }
            pinning.set(pinning.get() || is_whole && cpus_of_pod(pod) > 0);
            Ok(nodes)
        };
        let pod_cpus = match &self.cpus {
            Some(cpus) => {
                let pod_cpus = cpus.allocate(assigned, pod, &mut near);
                match &pod_cpus {
                    Ok(pod_cpus) => cpus.count_alignment(assigned.get(&pod.metadata.uid), pod_cpus),
                    Err(_) if pinning.get() => {
                        metrics::count(Count::CpuPinningErrors, &[]);
                        AssignmentCounts { level: self.level, pod }.failed(CPU);
                        if cpus.has_whole_cores() && !is_whole {
                            metrics::count(Count::AlignedResourcesFailures, &[CONTAINER_SCOPE, PHYSICAL_CPU]);
                        }
                    }
                    Err(_) => {}
                }
                pod_cpus
            }
            None => {
                let mut pod_containers = pod.spec.init_containers.iter().chain(&pod.spec.containers);
                pod_containers.try_for_each(|container| near(container, &|| None).map(drop))?;
                Ok(PodCpus::default())
            }
        };
        if let (Some(TopologyManager { policy: TopologyPolicy::SingleNumaNode, pod_scope, .. }), true) =
            (self.topology, pod_cpus.is_ok())
        {
            let containers = pod.spec.init_containers.len() + pod.spec.containers.len();
            let (scope, count) = if pod_scope { (POD_SCOPE, 1) } else { (CONTAINER_SCOPE, containers) };
            (0..count).for_each(|_| metrics::count(Count::AlignedResources, &[scope, NUMA_NODE]));
        }
        pod_cpus
    }

    /// Records the pod's allocation. True if its CPUs changed.
    pub(crate) fn allocate(&mut self, pod: &PodUid, allocation: PodAllocation) -> bool {
        let PodAllocation { cpus: pod_cpus, memory } = allocation;
        if self.memory.allocate(pod, memory) {
            self.place_memory();
        }
        let mut placements = self.placements.write();
        let had = placements.exclusive.get(pod);
        if had.map_or(pod_cpus.is_empty(), |had| *had == pod_cpus) {
            return false;
        }
        if pod_cpus.is_empty() {
            placements.exclusive.remove(pod);
        } else {
            placements.exclusive.insert(pod.clone(), pod_cpus);
        }
        drop(placements);
        self.changed();
        true
    }

    /// Releases the resources of pods that are not kept. True if CPUs were released.
    pub(crate) fn release_others(&mut self, is_kept: impl Fn(&PodUid) -> bool) -> bool {
        if self.memory.release_others(&is_kept) {
            self.place_memory();
        }
        let mut placements = self.placements.write();
        let before = placements.exclusive.len();
        placements.exclusive.retain(|pod, _| is_kept(pod));
        let is_less = placements.exclusive.len() < before;
        drop(placements);
        if is_less {
            self.changed();
        }
        is_less
    }

    pub(crate) fn is_unwritten(&self) -> bool {
        self.unwritten || self.memory.is_unwritten()
    }

    /// Paths and texts of the state files that are out of date. Marks them as written.
    pub(crate) fn take_unwritten(&mut self) -> Vec<(PathBuf, String)> {
        let mut texts = Vec::new();
        if std::mem::take(&mut self.unwritten) {
            let placements = self.placements.read();
            let text = match &self.cpus {
                Some(_) => cpu_state::text(STATIC_POLICY, &placements.shared, &placements.exclusive),
                None => cpu_state::text(NONE_POLICY, &CpuSet::EMPTY, &placements.exclusive),
            };
            texts.push((self.state_file.clone(), text));
        }
        let memory = self.memory.take_unwritten();
        texts.extend(memory.map(|text| (self.state_file.with_file_name(MEMORY_STATE), text)));
        texts
    }

    /// Called when a file could not be written.
    pub(crate) fn not_written(&mut self) {
        self.unwritten = self.cpus.is_some() || !self.placements.read().shared.is_empty();
        self.memory.not_written();
    }

    fn place_memory(&mut self) {
        let mut placements = self.placements.write();
        placements.memory = self.memory.placed();
        placements.pod_memory = self.memory.of_pods();
    }

    fn changed(&mut self) {
        let Some(cpus) = &self.cpus else { return };
        let mut placements = self.placements.write();
        placements.shared = cpus.shared(&placements.exclusive);
        cpus.count(&placements);
        self.unwritten = true;
    }
}

fn distances(topology: &Topology) -> Result<Vec<(u32, Vec<u32>)>, SettingsError> {
    let distances = topology.distances.clone();
    let is_known = topology.nodes().len() <= 1 || distances.iter().all(|(_, row)| row.len() >= distances.len());
    is_known.then_some(distances).ok_or(SettingsError::NoDistances)
}

const NONE_POLICY: &str = "none";
const STATIC_POLICY: &str = "static";

#[cfg(test)]
mod tests {
    use super::cpu_topology::tests::board;
    use super::*;
    use crate::platform::config::CpuOptions;
    use crate::state::pods::Assigned;

    fn set(text: &str) -> CpuSet {
        CpuSet::parse(text).unwrap()
    }

    fn config(is_static: bool) -> Config {
        let mut config = Config::default();
        config.managers.static_cpus = is_static.then(CpuOptions::default);
        config.managers.reserved_cpus = set("0");
        config
    }

    fn own(cpus: &str) -> PodCpus {
        PodCpus { containers: [("main".to_owned(), set(cpus))].into_iter().collect(), ..PodCpus::default() }
    }

    fn all(cpus: &str) -> PodAllocation {
        PodAllocation { cpus: own(cpus), ..PodAllocation::default() }
    }

    fn managers(is_static: bool, state: State<SavedState>) -> ResourceManagers {
        ResourceManagers::new(&config(is_static), board(4), state).unwrap()
    }

    /// The shared CPUs, and the state file's text if it must be written.
    fn shown(managers: &mut ResourceManagers) -> (String, Option<String>) {
        let shared = managers.placements.read().shared.to_string();
        (shared, managers.take_unwritten().pop().map(|(_, text)| text))
    }

    fn whole(text: &str) -> State<SavedState> {
        State::Whole(cpu_state::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn allocation_is_written_once_and_released_cpus_are_shared() {
        let mut managers = managers(true, State::Nothing);
        let empty = cpu_state::text(STATIC_POLICY, &set("0-3"), &Assigned::new());
        assert_eq!(shown(&mut managers), ("0-3".to_owned(), Some(empty.clone())));
        assert!(managers.allocate(&"p".into(), all("1-2")));
        assert!(!managers.allocate(&"p".into(), all("1-2")), "it has that");
        assert!(!managers.allocate(&"q".into(), PodAllocation::default()), "it has nothing");
        let (shared, text) = shown(&mut managers);
        assert_eq!((shared.as_str(), text.is_some()), ("0,3", true));
        assert!(!managers.release_others(|_| true));
        assert_eq!(shown(&mut managers).1, None, "nothing has changed");
        managers.not_written();
        assert_eq!(shown(&mut managers).1, text);
        assert!(managers.release_others(|uid| uid.as_str() != "p"));
        assert_eq!(shown(&mut managers), ("0-3".to_owned(), Some(empty)));
    }

    #[test]
    fn state_file_is_used_as_far_as_it_fits_the_machine() {
        let text = cpu_state::text(STATIC_POLICY, &set("0,3"), &{
            let mut assigned = Assigned::new();
            assigned.insert("p".into(), own("1-2"));
            assigned.insert("offline".into(), own("3-4"));
            assigned.insert("reserved".into(), own("0"));
            assigned
        });
        let mut managers = managers(true, whole(&text));
        assert!(!managers.is_forgetful());
        assert_eq!(shown(&mut managers).0, "0,3");
        assert_eq!(managers.placements.read().exclusive.len(), 1);
    }

    #[test]
    fn missing_state_is_rebuilt_from_running_containers() {
        for state in [State::Nothing, State::Damaged, whole(r#"{"policyName":"none","defaultCpuSet":"","checksum":0}"#)]
        {
            let mut managers = managers(true, state);
            assert!(managers.is_forgetful());
            let runs = |pod: &str, container: &str, cpus: &str| InUse {
                pod: pod.into(),
                container: container.to_owned(),
                cpus: set(cpus),
                mems: set("0"),
            };
            managers.rebuild(vec![runs("p", "main", "3"), runs("s", "x", "0-2")]);
            assert_eq!(shown(&mut managers).0, "0-2");
            assert!(managers.placements.read().lifts_quota(&"p".into(), "main"));
        }
    }

    #[test]
    fn without_the_policy_pinned_containers_get_all_cpus() {
        let none = r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#;
        for state in [State::Nothing, whole(none)] {
            assert_eq!(shown(&mut managers(false, state)), (String::new(), None));
        }
        let was = whole(&cpu_state::text(STATIC_POLICY, &set("0-3"), &Assigned::new()));
        for state in [State::Damaged, was] {
            assert_eq!(shown(&mut managers(false, state)), ("0-3".to_owned(), Some(none.to_owned())));
        }
    }

    /// A device on each of these NUMA nodes, and the nodes chosen for each allocation.
    struct Devices(&'static str, Vec<Option<String>>);

    impl Provider for Devices {
        fn hints(&mut self, _: Option<&Container>) -> Vec<Hints> {
            let hint = |nodes: Nodes| topology_manager::Hint { nodes: Some(nodes), preferred: nodes.count() == 1 };
            let has = Nodes::of(&set(self.0));
            let able = Nodes::of(&set("0-1"))
                .subsets()
                .into_iter()
                .filter(|nodes| !nodes.numbers().common(&has.numbers()).is_empty());
            vec![able.map(hint).collect()]
        }

        fn allocate(&mut self, _: &Container, nodes: Option<Nodes>) -> Result<(), AllocationRejection> {
            self.1.push(nodes.map(|nodes| nodes.numbers().to_string()));
            Ok(())
        }
    }

    #[test]
    fn cpus_and_devices_are_allocated_from_one_node() {
        let guaranteed = |cpus: &[&str]| {
            let container = |cpu: &&str| guaranteed::container(&format!("c{cpu}"), cpu, "1Mi");
            guaranteed::pod("p", vec![], cpus.iter().map(container).collect())
        };
        let plan = |topology: Option<(TopologyPolicy, bool)>, devices: &'static str, cpus: &[&str]| {
            let mut config = config(true);
            config.managers.topology = topology.map(|(policy, pod_scope)| TopologyManager {
                policy,
                pod_scope,
                most_nodes: 8,
                closest_nodes: false,
            });
            let managers = ResourceManagers::new(&config, cpu_topology::tests::two_nodes(), State::Nothing).unwrap();
            let mut devices = Devices(devices, Vec::new());
            let own = managers.plan(&guaranteed(cpus), vec![&mut devices]);
            let own = own.map(|own| own.cpus.containers.values().map(ToString::to_string).collect::<Vec<_>>());
            (own.map_err(|(reason, message)| format!("{reason}: {message}")), devices.1)
        };
        let single = TopologyPolicy::SingleNumaNode;
        let near = |nodes: &[&str]| nodes.iter().map(|nodes| Some((*nodes).to_owned())).collect::<Vec<_>>();
        assert_eq!(plan(None, "1", &["1"]), (Ok(vec!["1".to_owned()]), vec![None]));
        assert_eq!(plan(Some((single, false)), "1", &["1"]), (Ok(vec!["2".to_owned()]), near(&["1"])));
        let refused = "TopologyAffinityError: Resources cannot be allocated with Topology locality".to_owned();
        assert_eq!(plan(Some((single, false)), "0", &["2"]), (Err(refused.clone()), vec![]));
        // Each container fits on one node, but the pod does not.
        assert!(plan(Some((single, false)), "0-1", &["1", "2"]).0.is_ok());
        assert_eq!(plan(Some((single, true)), "0-1", &["1", "2"]).0, Err(refused));
    }

    #[test]
    fn requests_are_counted_under_upstreams_metric_names() {
        let mut config = config(true);
        config.managers.static_memory = true;
        let nodes = vec![(0, vec![("memory".to_owned(), 1 << 30)])];
        let managers = ResourceManagers::new(&config, board(4), State::Nothing).unwrap();
        let mut managers = managers.with_memory(&config, &nodes, 0, State::Nothing).unwrap();
        let pod = |uid: &str, cpu: &str, memory: &str| {
            guaranteed::pod(uid, vec![], vec![guaranteed::container("main", cpu, memory)])
        };
        let own = managers.plan(&pod("p", "2", "1Mi"), Vec::new()).unwrap();
        managers.allocate(&"p".into(), own);
        managers.plan(&pod("shared", "500m", "1Mi"), Vec::new()).unwrap();
        managers.plan(&pod("many", "2", "1Mi"), Vec::new()).unwrap_err();
        managers.plan(&pod("much", "1", "2Gi"), Vec::new()).unwrap_err();
        let mut page = metrics::Exposition::default();
        metrics::write(&mut page);
        let page = metrics::parsed::parse(std::str::from_utf8(&page.into_bytes()).unwrap());
        let value = |name: &str| page[&format!("kubelet_{name}")].value(&[]);
        assert_eq!(value("cpu_manager_pinning_requests_total"), 2.0);
        assert_eq!(value("cpu_manager_pinning_errors_total"), 1.0);
        assert_eq!(value("memory_manager_pinning_requests_total"), 4.0);
        assert_eq!(value("memory_manager_pinning_errors_total"), 1.0);
        assert_eq!(value("cpu_manager_shared_pool_size_millicores"), 1000.0);
        assert_eq!(value("cpu_manager_exclusive_cpu_allocation_count"), 2.0);
        let per_node = &page["kubelet_cpu_manager_allocation_per_numa"];
        assert_eq!(per_node.value(&[("numa_node", "0")]), 2.0);
        let aligned = &page["kubelet_container_aligned_compute_resources_count"];
        assert_eq!(aligned.value(&[("scope", "container"), ("boundary", "uncore_cache")]), 1.0);
    }

    #[test]
    fn pod_with_resources_of_its_own_gets_them_as_a_whole_in_the_pod_scope() {
        let mut config = config(true);
        config.managers.static_memory = true;
        config.managers.topology = Some(TopologyManager {
            policy: TopologyPolicy::SingleNumaNode,
            pod_scope: true,
            most_nodes: 8,
            closest_nodes: false,
        });
        let nodes = [0, 1].map(|node| (node, vec![("memory".to_owned(), 1 << 30)])).to_vec();
        let start = |config: &Config, state| {
            let managers = ResourceManagers::new(config, cpu_topology::tests::two_nodes(), state).unwrap();
            managers.with_memory(config, &nodes, 0, State::Nothing).unwrap()
        };
        let mut managers = start(&config, State::Nothing);
        let sharing = Container { name: "shares".to_owned(), ..Container::default() };
        let mut pod = guaranteed::pod("p", vec![], vec![guaranteed::container("main", "1", "1Mi"), sharing]);
        pod.spec.resources = Some(Box::new(guaranteed::container("", "2", "4Mi").resources));
        let own = managers.plan(&pod, Vec::new()).unwrap();
        assert!(managers.allocate(&"p".into(), own.clone()));
        assert!(!managers.allocate(&"p".into(), own), "it has that");
        let placements = managers.placements();
        let uid: PodUid = "p".into();
        {
            let placed = placements.read();
            assert_eq!([&placed.shared, placed.cpus(&uid, "main")].map(ToString::to_string), ["0-1", "2"]);
            assert_eq!(placed.cpus(&uid, "shares").to_string(), "3");
            assert_eq!(placed.cpus(&uid, "debugger"), &placed.shared, "ephemeral containers are outside");
            assert_eq!([placed.lifts_quota(&uid, "main"), placed.lifts_quota(&uid, "shares")], [true, false]);
            assert_eq!(placed.own_cpus(&uid, "shares"), None);
            assert_eq!(
                (placed.mems(&uid, "shares").to_string(), placed.memory_of(&uid, "shares").count()),
                ("1".to_owned(), 0)
            );
            assert_eq!((placed.pod_memory[&uid][0].size, placed.exclusive[&uid].whole.len()), (4 << 20, 2));
        }
        let mut page = metrics::Exposition::default();
        metrics::write(&mut page);
        let page = metrics::parsed::parse(std::str::from_utf8(&page.into_bytes()).unwrap());
        let assigned = &page["resource_manager_container_assignments"];
        for (kind, resource) in [("pod_exclusive", "cpu"), ("pod_shared", "memory")] {
            assert_eq!(assigned.value(&[("assignment_type", kind), ("resource_name", resource)]), 1.0, "{kind}");
        }
        let allocated = &page["resource_manager_allocations_total"];
        assert_eq!(allocated.value(&[("resource_name", "cpu"), ("source", "pod")]), 2.0);
        // The pod has the same after a restart, and nothing exclusive without the gate.
        let (_, text) = managers.take_unwritten().swap_remove(0);
        let mut after = start(&config, whole(&text));
        let again = after.plan(&pod, Vec::new()).unwrap();
        after.allocate(&uid, again.clone());
        assert_eq!(after.placements().read().exclusive, managers.placements().read().exclusive);
        config.gates = config.gates.with(Gate::PodLevelResourceManagers, false);
        let mut without = start(&config, whole(&text));
        let none = without.plan(&pod, Vec::new()).unwrap();
        assert!(without.allocate(&uid, none));
        assert_eq!(without.placements().read().shared.to_string(), "0-3");
    }
}
