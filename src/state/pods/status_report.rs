//! Outcomes of reports to the API server. Pure.

use crate::types::api::PodUid;

/// A status update or deletion was sent to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReportDone {
    /// The pod reported.
    pub(crate) pod: PodUid,
    pub(crate) outcome: ReportOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReportOutcome {
    /// The object has this resource version now.
    Accepted { version: u64 },
    /// The server does not have the pod, or has another one with its name.
    Unknown,
    /// The server rejects this status as invalid or too large; one line.
    Invalid(String),
    /// One line.
    Failed(String),
}

/// A mirror pod was created or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MirrorDone {
    /// `name_namespace`.
    pub(crate) name: String,
    /// One line.
    pub(crate) failure: Option<String>,
}
