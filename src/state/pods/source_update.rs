//! Updates from pod sources. Pure.

use std::fmt;
use std::sync::Arc;

use crate::state::objects::SourceObject;
use crate::types::api::{Pod, PodUid, Time};

/// The sources of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SourceName {
    /// Manifests on disk.
    File,
    /// Manifests sent to this node over its local socket or its server.
    Local,
    /// Manifests at a URL.
    Http,
    /// The API server of a cluster.
    Api,
}

/// All pods of a source. A later update of the same source replaces an earlier one.
#[derive(Clone, Debug)]
pub(crate) struct SourceUpdate {
    pub(crate) source: SourceName,
    pub(crate) pods: Vec<SourcePod>,
    /// The ConfigMaps and Secrets that these pods may use.
    pub(crate) objects: Vec<SourceObject>,
    /// Mirror pods from the API server.
    pub(crate) mirrors: Vec<Arc<Pod>>,
    pub(crate) problems: Vec<SourceProblem>,
    /// Pods of the source that could not be read. What the node has of them stays.
    pub(crate) unread: Vec<PodUid>,
    /// `pods` and `unread` are the whole list, so other pods are orphaned. False while something that may define an
    /// unknown pod could not be read; then running pods of unknown origin are left alone.
    pub(crate) complete: bool,
    /// The source has listed everything again, so this replaces what it reported before.
    pub(crate) relisted: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct SourcePod {
    pub(crate) pod: Arc<Pod>,
    /// Where the pod is defined: a path, a URL, or `local:default/web`.
    pub(crate) origin: Arc<str>,
}

/// Something in a source that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceProblem {
    /// The file, directory or other origin.
    pub(crate) origin: Arc<str>,
    /// One line: what is wrong, where, and what was expected.
    pub(crate) message: String,
    /// Its previous pods keep running.
    pub(crate) keeps_last_good: bool,
    pub(crate) since: Time,
}

impl SourceName {
    /// The value of the annotation `kubernetes.io/config.source`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Local => "local",
            Self::Http => "http",
            Self::Api => "api",
        }
    }
}

impl fmt::Display for SourceProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (since {}", self.origin, self.message, self.since)?;
        if self.keeps_last_good {
            f.write_str("; its last good state stays in use")?;
        }
        f.write_str(")")
    }
}
