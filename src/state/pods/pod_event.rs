//! Events of pods and of the node. Pure.

use crate::types::api::{EventKind, PodUid, Reason};
use crate::types::text;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodEvent {
    pub(crate) pod: PodUid,
    /// Name of the container that the event is about, if any.
    pub(crate) container: Option<String>,
    pub(crate) kind: EventKind,
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeEvent {
    pub(crate) kind: EventKind,
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

/// Message limit of the API server.
const MESSAGE_BYTES: usize = 1024;

impl PodEvent {
    pub(crate) fn of_container(
        pod: &PodUid,
        container: &str,
        kind: EventKind,
        reason: Reason,
        message: impl Into<String>,
    ) -> Self {
        Self { container: Some(container.to_owned()), ..Self::of_pod(pod, kind, reason, message) }
    }

    pub(crate) fn of_pod(pod: &PodUid, kind: EventKind, reason: Reason, message: impl Into<String>) -> Self {
        Self { pod: pod.clone(), container: None, kind, reason, message: cut(message.into()) }
    }
}

impl NodeEvent {
    pub(crate) fn new(kind: EventKind, reason: Reason, message: impl Into<String>) -> Self {
        Self { kind, reason, message: cut(message.into()) }
    }
}

fn cut(mut message: String) -> String {
    text::cut(&mut message, MESSAGE_BYTES);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_message_is_cut_at_a_character_boundary() {
        let message = |text: &str| {
            PodEvent::of_container(&PodUid::from("u"), "c", EventKind::Warning, Reason::UNHEALTHY, text).message
        };
        assert_eq!(message("short"), "short");
        assert_eq!(message(&"é".repeat(2000)).len(), 1024);
        assert_eq!(message(&format!("x{}", "é".repeat(2000))).len(), 1023);
    }
}
