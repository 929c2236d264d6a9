//! Something that happened to a pod, in the words that Kubernetes has for it. Pure.

use crate::types::api::{EventKind, PodUid, Reason};

/// An event of a pod or of one of its containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodEvent {
    pub(crate) pod: PodUid,
    /// The container's name, where it is about one.
    pub(crate) container: Option<String>,
    pub(crate) kind: EventKind,
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

/// An event of the node itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeEvent {
    pub(crate) kind: EventKind,
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

/// As much as the API server takes of a message.
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
    let end = (0..=MESSAGE_BYTES).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
    message.truncate(end);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_between_two_characters() {
        let message = |text: &str| {
            PodEvent::of_container(&PodUid::from("u"), "c", EventKind::Warning, Reason::UNHEALTHY, text).message
        };
        assert_eq!(message("short"), "short");
        assert_eq!(message(&"é".repeat(2000)).len(), 1024);
        assert_eq!(message(&format!("x{}", "é".repeat(2000))).len(), 1023);
    }
}
