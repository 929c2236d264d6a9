//! The next step of a rollout. Pure: boards and time are arguments.
//!
//! ```text
//!              its turn, awake            healthy
//!   (none) ---------------------> Changing -------> Done
//!      |                           ^    | rejected, or awake and not healthy in time
//!      | last step, asleep, ahead  |    '-----------> Failed
//!      '---------------------> Ahead: awake
//! ```
//!
//! A board that sleeps while it is changing keeps its place among the unavailable ones: the change may be why it is
//! silent. So a change that silences boards costs as many as may be unavailable at once, and no more.

use super::plan::Plan;
use super::state::{Phase, State, Turn};
use crate::types::sorted::SortedSet;

/// One board, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sight {
    pub(super) name: String,
    pub(super) is_awake: bool,
    /// It does not do its work, whatever the rollout.
    pub(super) is_unavailable: bool,
    pub(super) progress: Progress,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The change is not written.
    Absent,
    /// Written, without a result.
    Written,
    Healthy,
    /// Says why.
    Rejected(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    /// Stored before `writes` are made.
    pub(super) state: State,
    /// Boards whose change has to be written now. Repeating it has no effect.
    pub(super) writes: Vec<String>,
    pub(super) figures: Figures,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) boards: u64,
    pub(super) done: u64,
    pub(super) failed: u64,
    pub(super) changing: u64,
    /// Boards without the change that sleep, and those that fell asleep with it.
    pub(super) asleep: u64,
    /// The step, from 1, of `steps`, and how many boards have the change at its end.
    pub(super) step: usize,
    pub(super) steps: usize,
    pub(super) target: u64,
    /// Nothing happens until a board wakes.
    pub(super) waits_for_sleepers: bool,
}

/// `sights` are the boards of the rollout in their order.
pub(super) fn decide(plan: &Plan, state: &State, sights: &[Sight], now: i64) -> Decision {
    let mut next = state.clone();
    if !next.phase.is_over() {
        follow(plan, &mut next, sights, now);
    }
    if next.phase == Phase::Running {
        let failed: Vec<_> = next.boards.iter().filter(|(_, turn)| matches!(turn, Turn::Failed(_))).collect();
        if let (true, Some((name, Turn::Failed(why)))) = (count(failed.len()) >= plan.stop_after, failed.last()) {
            next.reason = format!("{} failed, as {name}: {why}", boards_word(count(failed.len())));
            next.phase = Phase::Stopped;
        }
    }
    if next.phase == Phase::Running && sights.is_empty() {
        next.phase = Phase::Stopped;
        next.reason = "no node has these labels and a pod of the DaemonSet, if it is about one".to_owned();
    }
    if next.phase == Phase::Running {
        admit(plan, &mut next, sights, now);
    }
    let figures = figures(plan, &next, sights);
    if next.phase == Phase::Running && figures.step > figures.steps {
        next.phase = Phase::Finished;
    }
    let writes = match next.phase {
        Phase::Running => writes(&next, sights),
        _ => Vec::new(),
    };
    Decision { state: next, writes, figures }
}

/// Brings the turns of the boards up to date.
fn follow(plan: &Plan, state: &mut State, sights: &[Sight], now: i64) {
    let names: SortedSet<&str> = sights.iter().map(|sight| sight.name.as_str()).collect();
    state.boards.retain(|name, _| names.contains(name.as_str()));
    for sight in sights {
        match next_turn(plan, state.boards.get(&sight.name), sight, now) {
            Some(turn) => drop(state.boards.insert(sight.name.clone(), turn)),
            None => drop(state.boards.remove(&sight.name)),
        }
    }
}

fn next_turn(plan: &Plan, turn: Option<&Turn>, sight: &Sight, now: i64) -> Option<Turn> {
    let within = i64::try_from(plan.within.as_secs()).unwrap_or(i64::MAX);
    match (turn, &sight.progress) {
        (_, Progress::Rejected(why)) => Some(Turn::Failed(why.clone())),
        (_, Progress::Healthy) => Some(Turn::Done),
        // Somebody else has written it, or a former rollout ahead of time.
        (None, Progress::Written) if sight.is_awake => Some(Turn::Changing(Some(now))),
        (None, Progress::Written) => Some(Turn::Ahead),
        (None, Progress::Absent) => None,
        // It woke before its change was written, and has its turn as all others.
        (Some(Turn::Ahead), Progress::Absent) if sight.is_awake => None,
        (Some(Turn::Changing(_)), _) if !sight.is_awake => Some(Turn::Changing(None)),
        (Some(Turn::Changing(Some(since))), _) if now.saturating_sub(*since) > within => {
            Some(Turn::Failed(format!("not healthy within {} s", plan.within.as_secs())))
        }
        (Some(Turn::Changing(None) | Turn::Ahead), _) if sight.is_awake => Some(Turn::Changing(Some(now))),
        (Some(turn), _) => Some(turn.clone()),
    }
}

/// Gives more boards their turn.
fn admit(plan: &Plan, state: &mut State, sights: &[Sight], now: i64) {
    let total = count(sights.len());
    let targets = plan.targets(total);
    let concluded = state.count(is_concluded);
    let Some(target) = targets.iter().copied().find(|target| *target > concluded) else { return };
    let mut places = target.saturating_sub(count(state.boards.len()));
    let is_changing = |sight: &Sight| matches!(state.boards.get(&sight.name), Some(Turn::Changing(_)));
    let unavailable = sights.iter().filter(|sight| is_changing(sight) || sight.is_awake && sight.is_unavailable);
    let mut spare = plan.max_unavailable(total).saturating_sub(count(unavailable.count()));
    let mut is_idle = !state.boards.values().any(|turn| matches!(turn, Turn::Changing(_)));
    for sight in sights.iter().filter(|sight| sight.is_awake && sight.progress == Progress::Absent) {
        if state.boards.contains_key(&sight.name) {
            continue;
        }
        is_idle = false;
        // A board that does not work anyway costs nothing more.
        if places == 0 || (spare == 0 && !sight.is_unavailable) {
            continue;
        }
        places -= 1;
        spare = spare.saturating_sub(u64::from(!sight.is_unavailable));
        state.boards.insert(sight.name.clone(), Turn::Changing(Some(now)));
    }
    if plan.is_ahead && is_idle && targets.last() == Some(&target) {
        let asleep = sights.iter().filter(|sight| !sight.is_awake && sight.progress == Progress::Absent);
        for sight in asleep {
            if places > 0 && !state.boards.contains_key(&sight.name) {
                places -= 1;
                state.boards.insert(sight.name.clone(), Turn::Ahead);
            }
        }
    }
}

fn writes(state: &State, sights: &[Sight]) -> Vec<String> {
    let absent = sights.iter().filter(|sight| sight.progress == Progress::Absent);
    let due = absent.filter(|sight| match state.boards.get(&sight.name) {
        Some(Turn::Changing(_)) => sight.is_awake,
        Some(Turn::Ahead) => true,
        Some(Turn::Done | Turn::Failed(_)) | None => false,
    });
    due.map(|sight| sight.name.clone()).collect()
}

fn figures(plan: &Plan, state: &State, sights: &[Sight]) -> Figures {
    let turn = |sight: &Sight| state.boards.get(&sight.name);
    let amount = |is_counted: &dyn Fn(&Sight) -> bool| count(sights.iter().filter(|sight| is_counted(sight)).count());
    let targets = plan.targets(count(sights.len()));
    let concluded = state.count(is_concluded);
    let at = targets.iter().position(|target| *target > concluded).unwrap_or(targets.len());
    let waits = |sight: &Sight| turn(sight).is_none_or(|turn| !is_concluded(turn));
    let target = targets.get(at).or(targets.last()).copied().unwrap_or_default();
    // Without a place, a board that is awake waits for the sleeping one that has it.
    let has_places = count(state.boards.len()) < target;
    let moves = |sight: &Sight| sight.is_awake && waits(sight) && (has_places || turn(sight).is_some());
    Figures {
        boards: count(sights.len()),
        done: state.count(|turn| *turn == Turn::Done),
        failed: state.count(|turn| matches!(turn, Turn::Failed(_))),
        changing: state.count(|turn| matches!(turn, Turn::Changing(Some(_)))),
        asleep: amount(&|sight| !sight.is_awake && waits(sight)),
        step: at + 1,
        steps: targets.len(),
        target,
        waits_for_sleepers: amount(&moves) == 0 && at < targets.len(),
    }
}

fn is_concluded(turn: &Turn) -> bool {
    matches!(turn, Turn::Done | Turn::Failed(_))
}

pub(super) fn boards_word(boards: u64) -> String {
    if boards == 1 { "1 board".to_owned() } else { format!("{boards} boards") }
}

pub(super) fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
