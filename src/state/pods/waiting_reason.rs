//! Why a container is waiting. Pure.

use std::time::Instant;

use crate::types::api::Reason;

/// `state.waiting` of a container status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) reason: Reason,
    pub(crate) message: String,
    /// Earliest time of the next attempt, if known.
    pub(crate) until: Option<Instant>,
}

impl Waiting {
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), until: None }
    }
}
