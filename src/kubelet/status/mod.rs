//! Pod statuses.
//!
//! [`pod_status`] generates a status; [`PodStatuses`] keeps the newest status of each pod and detects changes.

mod active_deadline;
mod generate;
mod log_source;
mod patch;
mod problem;
mod reported;
mod terminations;

use std::rc::Rc;

use crate::types::api::{PodStatus, PodUid};
use crate::types::sorted::SortedMap;

pub(crate) use active_deadline::{ActiveDeadlines, deadline_exceeded};
pub(crate) use generate::{OwnCondition, PodFailure, Resize, ResizeProgress, StatusInput, pod_status};
pub(crate) use log_source::{LogUnavailable, NoLog, run_to_read};
pub(crate) use patch::status_patch;
pub(crate) use problem::{PodHealth, PodProblem, PodSituation, pod_health};
pub(crate) use reported::{reported, terminated};
pub(crate) use terminations::new_terminations;

/// The newest status of each pod.
#[derive(Debug, Default)]
pub(crate) struct PodStatuses {
    pods: SortedMap<PodUid, Rc<PodStatus>>,
}

impl PodStatuses {
    pub(crate) fn status(&self, uid: &PodUid) -> Option<&Rc<PodStatus>> {
        self.pods.get(uid)
    }

    /// Stores a status; true if it changed. A pod stays in a terminal phase, and keeps its start time.
    pub(crate) fn set(&mut self, uid: &PodUid, mut status: PodStatus) -> bool {
        if let Some(pod_status) = self.pods.get(uid) {
            if pod_status.phase.is_terminal() && !status.phase.is_terminal() {
                status.phase = pod_status.phase;
                status.reason = pod_status.reason.clone();
                status.message.clone_from(&pod_status.message);
            }
            status.start_time = pod_status.start_time.or(status.start_time);
            if **pod_status == status {
                return false;
            }
        }
        self.pods.insert(uid.clone(), Rc::new(status));
        true
    }

    pub(crate) fn forget(&mut self, uid: &PodUid) {
        self.pods.remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::{PodPhase, Reason, Time};

    fn status(phase: PodPhase, reason: Reason) -> PodStatus {
        PodStatus { phase, reason, ..PodStatus::default() }
    }

    #[test]
    fn equal_status_is_not_a_change() {
        let mut statuses = PodStatuses::default();
        let uid = PodUid::from("u");
        assert!(statuses.set(&uid, status(PodPhase::Pending, Reason::default())));
        assert!(!statuses.set(&uid, status(PodPhase::Pending, Reason::default())));
        assert!(statuses.set(&uid, status(PodPhase::Running, Reason::default())));
    }

    #[test]
    fn terminal_phase_gives_way_to_another_terminal_phase_only() {
        let mut statuses = PodStatuses::default();
        let uid = PodUid::from("u");
        statuses.set(&uid, status(PodPhase::Failed, Reason::EVICTED));
        for phase in [PodPhase::Pending, PodPhase::Running] {
            assert!(!statuses.set(&uid, status(phase, Reason::default())), "{phase}");
        }
        assert_eq!(statuses.status(&uid).unwrap().reason, Reason::EVICTED);
        assert!(statuses.set(&uid, status(PodPhase::Succeeded, Reason::default())));
    }

    #[test]
    fn start_time_is_kept() {
        let mut statuses = PodStatuses::default();
        let uid = PodUid::from("u");
        let started = |second: i64| PodStatus {
            start_time: Some(Time::from_unix_nanos(second * 1_000_000_000)),
            ..PodStatus::default()
        };
        statuses.set(&uid, started(1));
        assert!(!statuses.set(&uid, started(2)));
        assert_eq!(statuses.status(&uid).unwrap().start_time, started(1).start_time);
    }
}
