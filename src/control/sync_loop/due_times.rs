//! The due times of the sync loop's parts, and the guard against a spinning loop. Pure.
//!
//! A part that was due before a round and is still due after it has made no progress. Without a hold-off, the loop
//! would run round after round without waiting and starve the other tasks of its thread.

use std::fmt;
use std::time::{Duration, Instant};

/// A part of the sync loop that has a due time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    ActiveDeadlines,
    HostsFiles,
    Jobs,
    NodePressure,
    ObjectWatch,
    PodWorkers,
    Readmissions,
    Shutdown,
    StatusManager,
    Versions,
}

/// One due time for each part, in the order of [`Part`]'s variants. `None`: only events concern the part.
pub(super) type Due = [(Part, Option<Instant>); 10];

/// The hold-offs of the parts, and the number of rounds in a row without a wait.
#[derive(Debug, Default)]
pub(super) struct DueTimes {
    held_off_until: [Option<Instant>; 10],
    rounds_without_waiting: u32,
    /// Parts whose stall was already logged.
    stalled: Vec<Part>,
}

/// How long a stalled part is ignored.
const STALLED_PART_HOLD_OFF: Duration = Duration::from_secs(1);

/// Rounds in a row without a wait that count as a spin. A node that starts with a hundred pods needs a few hundred.
pub(crate) const MAX_ROUNDS_WITHOUT_WAIT: u32 = 10_000;

impl DueTimes {
    /// When the next round is due without an event.
    pub(super) fn next(&self, due: &Due) -> Option<Instant> {
        let moments = due.iter().zip(self.held_off_until).filter_map(|((_, due), held)| {
            let due = (*due)?;
            Some(held.map_or(due, |held| held.max(due)))
        });
        moments.min()
    }

    /// Compares the due times before and after a round at `now`. Returns the stalled parts: due before the round, and
    /// due after it at a time that has passed.
    pub(super) fn after_round(&mut self, before: &Due, after: &Due, now: Instant) -> Vec<Part> {
        let mut stalled = Vec::new();
        let parts = before.iter().zip(after).zip(&mut self.held_off_until);
        for (((_, before), (part, after)), held) in parts {
            let has_passed = |due: &Option<Instant>| due.is_some_and(|due| due <= now);
            let is_stalled = has_passed(before) && has_passed(after);
            let was_asked = held.is_none_or(|until| until <= now);
            if is_stalled && was_asked {
                *held = now.checked_add(STALLED_PART_HOLD_OFF);
                stalled.push(*part);
            } else if !is_stalled {
                *held = None;
            }
        }
        stalled
    }

    /// True on the first stall of the part, which is logged.
    pub(super) fn is_first_stall(&mut self, part: Part) -> bool {
        let is_first = !self.stalled.contains(&part);
        if is_first {
            self.stalled.push(part);
        }
        is_first
    }

    /// The first part that is due at `now` and not held off.
    pub(super) fn due_part(&self, due: &Due, now: Instant) -> Option<Part> {
        let parts = due.iter().zip(self.held_off_until);
        let is_due = |due: Option<Instant>, held: Option<Instant>| {
            due.is_some_and(|time| time <= now) && held.is_none_or(|until| until <= now)
        };
        parts.into_iter().find(|((_, time), held)| is_due(*time, *held)).map(|((part, _), _)| *part)
    }

    /// Counts a round. True if the loop has not waited for [`MAX_ROUNDS_WITHOUT_WAIT`] rounds.
    pub(super) fn spins(&mut self, waited: bool) -> bool {
        self.rounds_without_waiting = if waited { 0 } else { self.rounds_without_waiting.saturating_add(1) };
        self.rounds_without_waiting >= MAX_ROUNDS_WITHOUT_WAIT
    }
}

impl Part {
    /// The part's name in metrics and logs.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ActiveDeadlines => "active_deadlines",
            Self::HostsFiles => "hosts_files",
            Self::Jobs => "jobs",
            Self::NodePressure => "node_pressure",
            Self::ObjectWatch => "object_watch",
            Self::PodWorkers => "pod_workers",
            Self::Readmissions => "readmissions",
            Self::Shutdown => "shutdown",
            Self::StatusManager => "status_manager",
            Self::Versions => "versions",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: [Part; 10] = [
        Part::ActiveDeadlines,
        Part::HostsFiles,
        Part::Jobs,
        Part::NodePressure,
        Part::ObjectWatch,
        Part::PodWorkers,
        Part::Readmissions,
        Part::Shutdown,
        Part::StatusManager,
        Part::Versions,
    ];
    const SECOND: Duration = Duration::from_secs(1);

    /// Due times where only the status manager is due.
    fn due(due_time: Option<Instant>) -> Due {
        PARTS.map(|part| (part, due_time.filter(|_| part == Part::StatusManager)))
    }

    #[test]
    fn stalled_part_is_held_off_for_a_second() {
        let (mut times, now) = (DueTimes::default(), Instant::now());
        let passed = due(now.checked_sub(SECOND));
        assert_eq!(times.next(&passed), now.checked_sub(SECOND));
        assert_eq!(times.after_round(&passed, &passed, now), [Part::StatusManager]);
        assert_eq!(times.next(&passed), Some(now + SECOND));
    }

    #[test]
    fn held_off_part_counts_as_stalled_once() {
        let (mut times, now) = (DueTimes::default(), Instant::now());
        let passed = due(Some(now));
        assert_eq!(times.after_round(&passed, &passed, now).len(), 1);
        assert_eq!(times.after_round(&passed, &passed, now + SECOND / 2), []);
        assert_eq!(times.after_round(&passed, &passed, now + SECOND).len(), 1);
    }

    #[test]
    fn part_that_moves_its_due_time_is_not_stalled() {
        let (mut times, now) = (DueTimes::default(), Instant::now());
        let (passed, later) = (due(Some(now)), due(Some(now + SECOND)));
        assert_eq!(times.after_round(&passed, &later, now), []);
        assert_eq!(times.after_round(&passed, &due(None), now), []);
        assert_eq!(times.next(&later), Some(now + SECOND));
    }

    #[test]
    fn work_due_during_a_round_is_not_stalled() {
        let (mut times, now) = (DueTimes::default(), Instant::now());
        assert_eq!(times.after_round(&due(None), &due(Some(now)), now), []);
        assert_eq!(times.next(&due(Some(now))), Some(now));
    }

    #[test]
    fn progress_ends_the_hold_off() {
        let (mut times, now) = (DueTimes::default(), Instant::now());
        let passed = due(Some(now));
        times.after_round(&passed, &passed, now);
        times.after_round(&passed, &due(None), now);
        assert_eq!(times.next(&passed), Some(now));
    }

    #[test]
    fn held_off_part_is_not_due() {
        let (mut times, now) = (DueTimes::default(), Instant::now());
        let both = PARTS.map(|part| (part, Some(now).filter(|_| matches!(part, Part::StatusManager | Part::Versions))));
        assert_eq!(times.due_part(&both, now), Some(Part::StatusManager));
        let status = due(Some(now));
        times.after_round(&status, &status, now);
        assert_eq!(times.due_part(&both, now), Some(Part::Versions));
        assert_eq!(times.due_part(&status, now), None);
        assert_eq!(times.due_part(&status, now + SECOND), Some(Part::StatusManager));
    }

    #[test]
    fn ten_thousand_rounds_without_waiting_are_a_spin() {
        let mut times = DueTimes::default();
        assert!((1..MAX_ROUNDS_WITHOUT_WAIT).all(|_| !times.spins(false)));
        assert!(!times.spins(true), "one wait in between");
        assert!((1..MAX_ROUNDS_WITHOUT_WAIT).all(|_| !times.spins(false)));
        assert!(times.spins(false));
    }
}
