//! Events of the sync loop. Pure.

use crate::state::objects::ObjectEvent;
use std::sync::Arc;

use crate::state::pods::{
    MirrorDone, NodeEvent, ObservationTicket, ObservedPod, OomKill, PodEvent, PodEviction, PressureObservation,
    ProbeResult, ReportDone, RestartRequest, SourceUpdate, StopRequest, StoppedPods, UpdateLock, VersionActionRequest,
    Waiting,
};
use crate::types::api::{Map, NodeFeatures, NodeRuntimeHandler, Pod, PodUid, Reason, ResourceList, Taint};
use crate::types::time_zone::TimeZone;

/// Everything that the sync loop reacts to; its inbox has only these.
#[derive(Debug)]
pub(crate) enum SyncEvent {
    /// A source reports all of its pods.
    Sources(SourceUpdate),
    /// One pod was queried in the runtime.
    Observed(Observation),
    /// All pods were queried in the runtime.
    Relisted(Relist),
    /// The runtime connected, disconnected, or changed its status.
    Runtime(RuntimeState),
    /// A pod worker has finished a piece of work.
    WorkDone(WorkDone),
    /// A probe has reached a threshold.
    Probed(ProbeResult),
    /// An event to record for a pod. Dropped when the inbox is full.
    PodEvent(PodEvent),
    /// An event to record for the node. Dropped when the inbox is full.
    NodeEvent(NodeEvent),
    /// The node's addresses have changed.
    AddressesChanged,
    /// The Node object has changed in the cluster.
    NodeChanged(NodeFields),
    /// The Node object was read again for pods that its known labels would reject, or could not be read in time.
    NodeRead,
    /// The kernel has OOM-killed a process.
    OomKilled(OomKill),
    /// This sandbox of the pod is running, but the pod's cgroup does not exist.
    Groupless(PodUid, String),
    /// Processes have stalled on memory (PSI).
    MemoryStalled,
    /// A node-pressure check has finished.
    PressureChecked(PressureObservation),
    /// These pods exceed their ephemeral storage limits.
    OverStorageLimits(Vec<PodEviction>),
    /// An object that pods need was read, changed, or could not be read.
    Object(ObjectEvent),
    /// Archives have imported images that pods may wait for.
    ImagesImported,
    /// Devices or their allocations have changed.
    DevicesChanged,
    /// A CSI driver that pods may wait for has registered.
    CsiDriversChanged,
    /// A device plugin failed to allocate a pod's devices; the message.
    DevicesRefused(PodUid, String),
    /// The node has no room for a pod's volumes; the message.
    VolumesRefused(PodUid, String),
    /// A report about a pod was sent to the API server.
    Reported(ReportDone),
    /// Statuses may be sent to the API server again.
    StatusesAdmitted,
    /// A mirror pod was created or deleted.
    Mirrored(MirrorDone),
    /// A request to restart containers of a pod.
    RestartRequest(RestartRequest),
    /// A request to run an ended static pod again.
    RerunRequest(Arc<Pod>),
    /// A request to end a pod until it is started, or to start it.
    StopRequest(StopRequest),
    /// The stopped pods were stored; a failure is one line.
    StoppedPodsWritten(Result<StoppedPods, String>),
    /// Records of Jobs or of versions, which could not be read at the start, were read again.
    RecordsRead,
    /// The records of Jobs were stored; a failure is one line.
    JobsWritten(Option<String>),
    /// A scheduled time of a CronJob has come or the clock was set; the time zones of all CronJobs.
    ScheduleDue(Vec<ZoneFile>),
    /// The hosts files of running pods were written.
    HostsWritten,
    /// A request about the versions of a pod.
    VersionRequest(VersionActionRequest),
    /// The images of a pod's next version were pulled, or a pull failed.
    NextVersionPulled { uid: PodUid, pulled: Result<(), Waiting> },
    /// The tags of the pod's images were looked up: each image as the manifest has it, and its target.
    TagsLookedUp { pod: Arc<Pod>, targets: Result<Vec<(String, TagTarget)>, Waiting> },
    /// The node tried to take the update lock of a pod; a failure is one line.
    UpdateLockTried(PodUid, Result<UpdateLock, String>),
    /// The versions of pods were stored; a failure is one line.
    VersionsKept(Option<String>),
    /// A node shutdown has begun (true) or was cancelled (false).
    NodeShutsDown(bool),
    /// Containers were moved to their CPUs.
    CpusMoved(CpuMoveResult),
    /// The watchdog checks that the loop makes progress; receiving it is the answer.
    Beat,
}

/// What a registry has under a tag: digests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TagTarget {
    /// Of the index, or else of the manifest.
    pub(crate) digest: String,
    /// Of the manifest for this machine.
    pub(crate) manifest: String,
}

/// A time zone of CronJobs.
#[derive(Debug)]
pub(crate) struct ZoneFile {
    /// Empty: the node's own.
    pub(crate) name: String,
    /// A failure is one line.
    pub(crate) zone: Result<TimeZone, String>,
}

/// The result of moving containers to their CPUs.
#[derive(Debug, Default)]
pub(crate) struct CpuMoveResult {
    /// The state files could not be written.
    pub(crate) is_unwritten: bool,
    /// One line about the failure.
    pub(crate) fault: Option<String>,
}

/// The fields of the Node object that admission and volumes need.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeFields {
    /// Uid of the Node object.
    pub(crate) uid: String,
    pub(crate) labels: Map<String>,
    pub(crate) taints: Vec<Taint>,
    /// Allocatable extended resources.
    pub(crate) extended: ResourceList,
    /// Attached volumes that are reported as in use.
    pub(crate) attached: Vec<String>,
}

/// One pod's observed state.
#[derive(Debug)]
pub(crate) struct Observation {
    pub(crate) pod: ObservedPod,
    pub(crate) ticket: ObservationTicket,
}

/// The observed state of all pods.
#[derive(Debug)]
pub(crate) struct Relist {
    pub(crate) pods: Vec<ObservedPod>,
    /// Pods that exist but could not be queried in time; only their names are known.
    pub(crate) unseen: Vec<ObservedPod>,
    pub(crate) ticket: ObservationTicket,
}

/// The runtime's status.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RuntimeState {
    /// Empty until the runtime has answered once.
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) ready: bool,
    pub(crate) network_ready: bool,
    /// Why it is not ready.
    pub(crate) message: String,
    /// Failed conditions for the node's Ready message: `NetworkReady=false reason:a message:b`.
    pub(crate) ready_fault: String,
    pub(crate) network_fault: String,
    /// Sorted by name.
    pub(crate) handlers: Vec<NodeRuntimeHandler>,
    pub(crate) features: Option<NodeFeatures>,
}

#[derive(Debug)]
pub(crate) struct WorkDone {
    pub(crate) uid: PodUid,
    /// The pod's observed state after the work.
    pub(crate) observation: Option<Observation>,
    pub(crate) result: WorkResult,
}

#[derive(Debug)]
pub(crate) enum WorkResult {
    /// The actions of a sync were executed.
    Synced {
        /// For each container with an action: its waiting state, or `None` if the action succeeded.
        containers: Vec<(String, Option<Waiting>)>,
        /// What stopped the whole sync; one line.
        failure: Option<String>,
        /// Why a resize failed; one line.
        resize_failure: Option<String>,
        /// Warning events of the pod: about its cgroup, and about volumes that could not be set up or updated.
        warnings: Vec<(Reason, String)>,
    },
    /// The volume files of a running pod were updated. `all_refreshed`: every file that can be updated was; the others have
    /// warnings.
    Refreshed { all_refreshed: bool, warnings: Vec<(Reason, String)> },
    /// Dead containers were removed.
    Collected { all_removed: bool },
    /// Nothing of the pod is running any more.
    Stopped,
    /// Its mounts are removed; `purged`: all its files as well. `left`: errors of files that cannot be removed, which
    /// keep nothing from going on.
    Cleaned { purged: bool, left: Vec<String> },
    /// Nothing of it runs and its mounts are removed, but its containers could not be removed from the runtime. Will be
    /// retried.
    NotPurged { failure: String },
    /// Stopping or cleaning up failed and will be retried.
    Failed { failure: String },
}
