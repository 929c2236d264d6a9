//! Container event messages. Pure.

use super::ContainerStatus;
use super::PodSandboxStatus;
use crate::protocol::protobuf::{message, open_enum};

open_enum! {
    pub enum ContainerEventType {
        Created = 0,
        Started = 1,
        Stopped = 2,
        Deleted = 3,
    }
}

message! {
    pub struct GetEventsRequest {}

    pub struct ContainerEventResponse {
        /// The id of the container, or of the sandbox for its own events.
        1 => container_id: String,
        2 => container_event_type: ContainerEventType,
        3 => created_at: i64,
        4 => pod_sandbox_status: Option<PodSandboxStatus>,
        5 => containers_statuses: Vec<ContainerStatus>,
    }

    /// An event without the containers: runtimes send the statuses of all of the pod's containers in each event.
    pub struct SandboxOfEvent {
        1 => container_id: String,
        2 => container_event_type: ContainerEventType,
        3 => created_at: i64,
        4 => pod_sandbox_status: Option<PodSandboxStatus>,
    }
}
