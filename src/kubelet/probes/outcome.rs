//! The outcome of one probe attempt, and its event. Pure.

use crate::state::pods::ProbeKind;
use crate::types::api::Reason;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    /// Passed, with a warning for the event.
    Warned(String),
    Failed(String),
    /// The probe could not run or finish: this says nothing about the container.
    Errored {
        state: ErrorResult,
        message: String,
    },
}

/// Upstream's name for the state of a container whose probe errored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorResult {
    Failure,
    Unknown,
}

impl Outcome {
    pub(super) fn unknown(message: impl ToString) -> Self {
        Self::Errored { state: ErrorResult::Unknown, message: message.to_string() }
    }

    /// `None`: it does not count towards a threshold.
    pub(super) fn passed(&self) -> Option<bool> {
        match self {
            Self::Passed | Self::Warned(_) => Some(true),
            Self::Failed(_) => Some(false),
            Self::Errored { .. } => None,
        }
    }

    /// The reason and message of the event, as upstream.
    pub(super) fn event(&self, kind: ProbeKind) -> Option<(Reason, String)> {
        match self {
            Self::Passed => None,
            Self::Warned(message) => Some((Reason::PROBE_WARNING, format!("{kind} probe warning: {message}"))),
            Self::Failed(message) => Some((Reason::UNHEALTHY, format!("{kind} probe failed: {message}"))),
            Self::Errored { state, message } => {
                let state = match state {
                    ErrorResult::Failure => "failure",
                    ErrorResult::Unknown => "unknown",
                };
                let message = format!("{kind} probe errored and resulted in {state} state: {message}");
                Some((Reason::UNHEALTHY, message))
            }
        }
    }
}
