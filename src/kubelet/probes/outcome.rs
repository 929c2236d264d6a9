//! What one question came to, and the event that tells of it. Pure.

use crate::state::pods::ProbeKind;
use crate::types::api::Reason;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    /// Passed, but something about it should be known.
    Warned(String),
    Failed(String),
    /// The container could not be asked, or not to the end: this says nothing about it.
    Errored {
        state: Undecided,
        message: String,
    },
}

/// What the upstream kubelet calls the state of a container that could not be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undecided {
    Failure,
    Unknown,
}

impl Outcome {
    pub(super) fn unknown(message: impl ToString) -> Self {
        Self::Errored { state: Undecided::Unknown, message: message.to_string() }
    }

    /// `None`: it counts for nothing.
    pub(super) fn passed(&self) -> Option<bool> {
        match self {
            Self::Passed | Self::Warned(_) => Some(true),
            Self::Failed(_) => Some(false),
            Self::Errored { .. } => None,
        }
    }

    /// The reason and the message of the event, in upstream's words.
    pub(super) fn event(&self, kind: ProbeKind) -> Option<(Reason, String)> {
        match self {
            Self::Passed => None,
            Self::Warned(message) => Some((Reason::PROBE_WARNING, format!("{kind} probe warning: {message}"))),
            Self::Failed(message) => Some((Reason::UNHEALTHY, format!("{kind} probe failed: {message}"))),
            Self::Errored { state, message } => {
                let state = match state {
                    Undecided::Failure => "failure",
                    Undecided::Unknown => "unknown",
                };
                let message = format!("{kind} probe errored and resulted in {state} state: {message}");
                Some((Reason::UNHEALTHY, message))
            }
        }
    }
}
