//! Rejected static pods that are admitted again when the reason is gone: a free port, memory, a label.
//!
//! Upstream leaves a rejected static pod as it is until the kubelet restarts, because a pod of a cluster is replaced by
//! its controller. A static pod has no controller. Pure.

use std::time::{Duration, Instant};

use crate::types::api::PodUid;
use crate::types::sorted::SortedMap;

/// Delay of the first attempt, if nothing changes before; it doubles with each attempt.
const FIRST_READMISSION_DELAY: Duration = Duration::from_secs(10);
const MAX_READMISSION_DELAY: Duration = Duration::from_secs(300);
/// Delay after a change of the node, in which further changes join.
const READMISSION_DELAY_AFTER_CHANGE: Duration = Duration::from_secs(1);
/// Most pods that one round checks, and the delay of the others: a directory may have thousands of manifests.
const READMISSIONS_AT_ONCE: usize = 16;
const READMISSION_DELAY_OF_OTHERS: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(crate) struct Readmissions {
    /// By uid. An admitted pod stays until its due time, so that a pod that is rejected at once again keeps its delay.
    attempts: SortedMap<PodUid, Attempt>,
    /// A pod has ended since the last look: it may have been rejected.
    has_ended_pods: bool,
}

#[derive(Clone, Copy, Debug)]
struct Attempt {
    due: Instant,
    delay: Duration,
}

impl Readmissions {
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.attempts.values().map(|attempt| attempt.due).min()
    }

    /// Whether [`Self::take_due`] has something to do.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.has_ended_pods || self.next_due().is_some_and(|due| due <= now)
    }

    /// A worker has ended its pod.
    pub(crate) fn on_ended_pod(&mut self) {
        self.has_ended_pods = true;
    }

    /// Resources of the node, its labels or its pressure changed.
    pub(crate) fn on_change(&mut self, now: Instant) {
        for attempt in self.attempts.values_mut() {
            attempt.due = attempt.due.min(now + READMISSION_DELAY_AFTER_CHANGE);
        }
    }

    /// Those of the rejected pods (sorted) to check now. Each gets its next due time.
    pub(crate) fn take_due(&mut self, rejected: &[PodUid], now: Instant) -> Vec<PodUid> {
        self.has_ended_pods = false;
        self.attempts.retain(|uid, attempt| now < attempt.due || rejected.binary_search(uid).is_ok());
        let mut due = Vec::new();
        for uid in rejected {
            let first = Attempt { due: now + FIRST_READMISSION_DELAY, delay: FIRST_READMISSION_DELAY };
            let attempt = self.attempts.entry(uid.clone()).or_insert(first);
            if attempt.due > now {
                continue;
            }
            if due.len() == READMISSIONS_AT_ONCE {
                attempt.due = now + READMISSION_DELAY_OF_OTHERS;
                continue;
            }
            attempt.delay = attempt.delay.saturating_mul(2).min(MAX_READMISSION_DELAY);
            attempt.due = now + attempt.delay;
            due.push(uid.clone());
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due_in(readmissions: &Readmissions, start: Instant) -> Option<u64> {
        readmissions.next_due().map(|due| (due - start).as_secs())
    }

    #[test]
    fn rejected_pod_is_checked_with_growing_delays_and_after_changes() {
        let (mut readmissions, start) = (Readmissions::default(), Instant::now());
        let (rejected, at) = ([PodUid::from("a")], |seconds| start + Duration::from_secs(seconds));
        assert!(readmissions.take_due(&rejected, start).is_empty());
        assert_eq!(due_in(&readmissions, start), Some(10));
        assert_eq!(readmissions.take_due(&rejected, at(10)), rejected);
        assert_eq!(due_in(&readmissions, start), Some(30));
        readmissions.on_change(at(12));
        assert_eq!(due_in(&readmissions, start), Some(13));
        assert_eq!(readmissions.take_due(&rejected, at(13)), rejected);
        assert_eq!(due_in(&readmissions, start), Some(13 + 40));
        for _ in 0..8 {
            let due = readmissions.next_due().unwrap();
            readmissions.take_due(&rejected, due);
        }
        let due = readmissions.next_due().unwrap();
        readmissions.take_due(&rejected, due);
        assert_eq!(readmissions.next_due(), Some(due + MAX_READMISSION_DELAY));
    }

    #[test]
    fn pod_that_is_rejected_again_keeps_its_delay() {
        let (mut readmissions, start) = (Readmissions::default(), Instant::now());
        let (rejected, at) = ([PodUid::from("a")], |seconds| start + Duration::from_secs(seconds));
        readmissions.take_due(&rejected, start);
        assert_eq!(readmissions.take_due(&rejected, at(10)), rejected);
        // Admitted, and rejected at once.
        readmissions.take_due(&[], at(11));
        assert!(readmissions.take_due(&rejected, at(12)).is_empty());
        assert_eq!(due_in(&readmissions, start), Some(30));
    }

    #[test]
    fn admitted_pod_is_forgotten_at_its_due_time() {
        let (mut readmissions, start) = (Readmissions::default(), Instant::now());
        readmissions.take_due(&[PodUid::from("a")], start);
        readmissions.take_due(&[], start);
        assert_eq!(due_in(&readmissions, start), Some(10));
        readmissions.take_due(&[], start + FIRST_READMISSION_DELAY);
        assert_eq!(readmissions.next_due(), None);
    }

    #[test]
    fn thousands_of_rejected_pods_are_checked_a_few_at_a_time() {
        let (mut readmissions, start) = (Readmissions::default(), Instant::now());
        let rejected: Vec<PodUid> = (0..1000).map(|number| PodUid::from(&*format!("{number:04}"))).collect();
        readmissions.take_due(&rejected, start);
        let (mut checked, mut now) = (Vec::new(), start + FIRST_READMISSION_DELAY);
        while checked.len() < 1000 {
            assert!(readmissions.is_due(now));
            let due = readmissions.take_due(&rejected, now);
            assert!(due.len() <= READMISSIONS_AT_ONCE && !readmissions.is_due(now), "{}", due.len());
            checked.extend(due);
            now = readmissions.next_due().unwrap();
        }
        checked.sort();
        assert_eq!(checked, rejected);
    }

    #[test]
    fn looks_for_rejected_pods_only_after_a_pod_has_ended_or_when_due() {
        let (mut readmissions, start) = (Readmissions::default(), Instant::now());
        assert!(!readmissions.is_due(start));
        readmissions.on_ended_pod();
        assert!(readmissions.is_due(start));
        readmissions.take_due(&[PodUid::from("a")], start);
        assert!(!readmissions.is_due(start) && readmissions.is_due(start + FIRST_READMISSION_DELAY));
    }
}
