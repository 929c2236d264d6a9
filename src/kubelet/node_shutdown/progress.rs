//! How far a node's shutdown has come. Pure: the moment is an argument.
//!
//! ```text
//!            begins                  nobody left             told, or late
//!   No work --------> Ending phases -------------> Telling ----------------> Over
//!      ^------------------- cancelled ----------------------------------------'
//! ```

use std::time::{Duration, Instant};

use crate::platform::config::ShutdownPhase;

#[derive(Debug)]
pub(crate) struct Progress {
    /// In the order of their priorities.
    phases: Vec<ShutdownPhase>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The machine stays up.
    NoWork,
    /// So many phases have begun, and the last of them has until then.
    Ending {
        begun: usize,
        until: Instant,
    },
    /// All pods have ended, or have had their time; what became of them is being told until then.
    Telling {
        until: Instant,
    },
    Over,
}

/// The pods of a phase end, and have so much time at most.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) phase: usize,
    pub(crate) grace: Duration,
}

/// So long a cluster is waited for that has not answered yet.
const TELLING: Duration = Duration::from_secs(2);

impl Progress {
    pub(crate) fn new(phases: &[ShutdownPhase]) -> Self {
        Self { phases: phases.to_vec(), stage: Stage::NoWork }
    }

    /// What all phases take together.
    pub(crate) fn whole_time(&self) -> Duration {
        self.phases.iter().fold(Duration::ZERO, |sum, phase| sum.saturating_add(phase.grace))
    }

    pub(crate) fn is_under_way(&self) -> bool {
        !matches!(self.stage, Stage::NoWork)
    }

    /// True if this is news.
    pub(crate) fn begin(&mut self, now: Instant) -> bool {
        let is_news = !self.is_under_way();
        if is_news {
            self.stage = Stage::Ending { begun: 0, until: now };
        }
        is_news
    }

    /// True if this is news.
    pub(crate) fn cancel(&mut self) -> bool {
        let is_news = self.is_under_way();
        self.stage = Stage::NoWork;
        is_news
    }

    /// The phase of pods of this priority: the highest one that does not begin above it.
    pub(crate) fn phase_of(&self, priority: i32) -> usize {
        let from = |priority| self.phases.partition_point(|phase| phase.priority < priority);
        match from(priority) {
            at if self.phases.get(at).is_some_and(|phase| phase.priority == priority) => at,
            at => at.saturating_sub(1),
        }
    }

    /// Who ends now. `left` are the priorities of the pods that have not ended. A phase without pods takes no time.
    pub(crate) fn next(&mut self, left: &[i32], now: Instant) -> Option<End> {
        let Stage::Ending { begun, until } = self.stage else { return None };
        let phases: Vec<usize> = left.iter().map(|priority| self.phase_of(*priority)).collect();
        if now < until && phases.iter().any(|phase| phase + 1 == begun) {
            return None;
        }
        let Some(phase) = phases.into_iter().filter(|phase| *phase >= begun).min() else {
            self.stage = Stage::Telling { until: now + TELLING };
            return None;
        };
        let grace = self.phases.get(phase).map_or(Duration::ZERO, |phase| phase.grace);
        let until = now.checked_add(grace).unwrap_or(now);
        self.stage = Stage::Ending { begun: phase + 1, until };
        Some(End { phase, grace })
    }

    /// True once, when the machine may go down. `tells` is true while the cluster is being told of some pod.
    pub(crate) fn is_over(&mut self, tells: bool, now: Instant) -> bool {
        let Stage::Telling { until } = self.stage else { return false };
        let is_over = !tells || now >= until;
        if is_over {
            self.stage = Stage::Over;
        }
        is_over
    }

    /// When there is something to be done that no event asks for.
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

    fn end(phase: usize, seconds: u64) -> Option<End> {
        Some(End { phase, grace: Duration::from_secs(seconds) })
    }

    #[test]
    fn a_pod_belongs_to_the_highest_phase_that_does_not_begin_above_it() {
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
    fn a_phase_begins_when_the_pods_of_the_one_before_have_ended() {
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
    fn pods_that_do_not_end_in_their_time_hold_up_nobody() {
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
    fn the_cluster_is_told_before_the_machine_goes_but_does_not_hold_it_up() {
        let mut one = progress(&[(0, 1)]);
        let now = Instant::now();
        one.begin(now);
        assert_eq!(one.next(&[], now), None);
        assert!(!one.is_over(true, now));
        assert!(one.is_over(false, now));
        assert!(one.cancel());
        one.begin(now);
        one.next(&[], now);
        assert_eq!(one.due(), Some(now + TELLING));
        assert!(one.is_over(true, now + TELLING));
    }

    #[test]
    fn a_shutdown_that_is_cancelled_ends_no_further_pod_and_another_one_begins_anew() {
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
