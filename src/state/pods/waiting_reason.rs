//! Why a container is waiting. Pure.

use std::time::Instant;

use crate::types::api::Reason;
use crate::types::text;

/// `state.waiting` of a container status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) reason: Reason,
    pub(crate) message: String,
    /// Earliest time of the next attempt, if known.
    pub(crate) until: Option<Instant>,
}

/// Longest message, the same as of a termination message. A hook's output and a runtime's error may be longer.
pub(crate) const MAX_WAITING_MESSAGE_BYTES: usize = 4096;

impl Waiting {
    /// Cuts a long message.
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        let mut message = message.into();
        text::cut(&mut message, MAX_WAITING_MESSAGE_BYTES);
        Self { reason, message, until: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_message_is_cut() {
        let waiting = Waiting::new(Reason::POST_START_HOOK_ERROR, "x".repeat(5 << 20));
        assert_eq!(
            (waiting.message.len(), waiting.message.capacity()),
            (MAX_WAITING_MESSAGE_BYTES, MAX_WAITING_MESSAGE_BYTES)
        );
    }
}
