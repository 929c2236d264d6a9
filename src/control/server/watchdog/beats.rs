//! Decides when watchdogs are petted: while the sync loop completes rounds. Pure.
//!
//! ```text
//!             moves                      moves
//!   Idle -----------> Asked <---------------------------+
//!                       | no round                      |
//!                       +---------> Late ---------> Stalled
//!                                         no round
//! ```
//!
//! Checks are half an interval apart, and an eighth once a round is missing. A stall is thus detected five eighths of
//! the interval after the last petting, which leaves time to record it.

use std::time::{Duration, Instant};

/// The state between two checks. `rounds` is the number of rounds when the check asked the loop for one more, at `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BeatState {
    Idle,
    Asked {
        rounds: u32,
        at: Instant,
    },
    /// One check found no progress. The whole process may have been suspended.
    Late {
        rounds: u32,
        at: Instant,
    },
    Stalled {
        rounds: u32,
        at: Instant,
    },
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BeatCheck {
    /// The loop made progress: pet, and ask again. `stalled`: how long it had not, if a stall was reported.
    Progress {
        stalled: Option<Duration>,
    },
    Late,
    /// No progress: the first check of a stall.
    Stalled {
        since: Instant,
    },
    /// The stall continues.
    StillStalled,
}

impl BeatState {
    pub(super) fn check(self, now_done: u32, now: Instant) -> (Self, BeatCheck) {
        let waiting = Self::Asked { rounds: now_done, at: now };
        match self {
            Self::Idle => (waiting, BeatCheck::Progress { stalled: None }),
            Self::Asked { rounds, .. } | Self::Late { rounds, .. } if rounds != now_done => {
                (waiting, BeatCheck::Progress { stalled: None })
            }
            Self::Stalled { rounds, at } if rounds != now_done => {
                (waiting, BeatCheck::Progress { stalled: Some(now.saturating_duration_since(at)) })
            }
            Self::Asked { rounds, at } => (Self::Late { rounds, at }, BeatCheck::Late),
            Self::Late { rounds, at } => (Self::Stalled { rounds, at }, BeatCheck::Stalled { since: at }),
            Self::Stalled { .. } => (self, BeatCheck::StillStalled),
        }
    }
}

impl BeatCheck {
    /// The wait until the next check.
    pub(super) fn next(self, half: Duration) -> Duration {
        match self {
            Self::Progress { .. } => half,
            Self::Late | Self::Stalled { .. } | Self::StillStalled => half / 4,
        }
    }
}

/// Whether both the sync loop and another task of its thread have made progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Rounds and turns when they were asked.
    at_request: (u32, u32),
    moves: u32,
}

impl Progress {
    /// Asks both. `rounds` and `other_task_runs` are their current counts.
    pub(super) fn request_beats(&mut self, rounds: u32, other_task_runs: u32) {
        self.at_request = (rounds, other_task_runs);
    }

    /// Number of times that both have made progress since they were asked.
    pub(super) fn moves(&mut self, rounds: u32, other_task_runs: u32) -> u32 {
        if rounds != self.at_request.0 && other_task_runs != self.at_request.1 {
            self.at_request = (rounds, other_task_runs);
            self.moves = self.moves.wrapping_add(1);
        }
        self.moves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAT_INTERVAL: Duration = Duration::from_secs(60);

    /// The checks of a loop that completed a round before each `true`, with their times.
    fn looks(moves: &[bool]) -> Vec<(Duration, BeatCheck)> {
        let start = Instant::now();
        let (mut beats, mut rounds, mut now) = (BeatState::Idle, u32::MAX, start);
        let mut looks = Vec::new();
        for &moves in moves {
            rounds = rounds.wrapping_add(u32::from(moves));
            let (next, look) = beats.check(rounds, now);
            looks.push((now - start, look));
            beats = next;
            now += look.next(BEAT_INTERVAL / 2);
        }
        looks
    }

    /// Every sequence of this length.
    fn sequences(length: u32) -> impl Iterator<Item = Vec<bool>> {
        (0..1u32 << length).map(move |bits| (0..length).map(|bit| bits >> bit & 1 == 1).collect())
    }

    #[test]
    fn no_petting_without_a_round_after_the_first() {
        for sequence in sequences(10) {
            for (moves, (_, look)) in sequence.iter().zip(looks(&sequence)).skip(1) {
                assert_eq!(*moves, matches!(look, BeatCheck::Progress { .. }), "{sequence:?}");
            }
        }
        assert_eq!(looks(&[false]), [(Duration::ZERO, BeatCheck::Progress { stalled: None })]);
    }

    #[test]
    fn moving_loop_is_petted_every_half_interval() {
        let petted: Vec<u64> = looks(&[true; 4]).iter().map(|(at, _)| at.as_secs()).collect();
        assert_eq!(petted, [0, 30, 60, 90]);
    }

    #[test]
    fn each_stall_is_reported_once_before_the_interval_ends() {
        for sequence in sequences(10) {
            let mut petted = Duration::ZERO;
            let mut told = 0;
            for (at, look) in looks(&sequence) {
                match look {
                    BeatCheck::Progress { stalled } => {
                        assert_eq!(stalled, (told == 1).then_some(at - petted), "{sequence:?}");
                        (petted, told) = (at, 0);
                    }
                    BeatCheck::Stalled { .. } => {
                        told += 1;
                        assert!(at - petted < BEAT_INTERVAL * 2 / 3, "{sequence:?}");
                    }
                    BeatCheck::Late | BeatCheck::StillStalled => {}
                }
                assert!(told <= 1, "{sequence:?}");
            }
        }
    }

    #[test]
    fn suspended_process_has_not_stalled() {
        let late =
            [(Duration::ZERO, true), (BEAT_INTERVAL * 10, false), (BEAT_INTERVAL * 10 + BEAT_INTERVAL / 8, true)];
        let start = Instant::now();
        let (mut beats, mut rounds) = (BeatState::Idle, 0);
        for (at, moves) in late {
            rounds += u32::from(moves);
            let (next, look) = beats.check(rounds, start + at);
            assert!(!matches!(look, BeatCheck::Stalled { .. }));
            beats = next;
        }
        assert!(matches!(beats, BeatState::Asked { .. }));
    }

    #[test]
    fn loop_that_starves_other_tasks_makes_no_progress() {
        let mut progress = Progress::default();
        progress.request_beats(5, 2);
        assert_eq!(progress.moves(9000, 2), 0, "rounds, but no turn of another task");
        assert_eq!(progress.moves(9001, 3), 1);
        progress.request_beats(9001, 3);
        assert_eq!(progress.moves(9001, 4), 1, "a turn, but no round");
        assert_eq!(progress.moves(9002, 4), 2);
    }
}
