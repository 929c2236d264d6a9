//! The status of a sandbox and its containers. Pure.

use super::ContainerStatus;
use super::PodSandboxStatus;
use crate::protocol::protobuf::message;
use crate::types::sorted::SortedMap;

message! {
    pub struct PodSandboxStatusRequest {
        1 => pod_sandbox_id: String,
        2 => verbose: bool,
    }

    pub struct PodSandboxStatusResponse {
        1 => status: Option<PodSandboxStatus>,
        /// Only if verbose: runtime-specific text, mostly JSON.
        2 => info: SortedMap<String, String>,
        /// Only from runtimes with container events.
        3 => containers_statuses: Vec<ContainerStatus>,
        /// When the statuses were taken; only with `containers_statuses`.
        4 => timestamp: i64,
    }
}
