//! The node: its facts and settings, its Node object, and its lease.

mod address_watch;
mod board_health;
mod board_watch;
mod iptables_chains;
mod lease;
mod lease_task;
mod machine_info;
mod node_images;
mod node_info;
mod node_object;
mod patch;
mod profile;
mod registration;
mod report_times;
mod runtime_health;
mod status;
mod status_inputs;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::platform::config::{CgroupDriver, Config, MemoryQos, RuntimeProfile, SwapBehavior};
use crate::state::pods::HostIps;
use crate::types::api::{MEMORY, ResourceList};

pub(crate) use address_watch::AddressWatch;
pub(crate) use board_health::{BoardCondition, BoardHealth, BoardMoment};
pub(crate) use board_watch::BoardWatch;
pub(crate) use iptables_chains::keep_iptables_chains;
pub(crate) use machine_info::Machine;
pub(crate) use node_info::NodeInfo;
pub(crate) use profile::NodeProfile;
pub(crate) use registration::NodeRegistration;
pub(crate) use runtime_health::RuntimeHealth;
pub(crate) use status::NodeObservation;
pub(crate) use status_inputs::{
    CERTIFICATE_ANNOTATIONS, CONFIG_ANNOTATION, HELD_ANNOTATION, SYNC_ANNOTATION, StatusInputs, StatusView,
    UPGRADE_ANNOTATION, UPGRADE_CONDITION,
};

/// The settings and facts of the node that sandbox and container configuration needs, as plain values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeSettings {
    pub(crate) node_name: String,
    pub(crate) node_ips: HostIps,
    pub(crate) root_dir: PathBuf,
    /// Directory of the claims of manifests.
    pub(crate) claims_dir: PathBuf,
    pub(crate) pod_logs_dir: PathBuf,

    /// The node has a kubeconfig. A standalone node has no cluster DNS to miss.
    pub(crate) has_cluster: bool,
    pub(crate) cluster_dns: Vec<IpAddr>,
    pub(crate) cluster_domain: String,
    /// `None`: pods inherit no resolver settings from the host.
    pub(crate) resolv_conf: Option<PathBuf>,

    /// Enforce CPU limits with CFS quotas.
    pub(crate) cpu_cfs_quota: bool,
    pub(crate) cpu_cfs_quota_period: Duration,
    pub(crate) memory_capacity: u64,
    /// Allocatable resources; the downward API reports them as the limits of containers without limits.
    pub(crate) allocatable: ResourceList,
    pub(crate) max_pods: u32,
    /// Number of user ids in a pod's user namespace.
    pub(crate) user_ids_per_pod: u32,
    /// Huge page sizes that the kernel can limit, in bytes, ascending. A runtime fails when asked to set any other
    /// limit.
    pub(crate) huge_page_sizes: Vec<u64>,
    /// The host has cgroup v2 with the memory controller.
    pub(crate) cgroup_v2: bool,
    /// The kernel limits swap by cgroup.
    pub(crate) swap_limits: bool,
    /// Swap that burstable containers share in proportion to their memory requests; `None`: containers do not swap.
    pub(crate) shared_swap: Option<u64>,
    /// `None`: the runtime chooses the parent cgroup of pods.
    pub(crate) pod_cgroups: Option<PodCgroups>,
    /// Cgroups of the node's services in `/stats/summary`, by upstream's names.
    pub(crate) system_containers: Vec<(&'static str, String)>,
    /// `None`: the feature gate is off.
    pub(crate) memory_qos: Option<MemoryQos>,
    /// The OOM killer kills single processes instead of the whole container.
    pub(crate) single_process_oom_kill: bool,

    /// Static pods share shims of the runtime.
    pub(crate) shares_shims: bool,

    /// Mounts need labels that containers may access.
    pub(crate) selinux: bool,
    /// The policy's label of containers' files; `None` without SELinux.
    pub(crate) container_file_label: Option<String>,
    /// Containers without a seccomp profile get the runtime's default profile instead of none.
    pub(crate) seccomp_default: bool,
    pub(crate) seccomp_root: PathBuf,
    /// Masked paths in addition to those that every node has.
    pub(crate) masked_paths: Vec<String>,
}

/// Names of the pods' cgroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodCgroups {
    pub(crate) driver: CgroupDriver,
    /// The cgroup above `kubepods`; empty for the root of the hierarchy.
    pub(crate) root: String,
}

impl NodeSettings {
    /// Allocatable memory in bytes.
    pub(crate) fn allocatable_memory(&self) -> u64 {
        let memory = self.allocatable.get(MEMORY).map_or(0, |memory| memory.value());
        u64::try_from(memory).unwrap_or(0)
    }

    /// Derives the settings from the configuration and the machine's facts.
    pub(crate) fn new(config: &Config, node_info: &NodeInfo) -> Self {
        let pod_cgroups = (node_info.cgroup_v2 && config.cgroups.per_qos)
            .then(|| PodCgroups { driver: config.cgroups.driver, root: config.cgroups.root.clone() });
        let per_core = config.pods.per_core.map(|pods| pods.saturating_mul(node_info.cpus.max(1)));
        let guarded = config.eviction.kept(node_info.memory_bytes, node_info.storage_bytes);
        Self {
            node_name: config.node.name.clone(),
            node_ips: HostIps::new(&config.node.ips, &node_info.addresses),
            root_dir: config.root_dir.clone(),
            claims_dir: config.claims_dir.clone(),
            pod_logs_dir: config.logs.pods_dir.clone(),
            has_cluster: config.cluster.kubeconfig.is_some(),
            cluster_dns: config.dns.cluster_dns.clone(),
            cluster_domain: config.dns.cluster_domain.clone(),
            resolv_conf: config.dns.resolv_conf.clone(),
            cpu_cfs_quota: config.cgroups.cpu_cfs_quota,
            cpu_cfs_quota_period: config.cgroups.cpu_cfs_quota_period,
            memory_capacity: node_info.memory_bytes,
            allocatable: node_info.allocatable(&[&config.reserved.system, &config.reserved.kube, &guarded]),
            max_pods: config.pods.max_pods.min(per_core.unwrap_or(u32::MAX)),
            user_ids_per_pod: config.pods.user_ids_per_pod,
            huge_page_sizes: node_info.limited_huge_pages(),
            cgroup_v2: node_info.cgroup_v2,
            swap_limits: node_info.swap_limits,
            shared_swap: (config.cgroups.swap == SwapBehavior::LimitedSwap).then_some(node_info.swap_bytes),
            pod_cgroups,
            system_containers: [("runtime", &config.cgroups.runtime), ("misc", &config.cgroups.system)]
                .into_iter()
                .filter(|(_, group)| !group.is_empty())
                .map(|(name, group)| (name, group.clone()))
                .collect(),
            memory_qos: config.cgroups.memory_qos,
            single_process_oom_kill: config.cgroups.single_process_oom_kill.unwrap_or(!node_info.cgroup_v2),
            shares_shims: config.runtime.profile == RuntimeProfile::Lean,
            selinux: node_info.selinux,
            container_file_label: node_info.container_file_label.clone(),
            seccomp_default: config.pods.seccomp_default,
            seccomp_root: config.root_dir.join("seccomp"),
            masked_paths: node_info.thermal_paths.clone(),
        }
    }
}
