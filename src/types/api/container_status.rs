//! The status of a container. Pure.

use std::borrow::Cow;

use serde_json::Value;

use super::decode::{Decode, DecodeContext, DecodeError, Input};
use super::encode::{Encode, Json};
use super::map::Map;
use super::quantity::Quantity;
use super::reason::Reason;
use super::resources::ResourceRequirements;
use super::time::Time;

object! {
    pub struct ContainerStatus {
        @always {
            name: String,
            state: Option<ContainerState>,
            last_state: Option<ContainerState>,
            ready: bool,
            restart_count: i32,
            image: String,
            image_id: String = "imageID",
        }
        container_id: String = "containerID",
        started: Option<bool>,
        allocated_resources: Map<Quantity>,
        resources: Option<Box<ResourceRequirements>>,
        volume_mounts: Vec<VolumeMountStatus>,
        user: Option<Box<ContainerUser>>,
        allocated_resources_status: Vec<Value>,
        stop_signal: Option<String>,
    }
}

/// In JSON an object with one of three keys, or with none for `None`.
#[derive(Clone, Debug, PartialEq)]
pub enum ContainerState {
    Waiting(ContainerStateWaiting),
    Running(ContainerStateRunning),
    Terminated(Box<ContainerStateTerminated>),
}

object! {
    pub struct ContainerStateWaiting {
        reason: Reason,
        message: String,
    }
}

object! {
    pub struct ContainerStateRunning {
        @always {
            started_at: Option<Time>,
        }
    }
}

object! {
    pub struct ContainerStateTerminated {
        @always {
            exit_code: i32,
            started_at: Option<Time>,
            finished_at: Option<Time>,
        }
        signal: i32,
        reason: Reason,
        message: String,
        container_id: String = "containerID",
    }
}

object! {
    struct AnyState {
        waiting: Option<ContainerStateWaiting>,
        running: Option<ContainerStateRunning>,
        terminated: Option<Box<ContainerStateTerminated>>,
    }
}

impl Decode for ContainerState {
    fn decode(input: Input<'_>, context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        // Upstream reads an object without a key as waiting.
        let waiting = || Self::Waiting(ContainerStateWaiting::default());
        Self::decode_option(input, context).map(|state| state.unwrap_or_else(waiting))
    }

    fn decode_option(input: Input<'_>, context: DecodeContext<'_>) -> Result<Option<Self>, DecodeError> {
        let AnyState { waiting, running, terminated } = AnyState::decode(input, context)?;
        // If an object has more than one state, the latest in the life cycle wins.
        let terminated = terminated.map(Self::Terminated);
        Ok(terminated.or(running.map(Self::Running)).or(waiting.map(Self::Waiting)))
    }
}

impl Encode for ContainerState {
    fn write(&self, json: &mut Json) {
        json.begin_object();
        match self {
            Self::Waiting(state) => json.always("waiting", state),
            Self::Running(state) => json.always("running", state),
            Self::Terminated(state) => json.always("terminated", state),
        }
        json.end_object();
    }

    fn write_none(json: &mut Json) {
        json.raw("{}");
    }
}

object! {
    pub struct VolumeMountStatus {
        name: String,
        mount_path: String,
        read_only: bool,
        recursive_read_only: Option<Cow<'static, str>>,
    }
}

object! {
    pub struct ContainerUser {
        linux: Option<LinuxContainerUser>,
    }
}

object! {
    pub struct LinuxContainerUser {
        @always {
            uid: i64,
            gid: i64,
        }
        supplemental_groups: Vec<i64>,
    }
}
