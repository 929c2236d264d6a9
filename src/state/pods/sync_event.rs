//! What reaches the sync loop: everything that can change what is done next. Pure.

use crate::state::objects::ObjectEvent;
use crate::state::pods::{
    Look, MirrorDone, NodeEvent, ObservedPod, OomKill, PodEvent, PodEviction, PressureObservation, ProbeResult,
    ReportDone, RestartRequest, SourceUpdate, VersionAsked, Waiting,
};
use crate::types::api::{Map, NodeFeatures, NodeRuntimeHandler, PodUid, Reason, ResourceList, Taint};

/// The sync loop's one inbox.
#[derive(Debug)]
pub(crate) enum SyncEvent {
    /// A source tells all of its pods.
    Sources(SourceUpdate),
    /// Something of one pod was looked at in the runtime.
    Observed(Observation),
    /// Everything in the runtime was looked at.
    Relisted(Relist),
    /// The runtime came, went, or has another word about itself.
    Runtime(RuntimeState),
    /// A pod worker is through with a piece of work.
    WorkDone(WorkDone),
    /// A probe has reached one of its thresholds.
    Probed(ProbeResult),
    /// Something to be told about a pod. It changes nothing, and is dropped when the inbox is full.
    Happened(PodEvent),
    /// The same of the node itself.
    NodeHappened(NodeEvent),
    /// What the cluster has of the node, for pods to ask of it.
    NodeHeard(NodeTerms),
    /// The kernel has killed a process for want of memory.
    OomKilled(OomKill),
    /// This sandbox of the pod runs, and the pod's control group is not there.
    Groupless(PodUid, String),
    /// Processes have waited for memory.
    MemoryStalled,
    /// What the node has left was looked at.
    PressureLooked(PressureObservation),
    /// These pods have written more than their limits of local storage.
    OverStorageLimits(Vec<PodEviction>),
    /// Something was heard of an object that pods need.
    Object(ObjectEvent),
    /// Archives have brought images, which pods may wait for.
    ImagesCame,
    /// There are other devices, or pods have others.
    DevicesChanged,
    /// A CSI driver has registered, which pods may wait for.
    CsiDriversChanged,
    /// A plugin does not give a pod the devices that it asks for; why.
    DevicesRefused(PodUid, String),
    /// The node has no room for a pod's volumes: what the pod is told.
    VolumesRefused(PodUid, String),
    /// The API server was told of a pod.
    Reported(ReportDone),
    /// The API server can be told of pods again.
    StatusesAdmitted,
    /// The mirror of one of the node's own pods was made or removed.
    Mirrored(MirrorDone),
    /// Somebody wants containers of a pod to begin anew.
    RestartRequest(RestartRequest),
    /// Somebody asks for another version of a pod.
    VersionAsked(VersionAsked),
    /// The versions of pods are on the disk, or one line about why not.
    VersionsKept(Option<String>),
    /// The machine shuts down, or does not after all.
    NodeShutsDown(bool),
    /// Containers were moved to the processors that they are to have.
    Placed(Placed),
    /// The watchdog asks whether the loop moves: taking it out is the answer.
    Beat,
}

/// What came of giving processors to containers.
#[derive(Debug, Default)]
pub(crate) struct Placed {
    /// Who has which is not on the disk.
    pub(crate) is_unwritten: bool,
    /// One line about what has failed.
    pub(crate) fault: Option<String>,
}

/// What pods may ask of a node, and have to bear with there.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeTerms {
    /// Of the node's object.
    pub(crate) uid: String,
    pub(crate) labels: Map<String>,
    pub(crate) taints: Vec<Taint>,
    /// What of it pods can get, of resources that are neither the kernel's nor Kubernetes' own.
    pub(crate) extended: ResourceList,
    /// The volumes that are attached to it, and that it has told to be in use.
    pub(crate) attached: Vec<String>,
}

/// One pod as the runtime showed it.
#[derive(Debug)]
pub(crate) struct Observation {
    pub(crate) pod: ObservedPod,
    pub(crate) look: Look,
}

/// Every pod of the runtime.
#[derive(Debug)]
pub(crate) struct Relist {
    pub(crate) pods: Vec<ObservedPod>,
    /// Pods that are there but could not be looked at in time: nothing of them but their names.
    pub(crate) unseen: Vec<ObservedPod>,
    pub(crate) look: Look,
}

/// What the runtime says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RuntimeState {
    /// Empty until the runtime has answered once.
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) ready: bool,
    pub(crate) network_ready: bool,
    /// Why it is not ready.
    pub(crate) message: String,
    /// The conditions as the node's own condition repeats them: `NetworkReady=false reason:a message:b`.
    pub(crate) ready_fault: String,
    pub(crate) network_fault: String,
    /// In the order of their names.
    pub(crate) handlers: Vec<NodeRuntimeHandler>,
    pub(crate) features: Option<NodeFeatures>,
}

#[derive(Debug)]
pub(crate) struct WorkDone {
    pub(crate) uid: PodUid,
    /// The pod as it was seen after the work.
    pub(crate) observation: Option<Observation>,
    pub(crate) result: WorkResult,
}

#[derive(Debug)]
pub(crate) enum WorkResult {
    /// The steps of a plan were tried.
    Synced {
        /// For each container that a step was about: why it waits now, or nothing when its step went well.
        containers: Vec<(String, Option<Waiting>)>,
        /// What stopped the whole pod, as one line.
        failure: Option<String>,
        /// What is told of the pod as warnings: of its control group, and of volumes that could not be set up or were
        /// left as they were.
        warnings: Vec<(Reason, String)>,
    },
    /// The files in the volumes of a running pod were brought up to date: `all` that can be written, and why the rest is
    /// as it was.
    Refreshed { all: bool, warnings: Vec<(Reason, String)> },
    /// What has ended and is not kept was removed: `all` of it or not.
    Collected { all: bool },
    /// Nothing of the pod runs any more.
    Stopped,
    /// Its mounts are gone; when it was `purged`, so is everything else.
    Cleaned { purged: bool },
    /// Stopping or cleaning failed; it is tried again.
    Failed { failure: String },
}
