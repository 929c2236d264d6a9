//! The resources that pods have, which differ from their specs while a resize is pending or in progress.
//!
//! Allocated resources are those with which a pod was admitted or last resized. Actuated resources are those that the
//! runtime was last given. Both are kept in upstream's checkpoint files, so that a restart, or another kubelet on this
//! node, continues with them.

mod checkpoint;
mod infeasible;
mod pod_resource_info;
mod resize_message;
mod state;

use std::path::Path;

pub(crate) use infeasible::{ResizeTerms, infeasible};
pub(crate) use pod_resource_info::PodResourceInfo;
pub(crate) use resize_message::resize_message;
pub(crate) use state::PodResourceState;

/// Allocated and actuated resources of all pods.
#[derive(Debug, Default)]
pub(crate) struct Allocations {
    /// Allocated to the pods.
    pub(crate) allocated: PodResourceState,
    /// Last given to the runtime.
    pub(crate) actuated: PodResourceState,
}

impl Allocations {
    /// Reads the checkpoints in the kubelet's root directory.
    pub(crate) async fn open(root_dir: &Path) -> Self {
        let open = |name| PodResourceState::open(root_dir.join(name));
        Self { allocated: open("allocated_pods_state").await, actuated: open("actuated_pods_state").await }
    }
}
