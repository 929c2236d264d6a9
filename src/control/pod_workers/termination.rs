//! Ends pods that a source still has.

use std::time::Duration;

use super::{DEFAULT_GRACE, Entry, PodWorkers};
use crate::platform::rt;
use crate::state::pods::{PodEvent, SyncEvent};
use crate::types::api::{EventKind, PodUid, Reason};

const OVERDUE_KILL_MESSAGE: &str = "Container runtime did not kill the pod within specified grace period.";
/// Shortest time before an overdue pod is reported (kubelet: `killPodNow`).
const MIN_OVERDUE_TIME: Duration = Duration::from_secs(10);

impl PodWorkers {
    /// Ends the pod although its source has it. `limit` bounds the pod's own grace period.
    pub(crate) fn end_within(&mut self, uid: &PodUid, limit: Duration) {
        let Some(entry) = self.workers.get_mut(uid) else { return };
        if entry.worker.terminate(entry.grace().min(limit)) {
            entry.cancel();
        }
        self.touch(uid);
    }

    /// Ends the pod, and records an event if it does not end in time: upstream's `killPodNow`.
    pub(crate) fn kill(&mut self, uid: &PodUid, limit: Duration) {
        self.end_within(uid, limit);
        let Some(entry) = self.workers.get_mut(uid) else { return };
        let patience = patience(entry.grace().min(limit));
        let overdue = PodEvent::of_pod(uid, EventKind::Warning, Reason::EXCEEDED_GRACE_PERIOD, OVERDUE_KILL_MESSAGE);
        let inbox = self.inbox.clone();
        entry.overdue = Some(rt::spawn(async move {
            rt::sleep(patience).await;
            // If the inbox is closed, the process is ending.
            let _ = inbox.send(SyncEvent::PodEvent(overdue)).await;
        }));
    }
}

impl Entry {
    /// The grace period in the pod's spec, or the API's default.
    pub(super) fn grace(&self) -> Duration {
        self.worker.pod.as_ref().map_or(DEFAULT_GRACE, |pod| pod.spec.termination_grace())
    }
}

fn patience(grace: Duration) -> Duration {
    grace.saturating_add(grace / 2).max(MIN_OVERDUE_TIME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overdue_wait_is_half_the_grace_more_and_at_least_ten_seconds() {
        let seconds = |grace| patience(Duration::from_secs(grace)).as_secs();
        assert_eq!((seconds(1), seconds(6), seconds(30)), (10, 10, 45));
        assert_eq!(patience(Duration::MAX), Duration::MAX);
    }
}
