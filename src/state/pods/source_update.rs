//! What a source tells: all of its pods, the objects they use, and what is wrong with the rest. Pure.

use std::fmt;
use std::sync::Arc;

use crate::state::objects::SourceObject;
use crate::types::api::{Pod, Time};

/// Where pods come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SourceName {
    /// Manifests on disk.
    File,
    /// Manifests that were put on this node itself, over its local socket or its server.
    Local,
    /// Manifests at a URL.
    Http,
    /// The API server of a cluster.
    Api,
}

/// Everything that a source has at present. A later update of the same source replaces an earlier one.
#[derive(Clone, Debug)]
pub(crate) struct SourceUpdate {
    pub(crate) source: SourceName,
    pub(crate) pods: Vec<SourcePod>,
    /// The ConfigMaps and Secrets that these pods may use.
    pub(crate) objects: Vec<SourceObject>,
    /// Pods of the API server that only show what the node's own pods do.
    pub(crate) mirrors: Vec<Arc<Pod>>,
    pub(crate) problems: Vec<SourceProblem>,
    /// A pod of this source that is not among `pods` is not wanted. As long as something could not be read that may
    /// hold a pod unknown so far, this cannot be said, and what runs for no visible reason must be left alone.
    pub(crate) complete: bool,
    /// The source has told all that it has anew: what it shows counts whatever it has shown before.
    pub(crate) relisted: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct SourcePod {
    pub(crate) pod: Arc<Pod>,
    /// The manifest it stands in: a path, a URL, or `local:default/web`.
    pub(crate) origin: Arc<str>,
}

/// Something that a source has and cannot use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceProblem {
    /// The file or directory, or what stands in its place.
    pub(crate) origin: Arc<str>,
    /// One line: what is wrong, where, what was expected.
    pub(crate) what: String,
    /// What it gave before goes on.
    pub(crate) keeps_last_good: bool,
    pub(crate) since: Time,
}

impl SourceName {
    /// As the annotation `kubernetes.io/config.source` has it.
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
        write!(f, "{}: {} (since {}", self.origin, self.what, self.since)?;
        if self.keeps_last_good {
            f.write_str("; its last good state goes on")?;
        }
        f.write_str(")")
    }
}
