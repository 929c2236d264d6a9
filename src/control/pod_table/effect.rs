//! The decisions of the sync loop's parts, as data. Pure.
//!
//! A part returns effects. Only [`PodTable::apply`](super::PodTable::apply) carries them out.

use std::sync::Arc;
use std::time::Duration;

use crate::kubelet::allocation::PodResourceInfo;
use crate::kubelet::status::{OwnCondition, PodFailure};
use crate::state::pods::{EventObject, NodeError, NodeEvent, ObservedPod, PodEvent, PressureCondition, RestartRequest};
use crate::types::api::{Pod, PodUid, ResourceList};

/// One change that a part requests.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    /// Admits the pod. It starts when the pods `after` have ended.
    Admit {
        uid: PodUid,
        after: Vec<PodUid>,
    },
    /// Sets a condition of the pod that upstream does not have; `None` removes it.
    Condition {
        uid: PodUid,
        kind: &'static str,
        condition: Option<OwnCondition>,
    },
    /// The API server deleted the pod, or the pod had already ended when its source added it.
    Delete(Arc<Pod>),
    /// Ends a pod that its source still has.
    End(EndPod),
    /// Ends a pod of the runtime that no source has.
    EndOrphan(ObservedPod),
    /// The pod's admission is decided later: until then it does not start.
    Hold(PodUid),
    /// An input of the node status changed.
    NodeStatus(NodeStatusChange),
    /// Objects, devices or drivers that these pods refer to changed: their workers retry at once.
    ReferencesChanged(Vec<PodUid>),
    /// Recomputes the pod's status in this round.
    MarkStatus(PodUid),
    /// Selects the versions to run again, and reconciles the pods with their sources, although no source changed.
    Reconcile,
    Record(PodEvent),
    RecordNode(NodeEvent),
    /// Records an event about an object that is no pod.
    RecordOf(EventObject, PodEvent),
    /// Shows the error on the local socket.
    RecordError(NodeError),
    /// The pod's source no longer has it.
    Remove(PodUid),
    /// Removes the dead containers of finished pods.
    RemoveDeadContainers,
    /// Replaces a sandbox that runs outside the pod's cgroup.
    ReplaceSandbox {
        uid: PodUid,
        sandbox: String,
    },
    /// Allocates other resources to the pod, whose worker then resizes it.
    Resize {
        uid: PodUid,
        resources: PodResourceInfo,
        /// The generation of the pod that asks for them.
        generation: i64,
    },
    /// Restarts containers of the pod on a user's request.
    Restart(RestartRequest),
    /// The pod has ended, and a pod with the same uid follows.
    Supersede(PodUid),
    /// The source changed only the pod's status.
    UpdateStatus(Arc<Pod>),
    /// A source added or changed the pod.
    Update(Arc<Pod>),
}

/// Ends a pod that its source still has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndPod {
    pub(crate) uid: PodUid,
    pub(crate) cause: EndCause,
    /// The reason in the pod's status, unless the pod was already ending.
    pub(crate) failed: PodFailure,
    /// Upper bound of the grace period: a shorter one in the pod's spec applies.
    pub(crate) grace: Duration,
    pub(crate) event: Option<PodEvent>,
}

/// Why the node ends a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndCause {
    DeadlineExceeded,
    Evicted,
    NodeShutdown,
    Preempted,
    Rejected,
}

/// An input of the node status.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NodeStatusChange {
    Devices([ResourceList; 2]),
    /// The pods that do not run the version of their manifest, as the annotation shows them.
    HeldPods(String),
    Pressures(Vec<PressureCondition>),
    ShutsDown(bool),
    VolumesInUse(Vec<String>),
}
