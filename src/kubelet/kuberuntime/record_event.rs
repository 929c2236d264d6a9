//! Sends events about pods to the sync loop.

use async_channel::Sender;

use crate::platform::cri;
use crate::state::pods::{NodeEvent, PodEvent, SyncEvent, Waiting};
use crate::types::api::{EventKind, PodUid, Reason};
use crate::types::error::ErrorChain;

/// Sends events to the sync loop's inbox. An event is dropped when the inbox is full: a lost event costs a line that a
/// user reads, and a wait would delay the pod.
#[derive(Clone)]
pub(super) struct EventRecorder {
    inbox: Sender<SyncEvent>,
}

impl EventRecorder {
    pub(super) fn new(inbox: Sender<SyncEvent>) -> Self {
        Self { inbox }
    }

    pub(super) fn record_event(&self, pod: &PodUid, container: &str, kind: EventKind, reason: Reason, message: &str) {
        self.send(SyncEvent::PodEvent(PodEvent::of_container(pod, container, kind, reason, message)));
    }

    pub(super) fn record_pod_event(&self, pod: &PodUid, kind: EventKind, reason: Reason, message: impl Into<String>) {
        self.send(SyncEvent::PodEvent(PodEvent::of_pod(pod, kind, reason, message)));
    }

    pub(super) fn record_node_event(&self, kind: EventKind, reason: Reason, message: String) {
        self.send(SyncEvent::NodeEvent(NodeEvent::new(kind, reason, message)));
    }

    /// Records that a container failed to start and waits for this reason.
    pub(super) fn record_start_failure(&self, pod: &PodUid, container: &str, waiting: &Waiting) {
        if let Some(message) = start_failure(waiting) {
            self.record_event(pod, container, EventKind::Warning, Reason::FAILED, &message);
        }
    }

    fn send(&self, event: SyncEvent) {
        let _ = self.inbox.try_send(event);
    }
}

/// The runtime's message without the status code, if there is one.
pub(super) fn runtime_message(error: &cri::Error) -> String {
    match error.status() {
        Some(status) => status.message.clone(),
        None => ErrorChain(error).to_string(),
    }
}

/// The message of the `Failed` event. For images only the reason, because the image events have the details. `None`
/// if other events have reported it, or there is no failure.
fn start_failure(waiting: &Waiting) -> Option<String> {
    let Waiting { reason, message, .. } = waiting;
    let reported = [Reason::CONTAINER_CREATING, Reason::IMAGE_PULL_WAITING, Reason::POST_START_HOOK_ERROR];
    let explained =
        [Reason::CREATE_CONTAINER_CONFIG_ERROR, Reason::CREATE_CONTAINER_ERROR, Reason::RUN_CONTAINER_ERROR];
    if reported.contains(reason) {
        None
    } else if *reason == Reason::PRE_CREATE_HOOK_ERROR {
        Some(format!("Internal PreCreateContainer hook failed: {message}"))
    } else if explained.contains(reason) {
        Some(format!("Error: {message}"))
    } else {
        Some(format!("Error: {reason}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_event_has_the_message_or_for_images_the_reason() {
        let failure = |reason: Reason| start_failure(&Waiting::new(reason, "no such"));
        assert_eq!(failure(Reason::CREATE_CONTAINER_CONFIG_ERROR).as_deref(), Some("Error: no such"));
        assert_eq!(failure(Reason::RUN_CONTAINER_ERROR).as_deref(), Some("Error: no such"));
        assert_eq!(failure(Reason::ERR_IMAGE_PULL).as_deref(), Some("Error: ErrImagePull"));
        assert_eq!(failure(Reason::IMAGE_PULL_BACK_OFF).as_deref(), Some("Error: ImagePullBackOff"));
        let hook = "Internal PreCreateContainer hook failed: no such";
        assert_eq!(failure(Reason::PRE_CREATE_HOOK_ERROR).as_deref(), Some(hook));
        assert_eq!(failure(Reason::CONTAINER_CREATING), None);
        assert_eq!(failure(Reason::IMAGE_PULL_WAITING), None);
        assert_eq!(failure(Reason::POST_START_HOOK_ERROR), None);
    }
}
