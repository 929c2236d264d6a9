//! Pod sandbox messages. Pure.

use super::LinuxContainerResources;
use super::LinuxSandboxSecurityContext;
use super::NamespaceOption;
use crate::protocol::protobuf::{message, open_enum};
use crate::types::sorted::SortedMap;

open_enum! {
    pub enum Protocol {
        Tcp = 0,
        Udp = 1,
        Sctp = 2,
    }

    pub enum PodSandboxState {
        Ready = 0,
        NotReady = 1,
    }
}

message! {
    pub struct DnsConfig {
        1 => servers: Vec<String>,
        2 => searches: Vec<String>,
        3 => options: Vec<String>,
    }

    pub struct PortMapping {
        1 => protocol: Protocol,
        2 => container_port: i32,
        /// 0 if the container port is not mapped.
        3 => host_port: i32,
        4 => host_ip: String,
    }

    /// Identifies an attempt at a pod's sandbox.
    pub struct PodSandboxMetadata {
        1 => name: String,
        2 => uid: String,
        3 => namespace: String,
        4 => attempt: u32,
    }

    pub struct LinuxPodSandboxConfig {
        1 => cgroup_parent: String,
        2 => security_context: Option<LinuxSandboxSecurityContext>,
        3 => sysctls: SortedMap<String, String>,
        4 => overhead: Option<LinuxContainerResources>,
        /// The sum of the pod's containers.
        5 => resources: Option<LinuxContainerResources>,
    }

    pub struct PodSandboxConfig {
        1 => metadata: Option<PodSandboxMetadata>,
        /// Empty for a pod in the host's network namespace.
        2 => hostname: String,
        /// The containers' log paths are relative to it.
        3 => log_directory: String,
        /// `None` for the runtime's default.
        4 => dns_config: Option<DnsConfig>,
        5 => port_mappings: Vec<PortMapping>,
        6 => labels: SortedMap<String, String>,
        7 => annotations: SortedMap<String, String>,
        8 => linux: Option<LinuxPodSandboxConfig>,
    }

    pub struct RunPodSandboxRequest {
        1 => config: Option<PodSandboxConfig>,
        2 => runtime_handler: String,
    }

    pub struct RunPodSandboxResponse {
        1 => pod_sandbox_id: String,
    }

    pub struct StopPodSandboxRequest {
        1 => pod_sandbox_id: String,
    }

    pub struct StopPodSandboxResponse {}

    pub struct RemovePodSandboxRequest {
        1 => pod_sandbox_id: String,
    }

    pub struct RemovePodSandboxResponse {}

    pub struct PodIp {
        1 => ip: String,
    }

    /// Empty for a pod in the host's network namespace.
    pub struct PodSandboxNetworkStatus {
        1 => ip: String,
        2 => additional_ips: Vec<PodIp>,
    }

    pub struct Namespace {
        2 => options: Option<NamespaceOption>,
    }

    pub struct LinuxPodSandboxStatus {
        1 => namespaces: Option<Namespace>,
    }

    pub struct PodSandboxStatus {
        1 => id: String,
        2 => metadata: Option<PodSandboxMetadata>,
        3 => state: PodSandboxState,
        4 => created_at: i64,
        5 => network: Option<PodSandboxNetworkStatus>,
        6 => linux: Option<LinuxPodSandboxStatus>,
        7 => labels: SortedMap<String, String>,
        8 => annotations: SortedMap<String, String>,
        9 => runtime_handler: String,
    }

    pub struct PodSandboxStateValue {
        1 => state: PodSandboxState,
    }

    /// Selects sandboxes that match every part set.
    pub struct PodSandboxFilter {
        1 => id: String,
        2 => state: Option<PodSandboxStateValue>,
        3 => label_selector: SortedMap<String, String>,
    }

    pub struct ListPodSandboxRequest {
        1 => filter: Option<PodSandboxFilter>,
    }

    pub struct PodSandbox {
        1 => id: String,
        2 => metadata: Option<PodSandboxMetadata>,
        3 => state: PodSandboxState,
        4 => created_at: i64,
        5 => labels: SortedMap<String, String>,
        6 => annotations: SortedMap<String, String>,
        7 => runtime_handler: String,
    }

    pub struct ListPodSandboxResponse {
        1 => items: Vec<PodSandbox>,
    }
}
