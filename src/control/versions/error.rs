//! Why a request about versions is not possible, or versions were not written. Pure.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a user's request is not possible.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequestError {
    /// The cluster keeps the versions of its pods.
    ClusterPod,
    /// As many earlier versions are kept.
    NoSuchVersion(usize),
    NoVersions,
    OnTrial,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClusterPod => f.write_str("it is the cluster's, which keeps its versions"),
            Self::NoSuchVersion(0) => f.write_str("no earlier version of it is kept"),
            Self::NoSuchVersion(1) => f.write_str("only one earlier version of it is kept: expected --to 1"),
            Self::NoSuchVersion(kept) => {
                write!(f, "{kept} earlier versions of it are kept: expected --to 1 to {kept}")
            }
            Self::NoVersions => {
                f.write_str("it has no versions: its manifest gives it a uid, or another source has it, too")
            }
            Self::OnTrial => f.write_str("its new version is on trial: confirm it, or roll it back"),
        }
    }
}

impl std::error::Error for RequestError {}

/// A file that was not written or removed.
#[derive(Debug)]
pub(crate) struct WriteError {
    pub(super) path: PathBuf,
    pub(super) cause: io::Error,
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "versions of a pod not written: {}", self.path.display())
    }
}

impl std::error::Error for WriteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}
