//! How far a rollout is: the boards that have had their turn. Pure.

use serde_json::{Map, Value, json};

use crate::types::sorted::SortedMap;
use crate::types::timestamp::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) phase: Phase,
    /// Why it stopped.
    pub(super) reason: String,
    /// Boards that have had their turn.
    pub(super) boards: SortedMap<String, Turn>,
}

/// Only `Running` writes anything for boards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Running,
    /// By its owner.
    Paused,
    /// Too many boards have failed, or what it rolls out has changed.
    Stopped,
    Aborted,
    Finished,
}

/// The position of one board. It is stored before its change is written, so that the next command repeats a write that a
/// killed one has not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It gets its change. `None`: it fell asleep meanwhile; else its time runs since this Unix second.
    Changing(Option<i64>),
    /// It sleeps, and finds its change when it wakes.
    Ahead,
    Done,
    Failed(String),
}

impl Phase {
    pub(super) const ALL: [(Self, &'static str); 5] = [
        (Self::Running, "Running"),
        (Self::Paused, "Paused"),
        (Self::Stopped, "Stopped"),
        (Self::Aborted, "Aborted"),
        (Self::Finished, "Finished"),
    ];

    pub(super) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(phase, _)| *phase == self).map_or("", |(_, name)| name)
    }

    pub(super) fn is_over(self) -> bool {
        matches!(self, Self::Aborted | Self::Finished)
    }
}

impl State {
    pub(super) fn new() -> Self {
        Self { phase: Phase::Running, reason: String::new(), boards: SortedMap::new() }
    }

    pub(super) fn count(&self, is_counted: impl Fn(&Turn) -> bool) -> u64 {
        self.boards.values().map(|turn| u64::from(is_counted(turn))).sum()
    }

    /// Goes on after a pause or a stop: boards that failed have their time once more.
    pub(super) fn resume(&mut self, now: i64) {
        self.phase = Phase::Running;
        self.reason.clear();
        for turn in self.boards.values_mut().filter(|turn| matches!(turn, Turn::Failed(_))) {
            *turn = Turn::Changing(Some(now));
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let boards = self.boards.iter().map(|(name, turn)| (name.clone(), turn.to_json()));
        let boards: Map<String, Value> = boards.collect();
        json!({ "phase": self.phase.name(), "reason": self.reason, "boards": boards })
    }

    /// `None` for what another version may have written.
    pub(super) fn from_json(state: &Value) -> Option<Self> {
        let phase = state.get("phase")?.as_str()?;
        let (phase, _) = Phase::ALL.into_iter().find(|(_, name)| *name == phase)?;
        let boards = state.get("boards")?.as_object()?.iter();
        let boards = boards.map(|(name, turn)| Some((name.clone(), Turn::from_json(turn)?)));
        let reason = state.get("reason")?.as_str()?.to_owned();
        Some(Self { phase, reason, boards: boards.collect::<Option<_>>()? })
    }
}

impl Turn {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Changing(_) => "Changing",
            Self::Ahead => "Ahead",
            Self::Done => "Done",
            Self::Failed(_) => "Failed",
        }
    }

    /// Short: there are thousands in one object. A time is that of a board that is changing.
    fn to_json(&self) -> Value {
        match self {
            Self::Changing(None) => json!("asleep"),
            Self::Changing(Some(since)) => json!(Timestamp::from_second(*since).unwrap_or_default().to_string()),
            Self::Ahead => json!("ahead"),
            Self::Done => json!("done"),
            Self::Failed(reason) => json!({ "failed": reason }),
        }
    }

    fn from_json(turn: &Value) -> Option<Self> {
        if let Some(reason) = turn.get("failed") {
            return Some(Self::Failed(reason.as_str()?.to_owned()));
        }
        Some(match turn.as_str()? {
            "asleep" => Self::Changing(None),
            "ahead" => Self::Ahead,
            "done" => Self::Done,
            since => Self::Changing(Some(since.parse::<Timestamp>().ok()?.as_second())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_state_is_read_back() {
        for (phase, _) in Phase::ALL {
            let turns =
                [Turn::Changing(None), Turn::Changing(Some(7)), Turn::Ahead, Turn::Done, Turn::Failed("x".to_owned())];
            let boards = turns.into_iter().enumerate().map(|(at, turn)| (format!("b{at}"), turn)).collect();
            let state = State { phase, reason: "y".to_owned(), boards };
            assert_eq!(State::from_json(&state.to_json()), Some(state));
        }
        for other in [json!({}), json!({ "phase": "Other", "reason": "", "boards": {} })] {
            assert_eq!(State::from_json(&other), None);
        }
    }

    #[test]
    fn five_thousand_boards_fit_into_an_object() {
        let mut state = State::new();
        for at in 0..5000 {
            state.boards.insert(format!("board-{at:05}.site.example"), Turn::Changing(Some(1_800_000_000)));
        }
        let stored = state.to_json().to_string().len();
        assert!(stored < 512 << 10, "{stored}");
    }
}
