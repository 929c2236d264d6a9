//! What `coracle rollout` prints. Pure.

use serde_json::{Value, json};

use super::decide::{Figures, Sight, boards_word};
use super::plan::Subject;
use super::sights::DaemonPods;
use super::state::{State, Turn};
use super::store::Stored;
use crate::cli::pod_row::age;
use crate::cli::table::table;

/// One line about a rollout under way.
pub(super) fn progress_line(figures: &Figures) -> String {
    let Figures { boards, done, failed, changing, asleep, step, steps, target, .. } = figures;
    let step = step.min(steps);
    format!(
        "step {step} of {steps} ({target} of {}): {done} done, {changing} changing, {failed} failed, {asleep} asleep",
        boards_word(*boards)
    )
}

/// A rollout with its present figures.
pub(super) struct Report {
    pub(super) stored: Stored,
    pub(super) figures: Figures,
    pub(super) sights: Vec<Sight>,
    pub(super) pods: DaemonPods,
}

pub(super) fn list(reports: &[Report]) -> String {
    if reports.is_empty() {
        return "No rollouts.\n".to_owned();
    }
    let head = ["NAME", "PHASE", "STEP", "BOARDS", "DONE", "CHANGING", "FAILED", "ASLEEP", "SUBJECT"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(reports.iter().map(|report| {
        let Figures { boards, done, failed, changing, asleep, step, steps, .. } = &report.figures;
        let mut row = vec![report.stored.name.clone(), report.stored.state.phase.name().to_owned()];
        row.push(format!("{}/{steps}", step.min(steps)));
        row.extend([boards, done, changing, failed, asleep].map(u64::to_string));
        row.push(report.stored.plan.subject.to_string());
        row
    }));
    table(&rows)
}

/// One rollout, with each board that has not concluded well.
pub(super) fn details(report: &Report, now: i64) -> String {
    let Report { stored, figures, .. } = report;
    let State { phase, reason, .. } = &stored.state;
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    let mut text = format!(
        "Rollout:  {}\nSubject:  {}\nPhase:    {}{reason}\nBoards:   {}\n",
        stored.name,
        stored.plan.subject,
        phase.name(),
        progress_line(figures)
    );
    let rows = rows(report, now);
    if rows.len() > 1 {
        text += "\n";
        text += &table(&rows);
    }
    text
}

fn rows(report: &Report, now: i64) -> Vec<Vec<String>> {
    let mut rows = vec![["BOARD", "TURN", "SINCE", "RESTARTS", "WHY"].map(str::to_owned).to_vec()];
    for sight in &report.sights {
        let turn = report.stored.state.boards.get(&sight.name);
        let (word, since, why) = match turn {
            None if sight.is_awake => continue,
            Some(Turn::Done) => continue,
            None => ("Pending", None, "asleep"),
            Some(turn @ Turn::Changing(None)) => (turn.name(), None, "asleep since its change"),
            Some(turn @ Turn::Changing(since)) => (turn.name(), *since, ""),
            Some(turn @ Turn::Ahead) => (turn.name(), None, "asleep, finds its change"),
            Some(turn @ Turn::Failed(why)) => (turn.name(), None, why.as_str()),
        };
        let since = since.map_or_else(|| "-".to_owned(), |since| age(now.saturating_sub(since).max(0)));
        let restarts = report.pods.get(&sight.name).map_or_else(|| "-".to_owned(), |pod| pod.restarts.to_string());
        rows.push(vec![sight.name.clone(), word.to_owned(), since, restarts, why.to_owned()]);
    }
    rows
}

pub(super) fn to_json(report: &Report) -> Value {
    let Figures { boards, done, failed, changing, asleep, step, steps, target, .. } = &report.figures;
    json!({
        "name": report.stored.name,
        "phase": report.stored.state.phase.name(),
        "reason": report.stored.state.reason,
        "plan": report.stored.plan.to_json(),
        "boards": report.stored.state.to_json().get("boards"),
        "figures": {
            "boards": boards, "done": done, "changing": changing, "failed": failed, "asleep": asleep,
            "step": step.min(steps), "steps": steps, "target": target,
        },
    })
}

/// Two rollouts that would write to the same board.
pub(super) fn overlap_line(other: &str, subject: &Subject, board: &str) -> String {
    let kind = match subject {
        Subject::DaemonSet(_) => "the same DaemonSet",
        Subject::Agent(_) => "programs of the agent",
        Subject::Config(_) => "configurations of the agent",
    };
    format!("rollout {other} of {kind} is not over and has boards of this one, as {board}")
}

#[cfg(test)]
mod tests {
    use super::super::decide::Progress;
    use super::super::plan::plan;
    use super::*;

    fn report() -> Report {
        let mut state = State::new();
        state.boards.insert("b1".to_owned(), Turn::Done);
        state.boards.insert("b2".to_owned(), Turn::Changing(Some(940)));
        state.boards.insert("b3".to_owned(), Turn::Failed("pod d-x has failed".to_owned()));
        let sight = |name: &str, is_awake| Sight {
            name: name.to_owned(),
            is_awake,
            is_unavailable: false,
            progress: Progress::Absent,
        };
        let figures = Figures {
            boards: 5,
            done: 1,
            failed: 1,
            changing: 1,
            asleep: 1,
            step: 2,
            steps: 3,
            target: 4,
            waits_for_sleepers: false,
        };
        Report {
            stored: Stored {
                name: "r".to_owned(),
                version: "1".to_owned(),
                created: 0,
                plan: plan(1, "100%", "1"),
                state,
            },
            figures,
            sights: vec![
                sight("b1", true),
                sight("b2", true),
                sight("b3", true),
                sight("b4", false),
                sight("b5", true),
            ],
            pods: DaemonPods::new(),
        }
    }

    #[test]
    fn details_name_boards_that_are_under_way_failed_or_asleep() {
        let expected = "Rollout:  r\nSubject:  agent https://f/c\nPhase:    Running\n\
            Boards:   step 2 of 3 (4 of 5 boards): 1 done, 1 changing, 1 failed, 1 asleep\n\n\
            BOARD   TURN       SINCE   RESTARTS   WHY\n\
            b2      Changing   60s     -\n\
            b3      Failed     -       -          pod d-x has failed\n\
            b4      Pending    -       -          asleep\n";
        assert_eq!(details(&report(), 1000), expected);
    }

    #[test]
    fn list_has_a_line_for_each_rollout() {
        let text = list(&[report()]);
        assert!(
            text.ends_with("r      Running   2/3    5        1      1          1        1        agent https://f/c\n"),
            "{text}"
        );
        assert_eq!(list(&[]), "No rollouts.\n");
    }

    #[test]
    fn json_has_figures_plan_and_boards() {
        let json = to_json(&report());
        assert_eq!((&json["figures"]["step"], &json["boards"]["b1"]), (&json!(2), &json!("done")));
        assert_eq!(json["plan"]["maxUnavailable"], "1");
    }
}
