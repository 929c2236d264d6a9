//! Resource limits of containers and sandboxes. Pure.

use crate::protocol::protobuf::message;
use crate::types::sorted::SortedMap;

message! {
    /// 0 means unset in every field.
    pub struct LinuxContainerResources {
        /// Microseconds.
        1 => cpu_period: i64,
        /// Microseconds per period.
        2 => cpu_quota: i64,
        3 => cpu_shares: i64,
        4 => memory_limit_in_bytes: i64,
        5 => oom_score_adj: i64,
        6 => cpuset_cpus: String,
        7 => cpuset_mems: String,
        8 => hugepage_limits: Vec<HugepageLimit>,
        /// Files of cgroup v2, and their values.
        9 => unified: SortedMap<String, String>,
        /// Memory and swap together.
        10 => memory_swap_limit_in_bytes: i64,
    }

    pub struct HugepageLimit {
        /// As in the kernel's file names: `2MB`, `1GB`.
        1 => page_size: String,
        2 => limit: u64,
    }

    pub struct ContainerResources {
        1 => linux: Option<LinuxContainerResources>,
    }

    pub struct UpdateContainerResourcesRequest {
        1 => container_id: String,
        2 => linux: Option<LinuxContainerResources>,
        4 => annotations: SortedMap<String, String>,
    }

    pub struct UpdateContainerResourcesResponse {}

    pub struct UpdatePodSandboxResourcesRequest {
        1 => pod_sandbox_id: String,
        2 => overhead: Option<LinuxContainerResources>,
        3 => resources: Option<LinuxContainerResources>,
    }

    pub struct UpdatePodSandboxResourcesResponse {}
}
