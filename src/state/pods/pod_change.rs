//! What can be asked of the node about one pod, and what is answered. Pure.

use std::sync::Arc;

use async_channel::Sender;

use crate::types::api::{Pod, PodUid};

/// A pod as its manifest names it: without the node's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodChange {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) what: PodChangeKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PodChangeKind {
    /// The manifest that the node has of it.
    Get,
    /// Run it as this manifest says, now and after every start.
    Put(Vec<u8>),
    Delete,
    /// Start its containers anew, or only this one; here the pod goes by the name that it has on the node, too.
    Restart(Option<String>),
    /// About its versions; by either name, too.
    Versions(VersionAsk),
}

/// What is asked of a pod's versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionAsk {
    /// Run the one that came so many before the present one.
    Rollback(u32),
    /// Run the present one whatever the manifest becomes.
    Hold,
    /// Run what the manifest says, and count it as good.
    Confirm,
}

/// The same for the sync loop, and who waits for what becomes of it.
#[derive(Clone, Debug)]
pub(crate) struct VersionAsked {
    pub(crate) pod: Arc<Pod>,
    pub(crate) what: VersionAsk,
    pub(crate) answer: Sender<PodAnswer>,
}

/// Containers of a pod that somebody wants to begin anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RestartRequest {
    /// What the pod runs under.
    pub(crate) uid: PodUid,
    pub(crate) containers: Vec<String>,
    /// The instances of them that run, by the runtime's ids; the others wait for their next start.
    pub(crate) running: Vec<String>,
}

/// What has become of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PodAnswer {
    /// It is on the disk and runs from now on. Each warning is one line.
    Put {
        how: Put,
        warnings: Vec<String>,
    },
    Manifest(Vec<u8>),
    /// It is gone from the disk, and ends.
    Deleted,
    /// It has been done and is on the disk: one word for it.
    Done(&'static str),
    /// These containers are ended and started again.
    Restarts(Vec<String>),
    /// The request itself is wrong: why, and what would be right.
    Refused(String),
    /// Something stands in its way: what, and what to do about it.
    Conflict(String),
    /// There is no such pod: where else to look.
    Missing(String),
    /// It could not be done: what failed.
    Failed(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    Created,
    Changed,
    /// The same bytes as before: nothing was written.
    Unchanged,
}

impl Put {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
        }
    }
}
