//! What has become of what the cluster was told. Pure.

use crate::types::api::PodUid;

/// A status, or a pod's end, was told to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReportDone {
    /// Whose it is.
    pub(crate) pod: PodUid,
    pub(crate) outcome: ReportOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReportOutcome {
    /// The server's object is in this version now.
    Accepted { version: u64 },
    /// The server does not have the pod, or another one of its name.
    Unknown,
    /// The server does not take this status; it would not take it again. One line.
    Invalid(String),
    /// One line.
    Failed(String),
}

/// The mirror of one of the node's own pods was made or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MirrorDone {
    /// `name_namespace`.
    pub(crate) name: String,
    /// One line.
    pub(crate) failure: Option<String>,
}
