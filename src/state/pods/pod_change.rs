//! Requests about one pod over the local API, and their answers. Pure.

use std::sync::Arc;

use async_channel::Sender;

use crate::types::api::{Pod, PodUid};

/// The pod is named as in its manifest: without the node's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodChange {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) kind: PodChangeKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PodChangeKind {
    /// Return the stored manifest.
    Get,
    /// Run the pod of this manifest, now and after every start.
    Put(Vec<u8>),
    Delete,
    /// Restart all containers or this one. Also accepts the pod's name with the node suffix.
    Restart(Option<String>),
    /// Run the pod again, which has ended. Also accepts the pod's name with the node suffix.
    Rerun,
    /// End the pod until it is started, or start it. Also accepts the pod's name with the node suffix.
    Stop(StopAction),
    /// A request about its versions. Also accepts the pod's name with the node suffix.
    Versions(VersionAction),
}

/// A request about a pod's versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionAction {
    /// Run the version that came this many before the current one.
    Rollback(u32),
    /// Keep the current version whatever the manifest becomes.
    Hold,
    /// Run the manifest's version and mark it as good.
    Confirm,
}

/// Whether a pod runs at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopAction {
    Stop,
    Start,
}

/// The request for the sync loop, with the channel for its answer.
#[derive(Clone, Debug)]
pub(crate) struct StopRequest {
    /// Full name of the pod.
    pub(crate) pod: String,
    pub(crate) action: StopAction,
    /// `None` if nobody waits for it.
    pub(crate) response: Option<Sender<PodAnswer>>,
}

/// The request for the sync loop, with the channel for its answer.
#[derive(Clone, Debug)]
pub(crate) struct VersionActionRequest {
    pub(crate) pod: Arc<Pod>,
    pub(crate) action: VersionAction,
    pub(crate) response: Sender<PodAnswer>,
}

/// A request to restart containers of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RestartRequest {
    /// The pod's uid on the node.
    pub(crate) uid: PodUid,
    pub(crate) containers: Vec<String>,
    /// Runtime ids of the running instances to stop; other containers wait for their next start.
    pub(crate) running: Vec<String>,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PodAnswer {
    /// It is stored and runs from now on. Each warning is one line.
    Applied {
        how: ApplyOutcome,
        warnings: Vec<String>,
    },
    Manifest(Vec<u8>),
    /// Its manifest is removed, and the pod terminates.
    Deleted,
    /// Done and stored; one word for what was done.
    Done(&'static str),
    /// These containers are being restarted.
    Restarts(Vec<String>),
    /// The request is invalid; why, and what is expected.
    Refused(String),
    /// The request conflicts with the current state; why, and what to do about it.
    Conflict(String),
    /// There is no such pod; where else to look.
    Missing(String),
    /// It failed; why.
    Failed(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApplyOutcome {
    Created,
    Changed,
    /// The content is the same; nothing was written.
    Unchanged,
}

impl ApplyOutcome {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
        }
    }
}
