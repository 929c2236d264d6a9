//! State machine of a node shutdown. Pure: time is an argument.
//!
//! ```text
//!            begins                  no pods left            reported, or late
//!   No work --------> Ending phases -------------> Telling --------------------> Over
//!      ^                    |                         |                           |
//!      '----------------------------- cancelled ----------------------------------'
//! ```

use std::time::{Duration, Instant};

use crate::platform::config::ShutdownPhase;

#[derive(Debug)]
pub(crate) struct Progress {
    /// In ascending order of priority.
    phases: Vec<ShutdownPhase>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// No shutdown is in progress.
    NoWork,
    /// `begun` phases have begun; the last of them has until `until`.
    Ending {
        begun: usize,
        until: Instant,
    },
    /// All pods have terminated or their time is over; their statuses are reported until `until`.
    Telling {
        until: Instant,
    },
    Over,
}

/// A phase whose pods must terminate now, and the time they have.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DuePhase {
    pub(crate) phase: usize,
    pub(crate) grace: Duration,
}

/// How long the shutdown waits for statuses that are still being reported.
const SHUTDOWN_STATUS_WAIT: Duration = Duration::from_secs(2);

impl Progress {
    pub(crate) fn new(phases: &[ShutdownPhase]) -> Self {
        Self { phases: phases.to_vec(), stage: Stage::NoWork }
    }

    /// The time of all phases together.
    pub(crate) fn whole_time(&self) -> Duration {
        self.phases.iter().fold(Duration::ZERO, |sum, phase| sum.saturating_add(phase.grace))
    }

    pub(crate) fn is_under_way(&self) -> bool {
        !matches!(self.stage, Stage::NoWork)
    }

    /// True unless it was already in progress.
    pub(crate) fn begin(&mut self, now: Instant) -> bool {
        let is_news = !self.is_under_way();
        if is_news {
            self.stage = Stage::Ending { begun: 0, until: now };
        }
        is_news
    }

    /// True if a shutdown was in progress.
    pub(crate) fn cancel(&mut self) -> bool {
        let is_news = self.is_under_way();
        self.stage = Stage::NoWork;
        is_news
    }

    /// The phase for this priority: the highest one that does not begin above it.
    pub(crate) fn phase_of(&self, priority: i32) -> usize {
        let from = |priority| self.phases.partition_point(|phase| phase.priority < priority);
        match from(priority) {
            at if self.phases.get(at).is_some_and(|phase| phase.priority == priority) => at,
            at => at.saturating_sub(1),
        }
    }

    /// The phase to start now, if any. `running`: priorities of the pods that have not terminated. Empty phases are
    /// skipped.
    pub(crate) fn next(&mut self, running: &[i32], now: Instant) -> Option<DuePhase> {
        let Stage::Ending { begun, until } = self.stage else { return None };
        let phases: Vec<usize> = running.iter().map(|priority| self.phase_of(*priority)).collect();
        if now < until && phases.iter().any(|phase| phase + 1 == begun) {
            return None;
        }
        let Some(phase) = phases.into_iter().filter(|phase| *phase >= begun).min() else {
            self.stage = Stage::Telling { until: now + SHUTDOWN_STATUS_WAIT };
            return None;
        };
        let grace = self.phases.get(phase).map_or(Duration::ZERO, |phase| phase.grace);
        let until = now.checked_add(grace).unwrap_or(now);
        self.stage = Stage::Ending { begun: phase + 1, until };
        Some(DuePhase { phase, grace })
    }

    /// True once, when the machine may shut down. It waits for statuses that are not reported yet.
    pub(crate) fn is_over(&mut self, has_unreported_statuses: bool, now: Instant) -> bool {
        let Stage::Telling { until } = self.stage else { return false };
        let is_over = !has_unreported_statuses || now >= until;
        if is_over {
            self.stage = Stage::Over;
        }
        is_over
    }

    /// When `next` or `is_over` must be called without an event.
    pub(crate) fn due(&self) -> Option<Instant> {
        match self.stage {
            Stage::Ending { until, .. } | Stage::Telling { until } => Some(until),
            Stage::NoWork | Stage::Over => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRITICAL: i32 = 2_000_000_000;

    fn progress(phases: &[(i32, u64)]) -> Progress {
        let phase = |&(priority, grace): &(i32, u64)| ShutdownPhase { priority, grace: Duration::from_secs(grace) };
        Progress::new(&phases.iter().map(phase).collect::<Vec<_>>())
    }

    fn end(phase: usize, seconds: u64) -> Option<DuePhase> {
        Some(DuePhase { phase, grace: Duration::from_secs(seconds) })
    }

    #[test]
    fn pod_belongs_to_the_highest_phase_not_above_its_priority() {
        let progress = progress(&[(-10, 1), (0, 1), (1000, 1), (CRITICAL, 1)]);
        for (priority, phase) in [
            (i32::MIN, 0),
            (-11, 0),
            (-10, 0),
            (-1, 0),
            (0, 1),
            (999, 1),
            (1000, 2),
            (CRITICAL - 1, 2),
            (CRITICAL, 3),
            (i32::MAX, 3),
        ] {
            assert_eq!(progress.phase_of(priority), phase, "{priority}");
        }
    }

    #[test]
    fn phase_starts_when_the_previous_pods_have_terminated() {
        let mut progress = progress(&[(0, 20), (CRITICAL, 10)]);
        assert_eq!(progress.whole_time(), Duration::from_secs(30));
        let now = Instant::now();
        assert_eq!(progress.next(&[0], now), None);
        assert!(progress.begin(now));
        assert!(!progress.begin(now));
        assert_eq!(progress.next(&[5, CRITICAL, 0], now), end(0, 20));
        let later = now + Duration::from_secs(19);
        assert_eq!(progress.next(&[CRITICAL, 0], later), None);
        assert_eq!(progress.due(), Some(now + Duration::from_secs(20)));
        assert_eq!(progress.next(&[CRITICAL], later), end(1, 10));
        assert_eq!(progress.next(&[CRITICAL], later), None);
        assert!(!progress.is_over(false, later));
        assert_eq!(progress.next(&[], later), None);
        assert!(progress.is_over(false, later));
        assert!(!progress.is_over(false, later));
        assert!(progress.is_under_way());
    }

    #[test]
    fn overdue_pods_do_not_delay_the_next_phase() {
        let mut progress = progress(&[(0, 20), (10, 5), (CRITICAL, 10)]);
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        progress.begin(begin);
        assert_eq!(progress.next(&[0, CRITICAL], begin), end(0, 20));
        assert_eq!(progress.next(&[0, CRITICAL], at(20)), end(2, 10));
        assert_eq!(progress.next(&[0, CRITICAL], at(29)), None);
        assert_eq!(progress.next(&[0, CRITICAL], at(30)), None);
        assert!(progress.is_over(false, at(30)));
        assert_eq!(progress.due(), None);
    }

    #[test]
    fn statuses_are_reported_before_the_end_with_a_deadline() {
        let mut one = progress(&[(0, 1)]);
        let now = Instant::now();
        one.begin(now);
        assert_eq!(one.next(&[], now), None);
        assert!(!one.is_over(true, now));
        assert!(one.is_over(false, now));
        assert!(one.cancel());
        one.begin(now);
        one.next(&[], now);
        assert_eq!(one.due(), Some(now + SHUTDOWN_STATUS_WAIT));
        assert!(one.is_over(true, now + SHUTDOWN_STATUS_WAIT));
    }

    #[test]
    fn cancelled_shutdown_stops_and_can_start_again() {
        let mut progress = progress(&[(0, 20), (CRITICAL, 10)]);
        let now = Instant::now();
        assert!(!progress.cancel());
        progress.begin(now);
        progress.next(&[0, CRITICAL], now);
        assert!(progress.cancel());
        assert_eq!((progress.next(&[CRITICAL], now), progress.due()), (None, None));
        progress.begin(now);
        assert_eq!(progress.next(&[CRITICAL], now), end(1, 10));
    }
}
