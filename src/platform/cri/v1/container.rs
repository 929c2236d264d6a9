//! Container messages, and commands in containers. Pure.

use super::ContainerResources;
use super::ContainerUser;
use super::IdMapping;
use super::ImageSpec;
use super::LinuxContainerResources;
use super::LinuxContainerSecurityContext;
use super::PodSandboxConfig;
use super::Signal;
use crate::protocol::protobuf::{message, open_enum};
use crate::types::sorted::SortedMap;

open_enum! {
    pub enum MountPropagation {
        Private = 0,
        HostToContainer = 1,
        Bidirectional = 2,
    }

    pub enum ContainerState {
        Created = 0,
        Running = 1,
        Exited = 2,
        Unknown = 3,
    }
}

message! {
    pub struct Mount {
        1 => container_path: String,
        /// Empty if `image` is set. The runtime creates a directory if it is missing.
        2 => host_path: String,
        3 => readonly: bool,
        4 => selinux_relabel: bool,
        5 => propagation: MountPropagation,
        6 => uid_mappings: Vec<IdMapping>,
        7 => gid_mappings: Vec<IdMapping>,
        /// Requires `readonly` and `Private`.
        8 => recursive_read_only: bool,
        /// The image to mount, for an image volume.
        9 => image: Option<ImageSpec>,
        10 => image_sub_path: String,
    }

    pub struct KeyValue {
        1 => key: String,
        /// May be other than UTF-8.
        2 => value: Vec<u8>,
    }

    pub struct Device {
        1 => container_path: String,
        2 => host_path: String,
        /// A subset of `rwm`.
        3 => permissions: String,
    }

    pub struct CdiDevice {
        /// `vendor/class=device`.
        1 => name: String,
    }

    /// Identifies a container within its sandbox.
    pub struct ContainerMetadata {
        1 => name: String,
        2 => attempt: u32,
    }

    pub struct LinuxContainerConfig {
        1 => resources: Option<LinuxContainerResources>,
        2 => security_context: Option<LinuxContainerSecurityContext>,
    }

    pub struct ContainerConfig {
        1 => metadata: Option<ContainerMetadata>,
        2 => image: Option<ImageSpec>,
        /// Replaces the image's entrypoint.
        3 => command: Vec<String>,
        4 => args: Vec<String>,
        5 => working_dir: String,
        6 => envs: Vec<KeyValue>,
        7 => mounts: Vec<Mount>,
        8 => devices: Vec<Device>,
        9 => labels: SortedMap<String, String>,
        10 => annotations: SortedMap<String, String>,
        /// Relative to the sandbox's log directory.
        11 => log_path: String,
        12 => stdin: bool,
        13 => stdin_once: bool,
        14 => tty: bool,
        15 => linux: Option<LinuxContainerConfig>,
        17 => cdi_devices: Vec<CdiDevice>,
        18 => stop_signal: Signal,
    }

    pub struct CreateContainerRequest {
        1 => pod_sandbox_id: String,
        2 => config: Option<ContainerConfig>,
        /// The sandbox's configuration again.
        3 => sandbox_config: Option<PodSandboxConfig>,
    }

    pub struct CreateContainerResponse {
        1 => container_id: String,
    }

    pub struct StartContainerRequest {
        1 => container_id: String,
    }

    pub struct StartContainerResponse {}

    pub struct StopContainerRequest {
        1 => container_id: String,
        /// Seconds before the kill; 0 kills at once.
        2 => timeout: i64,
    }

    pub struct StopContainerResponse {}

    pub struct RemoveContainerRequest {
        1 => container_id: String,
    }

    pub struct RemoveContainerResponse {}

    pub struct ContainerStateValue {
        1 => state: ContainerState,
    }

    /// Selects containers that match every part set.
    pub struct ContainerFilter {
        1 => id: String,
        2 => state: Option<ContainerStateValue>,
        3 => pod_sandbox_id: String,
        4 => label_selector: SortedMap<String, String>,
    }

    pub struct ListContainersRequest {
        1 => filter: Option<ContainerFilter>,
    }

    pub struct Container {
        1 => id: String,
        2 => pod_sandbox_id: String,
        3 => metadata: Option<ContainerMetadata>,
        4 => image: Option<ImageSpec>,
        5 => image_ref: String,
        6 => state: ContainerState,
        7 => created_at: i64,
        8 => labels: SortedMap<String, String>,
        9 => annotations: SortedMap<String, String>,
        /// Empty from runtimes before CRI API 0.29.
        10 => image_id: String,
    }

    pub struct ListContainersResponse {
        1 => containers: Vec<Container>,
    }

    pub struct ContainerStatusRequest {
        1 => container_id: String,
        2 => verbose: bool,
    }

    pub struct ContainerStatus {
        1 => id: String,
        2 => metadata: Option<ContainerMetadata>,
        3 => state: ContainerState,
        4 => created_at: i64,
        /// 0 if it has not started.
        5 => started_at: i64,
        /// 0 if it has not finished.
        6 => finished_at: i64,
        /// Valid only if `finished_at` is not 0.
        7 => exit_code: i32,
        8 => image: Option<ImageSpec>,
        9 => image_ref: String,
        /// The reason for the state, in CamelCase: `OOMKilled`, `Completed`, `Error`.
        10 => reason: String,
        11 => message: String,
        12 => labels: SortedMap<String, String>,
        13 => annotations: SortedMap<String, String>,
        14 => mounts: Vec<Mount>,
        /// Absolute.
        15 => log_path: String,
        16 => resources: Option<ContainerResources>,
        /// Empty from runtimes before CRI API 0.29.
        17 => image_id: String,
        18 => user: Option<ContainerUser>,
        19 => stop_signal: Signal,
    }

    pub struct ContainerStatusResponse {
        1 => status: Option<ContainerStatus>,
        /// Only if verbose: runtime-specific text, mostly JSON.
        2 => info: SortedMap<String, String>,
    }

    pub struct ReopenContainerLogRequest {
        1 => container_id: String,
    }

    pub struct ReopenContainerLogResponse {}

    pub struct ExecSyncRequest {
        1 => container_id: String,
        2 => cmd: Vec<String>,
        /// Seconds; 0 means no timeout.
        3 => timeout: i64,
    }

    pub struct ExecSyncResponse {
        1 => stdout: Vec<u8>,
        2 => stderr: Vec<u8>,
        3 => exit_code: i32,
    }

    pub struct ExecRequest {
        1 => container_id: String,
        2 => cmd: Vec<String>,
        3 => tty: bool,
        4 => stdin: bool,
        5 => stdout: bool,
        6 => stderr: bool,
    }

    pub struct ExecResponse {
        1 => url: String,
    }

    pub struct AttachRequest {
        1 => container_id: String,
        2 => stdin: bool,
        3 => tty: bool,
        4 => stdout: bool,
        5 => stderr: bool,
    }

    pub struct AttachResponse {
        1 => url: String,
    }

    pub struct PortForwardRequest {
        1 => pod_sandbox_id: String,
        2 => port: Vec<i32>,
    }

    pub struct PortForwardResponse {
        1 => url: String,
    }

    pub struct CheckpointContainerRequest {
        1 => container_id: String,
        /// The file to write.
        2 => location: String,
        /// Seconds; 0 means no timeout.
        3 => timeout: i64,
    }

    pub struct CheckpointContainerResponse {}
}
