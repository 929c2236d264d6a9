//! Probe results. Pure.

use std::fmt;

use crate::types::api::PodUid;

/// The kind of a probe; the names are those of events and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ProbeKind {
    Startup,
    Readiness,
    Liveness,
}

/// A probe has reached its success or failure threshold.
#[derive(Debug)]
pub(crate) struct ProbeResult {
    pub(crate) pod: PodUid,
    pub(crate) container: String,
    /// The instance that was probed; results of an earlier instance are ignored.
    pub(crate) container_id: String,
    pub(crate) kind: ProbeKind,
    pub(crate) passed: bool,
}

impl ProbeKind {
    pub(crate) const ALL: [Self; 3] = [Self::Startup, Self::Readiness, Self::Liveness];

    /// The name in lower case, for use in a sentence.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Readiness => "readiness",
            Self::Liveness => "liveness",
        }
    }
}

impl fmt::Display for ProbeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        })
    }
}
