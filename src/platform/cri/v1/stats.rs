//! Resource usage messages of containers and sandboxes. Pure.

use super::ContainerMetadata;
use super::FilesystemUsage;
use super::PodSandboxMetadata;
use crate::protocol::protobuf::message;
use crate::types::sorted::SortedMap;

message! {
    pub struct ContainerStatsRequest {
        1 => container_id: String,
    }

    pub struct ContainerStatsResponse {
        1 => stats: Option<ContainerStats>,
    }

    /// Selects containers that match every part set.
    pub struct ContainerStatsFilter {
        1 => id: String,
        2 => pod_sandbox_id: String,
        3 => label_selector: SortedMap<String, String>,
    }

    pub struct ListContainerStatsRequest {
        1 => filter: Option<ContainerStatsFilter>,
    }

    pub struct ListContainerStatsResponse {
        1 => stats: Vec<ContainerStats>,
    }

    pub struct ContainerAttributes {
        1 => id: String,
        2 => metadata: Option<ContainerMetadata>,
        3 => labels: SortedMap<String, String>,
        4 => annotations: SortedMap<String, String>,
    }

    pub struct ContainerStats {
        1 => attributes: Option<ContainerAttributes>,
        2 => cpu: Option<CpuUsage>,
        3 => memory: Option<MemoryUsage>,
        4 => writable_layer: Option<FilesystemUsage>,
        5 => swap: Option<SwapUsage>,
        6 => io: Option<IoUsage>,
    }

    pub struct PodSandboxStatsRequest {
        1 => pod_sandbox_id: String,
    }

    pub struct PodSandboxStatsResponse {
        1 => stats: Option<PodSandboxStats>,
    }

    /// Selects sandboxes that match every part set.
    pub struct PodSandboxStatsFilter {
        1 => id: String,
        2 => label_selector: SortedMap<String, String>,
    }

    pub struct ListPodSandboxStatsRequest {
        1 => filter: Option<PodSandboxStatsFilter>,
    }

    pub struct ListPodSandboxStatsResponse {
        1 => stats: Vec<PodSandboxStats>,
    }

    pub struct PodSandboxAttributes {
        1 => id: String,
        2 => metadata: Option<PodSandboxMetadata>,
        3 => labels: SortedMap<String, String>,
        4 => annotations: SortedMap<String, String>,
    }

    pub struct PodSandboxStats {
        1 => attributes: Option<PodSandboxAttributes>,
        2 => linux: Option<LinuxPodSandboxStats>,
    }

    pub struct LinuxPodSandboxStats {
        1 => cpu: Option<CpuUsage>,
        2 => memory: Option<MemoryUsage>,
        3 => network: Option<NetworkUsage>,
        4 => process: Option<ProcessUsage>,
        5 => containers: Vec<ContainerStats>,
        6 => io: Option<IoUsage>,
    }

    /// Pressure stall information, as in the kernel's `*.pressure` files.
    pub struct PsiStats {
        1 => full: Option<PsiData>,
        2 => some: Option<PsiData>,
    }

    pub struct PsiData {
        /// Nanoseconds.
        1 => total: u64,
        /// Percent, over this number of seconds.
        2 => avg10: f64,
        3 => avg60: f64,
        4 => avg300: f64,
    }

    pub struct CpuUsage {
        1 => timestamp: i64,
        2 => usage_core_nano_seconds: Option<u64>,
        3 => usage_nano_cores: Option<u64>,
        4 => psi: Option<PsiStats>,
    }

    pub struct MemoryUsage {
        1 => timestamp: i64,
        2 => working_set_bytes: Option<u64>,
        3 => available_bytes: Option<u64>,
        4 => usage_bytes: Option<u64>,
        5 => rss_bytes: Option<u64>,
        6 => page_faults: Option<u64>,
        7 => major_page_faults: Option<u64>,
        8 => psi: Option<PsiStats>,
    }

    pub struct IoUsage {
        1 => timestamp: i64,
        2 => psi: Option<PsiStats>,
    }

    pub struct SwapUsage {
        1 => timestamp: i64,
        2 => swap_available_bytes: Option<u64>,
        3 => swap_usage_bytes: Option<u64>,
    }

    pub struct ProcessUsage {
        1 => timestamp: i64,
        2 => process_count: Option<u64>,
    }

    pub struct NetworkUsage {
        1 => timestamp: i64,
        2 => default_interface: Option<NetworkInterfaceUsage>,
        3 => interfaces: Vec<NetworkInterfaceUsage>,
    }

    pub struct NetworkInterfaceUsage {
        1 => name: String,
        2 => rx_bytes: Option<u64>,
        3 => rx_errors: Option<u64>,
        4 => tx_bytes: Option<u64>,
        5 => tx_errors: Option<u64>,
    }
}
