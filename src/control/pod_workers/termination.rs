//! Pods that end although a source has them.

use std::time::Duration;

use super::{DEFAULT_GRACE, Entry, PodWorkers};
use crate::platform::rt;
use crate::state::pods::{PodEvent, SyncEvent};
use crate::types::api::{EventKind, PodUid, Reason};

const OVERDUE: &str = "Container runtime did not kill the pod within specified grace period.";
/// The shortest time after which it is told of (kubelet: `killPodNow`).
const LEAST_PATIENCE: Duration = Duration::from_secs(10);

impl PodWorkers {
    /// Ends the pod although its source has it. The grace period is the pod's own, or `most` if that is shorter.
    pub(crate) fn end_within(&mut self, uid: &PodUid, most: Duration) {
        let Some(entry) = self.workers.get_mut(uid) else { return };
        if entry.worker.terminate(entry.grace().min(most)) {
            entry.cancel();
        }
        self.touch(uid);
    }

    /// Ends the pod, and records an event if it has not ended in time: upstream's `killPodNow`.
    pub(crate) fn kill(&mut self, uid: &PodUid, most: Duration) {
        self.end_within(uid, most);
        let Some(entry) = self.workers.get_mut(uid) else { return };
        let patience = patience(entry.grace().min(most));
        let overdue = PodEvent::of_pod(uid, EventKind::Warning, Reason::EXCEEDED_GRACE_PERIOD, OVERDUE);
        let inbox = self.inbox.clone();
        entry.overdue = Some(rt::spawn(async move {
            rt::sleep(patience).await;
            // Who has ended the inbox ends with it.
            let _ = inbox.send(SyncEvent::Happened(overdue)).await;
        }));
    }
}

impl Entry {
    /// What the pod is given to stop by its spec.
    pub(super) fn grace(&self) -> Duration {
        self.worker.pod.as_ref().map_or(DEFAULT_GRACE, |pod| pod.spec.termination_grace())
    }
}

fn patience(grace: Duration) -> Duration {
    grace.saturating_add(grace / 2).max(LEAST_PATIENCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_half_of_its_grace_more_and_ten_seconds_at_least() {
        let seconds = |grace| patience(Duration::from_secs(grace)).as_secs();
        assert_eq!((seconds(1), seconds(6), seconds(30)), (10, 10, 45));
        assert_eq!(patience(Duration::MAX), Duration::MAX);
    }
}
