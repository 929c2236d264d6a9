//! What the parts of the sync loop decide, as data. Pure.
//!
//! A part returns effects; only [`PodTable::apply`](super::pod_table::PodTable::apply) carries them out.

use std::sync::Arc;
use std::time::Duration;

use crate::kubelet::status::Failed;
use crate::state::pods::{NodeEvent, ObservedPod, PodEvent, PressureCondition, RestartRequest};
use crate::types::api::{Pod, PodUid, ResourceList};

/// One change that a part asks for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Effect {
    /// The pod has its place on the node. It begins when the pods `after` have ended.
    Admit {
        uid: PodUid,
        after: Vec<PodUid>,
    },
    /// The API server has deleted the pod, or the pod had ended before it came.
    Delete(Arc<Pod>),
    /// The node ends a pod that its source still has.
    End(EndPod),
    /// The runtime has a pod that no source has.
    EndOrphan(ObservedPod),
    /// An input of the node's status changed.
    NodeStatus(NodeStatusChange),
    /// Objects, devices or drivers changed that these pods refer to: their workers try again at once.
    ReferencesChanged(Vec<PodUid>),
    /// The status of the pod is computed again in this round.
    MarkStatus(PodUid),
    /// Other pods are to run, though no source has changed.
    Reconcile,
    Record(PodEvent),
    RecordNode(NodeEvent),
    /// The local socket shows the error.
    RecordError(String),
    /// The source of the pod no longer has it.
    Remove(PodUid),
    /// Finished pods remove what is left of their containers.
    RemoveDeadContainers,
    /// A sandbox of the pod runs outside of the pod's control group.
    ReplaceSandbox {
        uid: PodUid,
        sandbox: String,
    },
    /// Containers of the pod start again on request.
    Restart(RestartRequest),
    /// The pod has ended, and a pod with the same uid follows.
    Supersede(PodUid),
    /// The source changed what the pod's status says, and nothing else.
    UpdateStatus(Arc<Pod>),
    /// A source has the pod, new or changed.
    Update(Arc<Pod>),
}

/// The end of a pod that its source still has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndPod {
    pub(super) uid: PodUid,
    pub(super) cause: EndCause,
    /// What the pod's status says, unless the pod was already ending.
    pub(super) failed: Failed,
    /// The longest grace period. A shorter one in the pod's spec counts.
    pub(super) grace: Duration,
    pub(super) event: Option<PodEvent>,
}

/// Why the node ends a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndCause {
    DeadlineExceeded,
    Evicted,
    NodeShutdown,
    Preempted,
    Rejected,
}

/// What the node's status shows.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NodeStatusChange {
    Devices([ResourceList; 2]),
    Pressures(Vec<PressureCondition>),
    ShutsDown(bool),
    VolumesInUse(Vec<String>),
}
