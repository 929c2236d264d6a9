//! When a watchdog is petted: while the sync loop goes on doing rounds. Pure.
//!
//! ```text
//!             moves                      moves
//!   Unasked --------> Asked <---------------------------+
//!                       | no round                      |
//!                       +---------> Late ---------> Stalled
//!                                         no round
//! ```
//!
//! Looks come at half of the interval, and four times as often once a round is missing. So a loop that stands still is
//! found out when five eighths of the interval are over since the last petting, and there is time to write it down.

use std::time::{Duration, Instant};

/// What the thread knows between two looks; `rounds` is how many the loop had done when it was asked, `at` when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beats {
    Unasked,
    Asked {
        rounds: u32,
        at: Instant,
    },
    /// Once more than it should the loop had done nothing. It may be that this whole process was held up.
    Late {
        rounds: u32,
        at: Instant,
    },
    Stalled {
        rounds: u32,
        at: Instant,
    },
}

/// What a look at the number of rounds comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// The loop has answered: pet, and ask again. `stalled`: for how long it had not, where that was told.
    Moves {
        stalled: Option<Duration>,
    },
    Late,
    /// It did not answer, seen for the first time.
    Stalled {
        since: Instant,
    },
    /// As before.
    Still,
}

impl Beats {
    pub(super) fn look(self, now_done: u32, now: Instant) -> (Self, Look) {
        let asked = Self::Asked { rounds: now_done, at: now };
        match self {
            Self::Unasked => (asked, Look::Moves { stalled: None }),
            Self::Asked { rounds, .. } | Self::Late { rounds, .. } if rounds != now_done => {
                (asked, Look::Moves { stalled: None })
            }
            Self::Stalled { rounds, at } if rounds != now_done => {
                (asked, Look::Moves { stalled: Some(now.saturating_duration_since(at)) })
            }
            Self::Asked { rounds, at } => (Self::Late { rounds, at }, Look::Late),
            Self::Late { rounds, at } => (Self::Stalled { rounds, at }, Look::Stalled { since: at }),
            Self::Stalled { .. } => (self, Look::Still),
        }
    }
}

impl Look {
    /// How long to wait for the next one.
    pub(super) fn next(self, half: Duration) -> Duration {
        match self {
            Self::Moves { .. } => half,
            Self::Late | Self::Stalled { .. } | Self::Still => half / 4,
        }
    }
}

/// Whether both have moved since they were asked: the sync loop, and another task of its thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Rounds and turns when they were asked.
    asked: (u32, u32),
    moves: u32,
}

impl Progress {
    /// They are asked now; `rounds` and `turns` are how many there were.
    pub(super) fn ask(&mut self, rounds: u32, turns: u32) {
        self.asked = (rounds, turns);
    }

    /// How often both have moved after they were asked.
    pub(super) fn moves(&mut self, rounds: u32, turns: u32) -> u32 {
        if rounds != self.asked.0 && turns != self.asked.1 {
            self.asked = (rounds, turns);
            self.moves = self.moves.wrapping_add(1);
        }
        self.moves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(60);

    /// The looks at a loop that has done a round before each `true`, with the moments of the looks.
    fn looks(moves: &[bool]) -> Vec<(Duration, Look)> {
        let start = Instant::now();
        let (mut beats, mut rounds, mut now) = (Beats::Unasked, u32::MAX, start);
        let mut looks = Vec::new();
        for &moves in moves {
            rounds = rounds.wrapping_add(u32::from(moves));
            let (next, look) = beats.look(rounds, now);
            looks.push((now - start, look));
            beats = next;
            now += look.next(INTERVAL / 2);
        }
        looks
    }

    /// Every sequence of this length.
    fn sequences(length: u32) -> impl Iterator<Item = Vec<bool>> {
        (0..1u32 << length).map(move |bits| (0..length).map(|bit| bits >> bit & 1 == 1).collect())
    }

    #[test]
    fn after_the_first_time_nothing_is_petted_without_a_round() {
        for sequence in sequences(10) {
            for (moves, (_, look)) in sequence.iter().zip(looks(&sequence)).skip(1) {
                assert_eq!(*moves, matches!(look, Look::Moves { .. }), "{sequence:?}");
            }
        }
        assert_eq!(looks(&[false]), [(Duration::ZERO, Look::Moves { stalled: None })]);
    }

    #[test]
    fn a_loop_that_moves_is_petted_at_each_half_of_the_interval() {
        let petted: Vec<u64> = looks(&[true; 4]).iter().map(|(at, _)| at.as_secs()).collect();
        assert_eq!(petted, [0, 30, 60, 90]);
    }

    #[test]
    fn each_stall_is_told_once_and_well_before_the_interval_since_the_last_petting_is_over() {
        for sequence in sequences(10) {
            let mut petted = Duration::ZERO;
            let mut told = 0;
            for (at, look) in looks(&sequence) {
                match look {
                    Look::Moves { stalled } => {
                        assert_eq!(stalled, (told == 1).then_some(at - petted), "{sequence:?}");
                        (petted, told) = (at, 0);
                    }
                    Look::Stalled { .. } => {
                        told += 1;
                        assert!(at - petted < INTERVAL * 2 / 3, "{sequence:?}");
                    }
                    Look::Late | Look::Still => {}
                }
                assert!(told <= 1, "{sequence:?}");
            }
        }
    }

    #[test]
    fn a_process_that_was_held_up_as_a_whole_has_not_stalled() {
        let late = [(Duration::ZERO, true), (INTERVAL * 10, false), (INTERVAL * 10 + INTERVAL / 8, true)];
        let start = Instant::now();
        let (mut beats, mut rounds) = (Beats::Unasked, 0);
        for (at, moves) in late {
            rounds += u32::from(moves);
            let (next, look) = beats.look(rounds, start + at);
            assert!(!matches!(look, Look::Stalled { .. }));
            beats = next;
        }
        assert!(matches!(beats, Beats::Asked { .. }));
    }

    #[test]
    fn a_loop_that_lets_no_other_task_run_does_not_move() {
        let mut progress = Progress::default();
        progress.ask(5, 2);
        assert_eq!(progress.moves(9000, 2), 0, "rounds, but no turn of another task");
        assert_eq!(progress.moves(9001, 3), 1);
        progress.ask(9001, 3);
        assert_eq!(progress.moves(9001, 4), 1, "a turn, but no round");
        assert_eq!(progress.moves(9002, 4), 2);
    }
}
