//! Ends pods that exceed their `activeDeadlineSeconds`.

use std::time::{Duration, Instant};

use crate::control::pod_table::{Effect, EndCause, EndPod, PodTable};
use crate::kubelet::status::{ActiveDeadlines, deadline_exceeded};
use crate::platform::host::clock;
use crate::state::pods::PodEvent;
use crate::types::api::{EventKind, PodUid, Reason};

#[derive(Default)]
pub(super) struct Deadlines {
    deadlines: ActiveDeadlines,
}

impl Deadlines {
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// The pod's status changed: it may have a start time now.
    pub(super) fn on_status(&mut self, uid: &PodUid, pods: &PodTable, now: Instant) {
        if let Some(pod) = pods.syncing(uid).and_then(|worker| worker.pod.as_ref()) {
            self.deadlines.note(pod, now, clock::now());
        }
    }

    pub(super) fn forget(&mut self, uid: &PodUid) {
        self.deadlines.forget(uid);
    }

    pub(super) fn round(&mut self, pods: &PodTable, now: Instant) -> Vec<Effect> {
        let overdue = self.deadlines.take_overdue(now).into_iter().filter(|uid| pods.syncing(uid).is_some());
        overdue.map(|uid| Effect::End(exceeded(uid))).collect()
    }
}

fn exceeded(uid: PodUid) -> EndPod {
    let failed = deadline_exceeded();
    let event = PodEvent::of_pod(&uid, EventKind::Normal, Reason::DEADLINE_EXCEEDED, &*failed.message);
    EndPod { uid, cause: EndCause::DeadlineExceeded, failed, grace: Duration::MAX, event: Some(event) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::pod_table::testing::{pod, with_node};
    use crate::platform::rt;
    use crate::types::api::Pod;

    #[test]
    fn pod_ends_when_its_deadline_passes() {
        with_node(|mut node| {
            let mut active = Pod::clone(&pod("a"));
            active.spec.active_deadline_seconds = Some(5);
            active.status.start_time = Some(clock::now());
            let (uid, now) = (active.metadata.uid.clone(), rt::now());
            node.pods.apply([Effect::Update(active.into())], now);
            let mut deadlines = Deadlines::default();
            deadlines.on_status(&uid, &node.pods, now);
            assert_eq!(deadlines.round(&node.pods, now), []);
            let due = deadlines.next_due().expect("the deadline is due");
            assert_eq!(deadlines.round(&node.pods, due), [Effect::End(exceeded(uid))]);
            assert_eq!(deadlines.next_due(), None);
        });
    }
}
