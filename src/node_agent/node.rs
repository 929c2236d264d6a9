//! The machine, and the resources that the configuration leaves for pods.

use std::path::Path;
use std::rc::Rc;

use super::StartError;
use crate::kubelet::container_manager::{ContainerManager, Settings, kernel_parameters};
use crate::kubelet::node::{Machine, NodeInfo, NodeProfile, NodeSettings};
use crate::kubelet::resource_managers::{self, ResourceManagers, SettingsError, Topology};
use crate::platform::cgroups::HIERARCHY;
use crate::platform::config::{Config, KernelParameters};
use crate::platform::rt;
use crate::state::pods::NodeEvent;
use crate::types::api::{CPU, EventKind, MEMORY, Reason};

pub(super) struct Node {
    pub(super) processors: u32,
    /// Events of the node at the start of the agent.
    pub(super) start_events: Vec<NodeEvent>,
    pub(super) settings: NodeSettings,
    /// For the Node object.
    pub(super) profile: NodeProfile,
    pub(super) managers: ResourceManagers,
    pub(super) groups: Rc<ContainerManager>,
}

impl Node {
    pub(super) async fn open(config: &Config) -> Result<Self, StartError> {
        let mut facts = NodeInfo::read(Path::new("/"));
        facts.read_storage(&config.root_dir);
        check_reservations(config, &facts)?;
        apply_kernel_parameters(config)?;
        let managers = open_managers(config, &facts).await?;
        let groups = Rc::new(container_manager(config, &facts)?.with_placements(managers.placements()));
        // Without systemd, a process in the root cgroup cannot tell this from its own cgroup.
        facts.swap_limits |= groups.limits_swap();
        let settings = NodeSettings::new(config, &facts);
        let profile = NodeProfile::new(config, &facts, &Machine::read(Path::new("/")), &settings);
        let start_events = start_events(&facts);
        Ok(Self { processors: facts.cpus, start_events, settings, profile, managers, groups })
    }
}

fn start_events(facts: &NodeInfo) -> Vec<NodeEvent> {
    let mut events = vec![NodeEvent::new(EventKind::Normal, Reason::STARTING, "Starting kubelet.")];
    if facts.may_swap_volumes() {
        let reason = Reason::POSSIBLE_MEMORY_BACKED_VOLUMES_ON_DISK;
        events.push(NodeEvent::new(EventKind::Warning, reason, MAY_SWAP_VOLUMES));
    }
    events
}

/// Upstream's message.
const MAY_SWAP_VOLUMES: &str = "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, \
                                emptyDirs, etc.) might be swapped to disk and should no longer be considered secure.";

/// Rejects reservations that exceed the machine's capacity.
fn check_reservations(config: &Config, node_info: &NodeInfo) -> Result<(), StartError> {
    let capacity = node_info.allocatable(&[]);
    for name in [CPU, MEMORY] {
        let reserved = [&config.reserved.system, &config.reserved.kube].map(|list| list.get(name).copied());
        let [system, kube] = reserved.map(Option::unwrap_or_default);
        let wanted = system.plus(kube);
        // Zero: the capacity is unknown.
        if let Some(has) = capacity.get(name).filter(|has| !has.is_zero() && wanted > **has) {
            return Err(StartError::Settings(format!(
                "systemReserved and kubeReserved: {wanted} of {name} for both, but the machine has {has}"
            )));
        }
    }
    Ok(())
}

/// Sets or checks the kernel parameters that pods rely on. Fails if they are checked and one differs.
fn apply_kernel_parameters(config: &Config) -> Result<(), StartError> {
    let root = Path::new("/proc/sys");
    match config.process.kernel_parameters {
        KernelParameters::Leave => Ok(()),
        KernelParameters::Check => {
            let faults: Vec<String> = kernel_parameters::check(root).iter().map(ToString::to_string).collect();
            match faults.is_empty() {
                true => Ok(()),
                false => Err(StartError::Settings(format!("protectKernelDefaults: {}", faults.join("; ")))),
            }
        }
        KernelParameters::Set => {
            for fault in kernel_parameters::set(root) {
                log!(warn, "kernel parameter has an unexpected value", error = fault);
            }
            Ok(())
        }
    }
}

/// The CPU, memory and topology managers, with their stored assignments.
async fn open_managers(config: &Config, node_info: &NodeInfo) -> Result<ResourceManagers, StartError> {
    let topology = Topology::read(Path::new("/"));
    let root_dir = config.root_dir.clone();
    let states = rt::blocking(move || resource_managers::read_states(&root_dir)).await;
    let nodes = resource_managers::read_memory(Path::new("/"), node_info.memory_bytes);
    let guarded = config.eviction.kept(node_info.memory_bytes, node_info.storage_bytes);
    let kept = [&config.reserved.system, &config.reserved.kube, &guarded];
    let kept = kept.iter().filter_map(|list| u64::try_from(list.get(MEMORY)?.value()).ok()).sum();
    let unfit = |error: SettingsError| StartError::Settings(error.to_string());
    let managers = ResourceManagers::new(config, topology, states.cpus).map_err(unfit)?;
    managers.with_memory(config, &nodes, kept, states.memory).map_err(unfit)
}

fn container_manager(config: &Config, node_info: &NodeInfo) -> Result<ContainerManager, StartError> {
    if config.cgroups.fail_v1 && !node_info.cgroup_v2 {
        let fault = "failCgroupV1: expected cgroup v2 with the memory controller at /sys/fs/cgroup, found none";
        return Err(StartError::Settings(fault.to_owned()));
    }
    if config.cgroups.per_qos && !node_info.cgroup_v2 {
        log!(warn, "no cgroup v2 with the memory controller, running without pod cgroups and node allocatable limits");
    }
    Ok(ContainerManager::new(Path::new(HIERARCHY), Settings::new(config, node_info)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::config::{Request, load};
    use crate::platform::rt::TestFolder;

    #[test]
    fn fail_cgroup_v1_ends_the_start_without_cgroup_v2_only() {
        let folder = TestFolder::new("fail-cgroup-v1");
        let path = folder.0.join("config.yaml");
        let is_started = |fail_v1: bool, cgroup_v2: bool| {
            let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
            std::fs::write(&path, format!("{head}failCgroupV1: {fail_v1}\n")).unwrap();
            let arguments = ["--config".to_owned(), path.display().to_string()];
            let Ok(Request::Run(config, _)) = load(&arguments) else { panic!("{fail_v1}") };
            container_manager(&config, &NodeInfo { cgroup_v2, ..NodeInfo::default() }).is_ok()
        };
        assert_eq!([is_started(true, true), is_started(true, false), is_started(false, false)], [true, false, true]);
    }

    #[test]
    fn machine_that_may_swap_volumes_warns_with_an_event_at_start() {
        let events = |kernel, swap_bytes| {
            let facts = NodeInfo { kernel, swap_bytes, ..NodeInfo::default() };
            start_events(&facts).into_iter().map(|event| (event.kind, event.reason)).collect::<Vec<_>>()
        };
        let starting = (EventKind::Normal, Reason::STARTING);
        let warning = (EventKind::Warning, Reason::POSSIBLE_MEMORY_BACKED_VOLUMES_ON_DISK);
        assert_eq!(events((6, 3), 1), [starting.clone(), warning]);
        assert_eq!([events((6, 4), 1), events((6, 3), 0)], [[starting.clone()], [starting]]);
    }
}
