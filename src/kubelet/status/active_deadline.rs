//! `activeDeadlineSeconds` of pods. Pure: time is an argument.
//!
//! Upstream compares the wall clock with the start time in the status, so a clock step ends pods early or late. Here
//! the time is measured on the monotonic clock from when this process first saw the pod. Only an earlier start in the
//! status is compared with the wall clock, once.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use super::PodFailure;
use crate::types::api::{Pod, PodUid, Reason, Time};
use crate::types::sorted::SortedMap;

/// The active pods.
#[derive(Debug, Default)]
pub(crate) struct ActiveDeadlines {
    pods: SortedMap<PodUid, Active>,
}

#[derive(Debug)]
struct Active {
    met: Instant,
    /// Time for which it had been active when this process first saw it.
    before: Duration,
    /// When the deadline is reached; `None` without a deadline.
    due: Option<Instant>,
}

impl ActiveDeadlines {
    /// Records that the pod is active, with its current deadline; `time` is the wall clock.
    pub(crate) fn note(&mut self, pod: &Pod, now: Instant, time: Time) {
        if !self.pods.contains_key(&pod.metadata.uid) {
            let before = pod.status.start_time.map_or(Duration::ZERO, |started| passed(started, time));
            self.pods.insert(pod.metadata.uid.clone(), Active { met: now, before, due: None });
        }
        let Some(active) = self.pods.get_mut(&pod.metadata.uid) else { return };
        let limit = pod.spec.active_deadline_seconds.map(|limit| u64::try_from(limit).unwrap_or(0));
        let time_left = limit.map(|limit| Duration::from_secs(limit).saturating_sub(active.before));
        active.due = time_left.and_then(|time_left| active.met.checked_add(time_left));
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.pods.values().filter_map(|active| active.due).min()
    }

    /// The pods whose deadline has passed since the last call; each is returned once.
    pub(crate) fn take_overdue(&mut self, now: Instant) -> Vec<PodUid> {
        let due = self.pods.iter_mut().filter(|(_, active)| active.due.is_some_and(|due| due <= now));
        let overdue = due.map(|(uid, active)| {
            active.due = None;
            uid.clone()
        });
        overdue.collect()
    }

    pub(crate) fn forget(&mut self, uid: &PodUid) {
        self.pods.remove(uid);
    }
}

/// The failure of a pod past its deadline.
pub(crate) fn deadline_exceeded() -> PodFailure {
    PodFailure {
        reason: Reason::DEADLINE_EXCEEDED,
        message: Cow::Borrowed("Pod was active on the node longer than the specified deadline"),
        disruption: None,
    }
}

/// Zero if the clock was set back.
fn passed(started: Time, time: Time) -> Duration {
    let seconds = time.unix_seconds().saturating_sub(started.unix_seconds());
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEARS: i64 = 365 * 86_400;

    fn second(second: i64) -> Time {
        Time::from_unix_nanos(second * 1_000_000_000)
    }

    fn pod(limit: Option<i64>) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.uid = PodUid::from("u");
        pod.spec.active_deadline_seconds = limit;
        pod
    }

    /// The deadline is reached `over_after` seconds after the pod was first seen; `None`: never.
    #[track_caller]
    fn check(pod: &Pod, met_at: Time, over_after: Option<u64>) {
        let met = Instant::now();
        let mut deadlines = ActiveDeadlines::default();
        deadlines.note(pod, met, met_at);
        let due = over_after.map(|seconds| met + Duration::from_secs(seconds));
        assert_eq!(deadlines.next(), due);
        if let Some(due) = due {
            let early = due.checked_sub(Duration::from_nanos(1)).unwrap();
            assert_eq!(deadlines.take_overdue(early), []);
            assert_eq!(deadlines.take_overdue(due), [PodUid::from("u")]);
            assert_eq!((deadlines.take_overdue(due), deadlines.next()), (vec![], None), "told twice");
        }
    }

    #[test]
    fn pod_without_a_deadline_never_exceeds_it() {
        check(&pod(None), second(100), None);
    }

    #[test]
    fn deadline_counts_from_when_the_pod_was_first_seen() {
        for clock in [0, 100, 129 * YEARS] {
            check(&pod(Some(5)), second(clock), Some(5));
        }
        check(&pod(Some(0)), second(100), Some(0));
        check(&pod(Some(-1)), second(100), Some(0));
    }

    #[test]
    fn earlier_start_in_the_status_counts() {
        let mut pod = pod(Some(5));
        pod.status.start_time = Some(second(100));
        check(&pod, second(102), Some(3));
        check(&pod, second(1_000), Some(0));
        // The clock was set back: the full time is left.
        check(&pod, second(0), Some(5));
    }

    #[test]
    fn clock_steps_do_not_move_the_deadline() {
        let start = Instant::now();
        for step in [-30 * YEARS, 30 * YEARS] {
            let mut deadlines = ActiveDeadlines::default();
            let mut pod = pod(Some(10));
            deadlines.note(&pod, start, second(50 * YEARS));
            // The source may return the status with its start time.
            pod.status.start_time = Some(second(50 * YEARS));
            deadlines.note(&pod, start + Duration::from_secs(5), second(50 * YEARS + step));
            assert_eq!(deadlines.next(), Some(start + Duration::from_secs(10)), "{step}");
        }
    }

    #[test]
    fn changed_deadline_counts_from_the_same_time() {
        let start = Instant::now();
        let mut deadlines = ActiveDeadlines::default();
        for (limit, due) in [(None, None), (Some(60), Some(60)), (Some(20), Some(20)), (None, None)] {
            deadlines.note(&pod(limit), start + Duration::from_secs(limit.unwrap_or(0).unsigned_abs()), second(0));
            assert_eq!(deadlines.next(), due.map(|due| start + Duration::from_secs(due)));
        }
        deadlines.forget(&PodUid::from("u"));
        assert!(deadlines.pods.is_empty());
    }
}
