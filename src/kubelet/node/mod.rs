//! What is known of this node, and what an API server is told of it.

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

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use crate::platform::config::{CgroupDriver, Config, SwapBehavior};
use crate::types::api::{MEMORY, ResourceList};

pub(crate) use machine_info::Machine;
pub(crate) use node_info::Facts;
pub(crate) use profile::NodeProfile;
pub(crate) use registration::NodeRegistration;
pub(crate) use runtime_health::RuntimeHealth;
pub(crate) use status::NodeObservation;
pub(crate) use status_inputs::StatusInputs;

/// What the configuration of sandboxes and containers takes from the node: settings and facts as plain values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeSettings {
    pub(crate) node_name: String,
    /// The address that pods are told first; empty while none is known.
    pub(crate) node_ips: Vec<IpAddr>,
    pub(crate) root_dir: PathBuf,
    pub(crate) pod_logs_dir: PathBuf,

    pub(crate) cluster_dns: Vec<IpAddr>,
    pub(crate) cluster_domain: String,
    /// `None`: pods inherit no resolver settings from the host.
    pub(crate) resolv_conf: Option<PathBuf>,

    /// CPU limits are kept by quotas.
    pub(crate) cpu_cfs_quota: bool,
    pub(crate) cpu_cfs_quota_period: Duration,
    pub(crate) memory_capacity: u64,
    /// What pods may use of the node; a container without a limit is told this as its limit.
    pub(crate) allocatable: ResourceList,
    /// As many pods as may be here at once.
    pub(crate) max_pods: u32,
    /// How many users a pod has that has users of its own.
    pub(crate) user_ids_per_pod: u32,
    /// Those that the kernel limits: in bytes, the smallest first. A runtime fails that is to set a limit that cannot be.
    pub(crate) huge_page_sizes: Vec<u64>,
    /// The host has cgroup v2 with its controllers.
    pub(crate) cgroup_v2: bool,
    /// The kernel limits swap by control group.
    pub(crate) swap_limits: bool,
    /// Swap that burstable containers share by what they ask for; `None`: no container swaps.
    pub(crate) shared_swap: Option<u64>,
    /// `None`: the runtime chooses the parent of a pod's control groups.
    pub(crate) pod_cgroups: Option<PodCgroups>,
    /// When memory runs out, one process of a container is killed, not all of them.
    pub(crate) single_process_oom_kill: bool,

    /// A container that names no seccomp profile has the runtime's own, not none.
    pub(crate) seccomp_default: bool,
    /// The directory of local seccomp profiles.
    pub(crate) seccomp_root: PathBuf,
    /// Paths that containers do not see, beside those that are the same on every node.
    pub(crate) masked_paths: Vec<String>,
}

/// How the control groups of pods are named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodCgroups {
    pub(crate) driver: CgroupDriver,
    /// The group above `kubepods`; empty for the root of the hierarchy.
    pub(crate) root: String,
}

impl NodeSettings {
    /// Where what listens on the node's network is found from here.
    pub(crate) fn own_address(&self) -> IpAddr {
        self.node_ips.first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// What all pods together may use of the node's memory, in bytes.
    pub(crate) fn allocatable_memory(&self) -> u64 {
        let memory = self.allocatable.get(MEMORY).map_or(0, |memory| memory.value());
        u64::try_from(memory).unwrap_or(0)
    }

    /// The settings of `config` on a machine with these `facts`; pods may use what is not reserved.
    pub(crate) fn new(config: &Config, facts: &Facts) -> Self {
        let pod_cgroups = (facts.cgroup_v2 && config.cgroups.per_qos)
            .then(|| PodCgroups { driver: config.cgroups.driver, root: config.cgroups.root.clone() });
        let per_core = config.pods.per_core.map(|pods| pods.saturating_mul(facts.cpus.max(1)));
        let guarded = config.eviction.kept(facts.memory_bytes, facts.storage_bytes);
        Self {
            node_name: config.node.name.clone(),
            node_ips: node_ips(&config.node.ips, &facts.addresses),
            root_dir: config.root_dir.clone(),
            pod_logs_dir: config.logs.pods_dir.clone(),
            cluster_dns: config.dns.cluster_dns.clone(),
            cluster_domain: config.dns.cluster_domain.clone(),
            resolv_conf: config.dns.resolv_conf.clone(),
            cpu_cfs_quota: config.cgroups.cpu_cfs_quota,
            cpu_cfs_quota_period: config.cgroups.cpu_cfs_quota_period,
            memory_capacity: facts.memory_bytes,
            allocatable: facts.allocatable(&[&config.reserved.system, &config.reserved.kube, &guarded]),
            max_pods: config.pods.max_pods.min(per_core.unwrap_or(u32::MAX)),
            user_ids_per_pod: config.pods.user_ids_per_pod,
            huge_page_sizes: facts.limited_huge_pages(),
            cgroup_v2: facts.cgroup_v2,
            swap_limits: facts.swap_limits,
            shared_swap: (config.cgroups.swap == SwapBehavior::LimitedSwap).then_some(facts.swap_bytes),
            pod_cgroups,
            single_process_oom_kill: config.cgroups.single_process_oom_kill.unwrap_or(!facts.cgroup_v2),
            seccomp_default: config.pods.seccomp_default,
            seccomp_root: config.root_dir.join("seccomp"),
            masked_paths: facts.thermal_paths.clone(),
        }
    }
}

/// Those that the user gives, or else those that were seen. 0.0.0.0 and :: only say which family comes first.
fn node_ips(given: &[IpAddr], seen: &[IpAddr]) -> Vec<IpAddr> {
    let mut ips: Vec<IpAddr> = given.iter().filter(|ip| !ip.is_unspecified()).copied().collect();
    if ips.is_empty() {
        let family = given.first().is_none_or(IpAddr::is_ipv4);
        ips.extend(seen);
        ips.sort_by_key(|ip| ip.is_ipv4() != family);
    }
    ips
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_none_only_says_which_family_comes_first() {
        let ips = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
        let seen = ips(&["10.0.0.1", "2001:db8::1"]);
        let both = ips(&["2001:db8::1", "10.0.0.1"]);
        assert_eq!(node_ips(&[], &seen), seen);
        assert_eq!(node_ips(&ips(&["0.0.0.0"]), &seen), seen);
        assert_eq!(node_ips(&ips(&["::"]), &seen), both);
        assert_eq!(node_ips(&ips(&["10.9.9.9"]), &seen), ips(&["10.9.9.9"]));
    }
}
