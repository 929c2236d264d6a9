//! `coracle rollout`: a change for a fleet, board by board, that waits for boards that sleep.
//!
//! ```text
//!   plan.rs       what, where, in which steps                                      pure
//!   state.rs      how far it is                                                    pure
//!   sights.rs     what the API's objects say of each board                         pure
//!   decide.rs     the next step                                                    pure
//!   store.rs      the ConfigMap with plan and state
//!   observe.rs    reads boards, makes their writes
//!   run.rs        the rounds
//!   report.rs     tables and JSON                                                  pure
//!   rights.rs     roles for RBAC                                                   pure
//! ```

mod decide;
mod observe;
mod plan;
mod report;
mod rights;
mod run;
mod sights;
mod state;
mod store;

use std::process::ExitCode;
use std::time::Duration;

use observe::{DaemonSet, Picture};
use plan::{DaemonSetName, Subject};
use report::Report;
use run::{Ending, Run};
use state::{Phase, State};
use store::{ApiWrite, Obstacle, Stored};

use super::age::Age;
use super::command_table::Rollout;
use super::fleet::{Operator, boards, eprint_line};
use super::outputs::StatusOutput;
use super::{DEGRADED_STATUS, failed, misused, print};
use crate::platform::host::clock;
use crate::platform::rt;
use crate::types::api::to_yaml;

pub(super) use plan::{Amount, Order, Percentages, Plan};

/// Boards that may fail before the rollout stops, unless `--stop-after` says otherwise.
const STOP_AFTER_BOARDS: u64 = 1;
const BOARD_TIMEOUT: Duration = Duration::from_secs(600);
const SETTLE_TIME: Duration = Duration::from_secs(30);
const ACTIONS: &str = "expected start NAME, status [NAME], pause NAME, resume NAME, abort NAME or rights [USER]";

pub(super) fn run(command: &Rollout) -> ExitCode {
    let words: Vec<&str> = command.words.iter().map(String::as_str).collect();
    if let ["rights", user @ ..] = words.as_slice() {
        return print(&rights::rights(&command.namespace, user.first().copied()));
    }
    if let Some(line) = misplaced(command, words.first().copied().unwrap_or_default()) {
        return misused(&line);
    }
    let mut operator = Operator::new(command.kubeconfig.as_deref(), command.context.as_deref());
    let done = rt::block_on(async {
        match words.as_slice() {
            ["start", name] => start(&mut operator, command, name).await,
            ["status"] => status(&mut operator, command, None).await,
            ["status", name] => status(&mut operator, command, Some(name)).await,
            ["pause", name] => change(&mut operator, command, name, Phase::Paused).await,
            ["abort", name] => change(&mut operator, command, name, Phase::Aborted).await,
            ["resume", name] => resume(&mut operator, command, name).await,
            ["undo", ..] => Ok(misused(UNDO)),
            _ => Ok(misused(&format!("rollout: {ACTIONS}, found {:?}", words.join(" ")))),
        }
    });
    if command.traffic {
        eprint_line(&operator.cost());
    }
    done.unwrap_or_else(|obstacle| failed(&format!("rollout: {}", obstacle.line)))
}

const UNDO: &str = "rollout undo: a rollout has no way back of its own: kubectl rollout undo daemonset/NAME restores the former \
                    template, and a new rollout takes it to the boards; another configuration is a rollout too; coracle \
                    rollout undo deployment/NAME and coracle rollback POD are for pods of this board";

/// A flag that the action would ignore.
fn misplaced(command: &Rollout, action: &str) -> Option<String> {
    let of_plan = [
        ("--daemonset", command.daemonset.is_some()),
        ("--agent", command.agent.is_some()),
        ("--config", command.config.is_some()),
        ("--selector", command.selector.is_some()),
        ("--first", command.first.is_some()),
        ("--then", command.then.is_some()),
        ("--max-unavailable", command.max_unavailable.is_some()),
        ("--within", command.within.is_some()),
        ("--settle", command.settle.is_some()),
        ("--order", command.order.is_some()),
    ];
    let of_rounds =
        [("--stop-after", command.stop_after.is_some()), ("--ahead", command.ahead), ("--wait", command.wait)];
    let (mut refused, why) = match action {
        "start" => return None,
        "resume" => (of_plan.to_vec(), "the plan stays as it was started"),
        _ => ([&of_plan[..], &of_rounds].concat(), "it is for start and resume"),
    };
    refused.retain(|(_, is_given)| *is_given);
    refused.first().map(|(flag, _)| format!("rollout {action}: {flag}: {why}"))
}

async fn start(operator: &mut Operator, command: &Rollout, name: &str) -> Result<ExitCode, Obstacle> {
    let plan = match plan(operator, command).await? {
        Ok(plan) => plan,
        Err(line) => return Ok(misused(&format!("rollout start: {line}"))),
    };
    let stored = store::read(operator, &command.namespace, name).await?;
    let fresh = State::new();
    let write = match &stored {
        None => store::creation(&command.namespace, name, &plan, &fresh),
        Some(stored) if stored.plan == plan && stored.state.phase != Phase::Aborted => {
            return match stored.state.phase {
                // The command that began it has ended.
                Phase::Running | Phase::Finished => go_on(operator, command, name).await,
                phase => Err(Obstacle::lasting(format!(
                    "{name} is {}: {}coracle rollout resume {name} goes on",
                    phase.name(),
                    reason(&stored.state.reason)
                ))),
            };
        }
        Some(stored) if stored.state.phase.is_over() => stored.replace(&command.namespace, &plan, &fresh),
        Some(stored) => {
            let line = format!("{name} has another plan and is {}: abort it first", stored.state.phase.name());
            return Err(Obstacle::lasting(line));
        }
    };
    if let Some(line) = overlap(operator, command, name, &plan, None).await? {
        return Err(Obstacle::lasting(line));
    }
    if command.dry_run {
        return show(operator, &plan, name, &fresh, &write).await;
    }
    match write.send(operator).await {
        Ok(_) => {}
        // Another operator was faster; the next lines see what is stored.
        Err(error) if error.is_already_exists() || error.is_conflict() => {}
        Err(error) if error.is_not_found() => {
            let message =
                format!("namespace {} not found: coracle rollout rights | kubectl apply -f -", command.namespace);
            return Err(Obstacle::lasting(message));
        }
        Err(error) => return Err(Obstacle::of(&format!("create rollout {name}"), &error)),
    }
    let created = store::read(operator, &command.namespace, name).await?;
    let created = created.filter(|created| created.plan == plan);
    let created =
        created.ok_or_else(|| Obstacle::lasting(format!("{name} was started with another plan at the same time")))?;
    // Two that began at once see each other here, and the later one gives way.
    if let Some(line) = overlap(operator, command, name, &plan, Some(&created)).await? {
        let removed = store::removal(&command.namespace, &created).send(operator).await;
        removed.map_err(|error| Obstacle::of(&format!("{line}; remove rollout {name}"), &error))?;
        return Err(Obstacle::lasting(line));
    }
    go_on(operator, command, name).await
}

/// The plan of the flags; the inner error is a usage error.
async fn plan(operator: &mut Operator, command: &Rollout) -> Result<Result<Plan, String>, Obstacle> {
    let subject = match (&command.daemonset, &command.agent, &command.config) {
        (Some(path), None, None) => {
            let Some((namespace, name)) = path.split_once('/').filter(|(one, two)| !one.is_empty() && !two.is_empty())
            else {
                return Ok(Err(format!("--daemonset: expected NAMESPACE/NAME, found {path:?}")));
            };
            let revision = DaemonSet::read(operator, namespace, name).await?.revision;
            Subject::DaemonSet(DaemonSetName { namespace: namespace.to_owned(), name: name.to_owned(), revision })
        }
        (None, Some(url), None) => Subject::Agent(url.clone()),
        (None, None, Some(url)) => Subject::Config(url.clone()),
        _ => return Ok(Err("expected one of --daemonset NAMESPACE/NAME, --agent URL and --config URL".to_owned())),
    };
    Ok(Ok(Plan {
        subject,
        selector: command.selector.as_ref().map(ToString::to_string).unwrap_or_default(),
        first: command.first.unwrap_or(1),
        then: command.then.clone().unwrap_or_else(Percentages::usual),
        max_unavailable: command.max_unavailable.unwrap_or(Amount::Percent(10)),
        stop_after: command.stop_after.unwrap_or(STOP_AFTER_BOARDS),
        within: command.within.map_or(BOARD_TIMEOUT, whole_seconds),
        settle: command.settle.map_or(SETTLE_TIME, whole_seconds),
        order: command.order.unwrap_or(Order::Hash),
        is_ahead: command.ahead,
    }))
}

/// As they are stored.
fn whole_seconds(age: Age) -> Duration {
    Duration::from_secs(age.seconds())
}

/// Another rollout of the same kind that has boards of this one. Of two with `own` stored, only an older one counts.
async fn overlap(
    operator: &mut Operator,
    command: &Rollout,
    name: &str,
    plan: &Plan,
    stored: Option<&Stored>,
) -> Result<Option<String>, Obstacle> {
    let others = store::list(operator, &command.namespace).await?.into_iter();
    let is_older =
        |other: &Stored| stored.is_none_or(|stored| (other.created, &other.name) < (stored.created, &stored.name));
    let others = others.filter(|other| other.name != name && !other.state.phase.is_over() && is_older(other));
    for other in others.filter(|other| other.plan.subject.is_same_kind(&plan.subject)) {
        let list = |error| Obstacle::of("list nodes", &error);
        let other_boards = boards(operator, &other.plan.selector).await.map_err(list)?;
        let ours = boards(operator, &plan.selector).await.map_err(list)?;
        let names: std::collections::HashSet<&str> = other_boards.iter().map(|board| board.name.as_str()).collect();
        if let Some(both) = ours.iter().find(|board| names.contains(board.name.as_str())) {
            return Ok(Some(report::overlap_line(&other.name, &plan.subject, &both.name)));
        }
    }
    Ok(None)
}

/// What the first round would send.
async fn show(
    operator: &mut Operator,
    plan: &Plan,
    name: &str,
    state: &State,
    write: &ApiWrite,
) -> Result<ExitCode, Obstacle> {
    let picture = Picture::take(operator, name, plan, state).await?;
    let decision = picture.decide(plan, state);
    let mut text = format!("{write}\n");
    for write in picture.writes(plan, &decision.writes) {
        text += &format!("{write}\n");
    }
    eprint_line(&report::progress_line(&decision.figures));
    Ok(print(&text))
}

async fn go_on(operator: &mut Operator, command: &Rollout, name: &str) -> Result<ExitCode, Obstacle> {
    let run = Run {
        operator,
        namespace: &command.namespace,
        name,
        interval: command.interval.duration(),
        waits: command.wait,
    };
    Ok(match run.run().await? {
        Ending::Finished(figures) => print(&format!("{name} has finished: {}\n", report::progress_line(&figures))),
        Ending::Halted(phase, why) => {
            failed(&format!("rollout: {name} is {}: {}coracle rollout status {name}", phase.name(), reason(&why)))
        }
        Ending::Asleep(figures) => {
            eprint_line(&format!(
                "{} asleep: coracle rollout resume {name} goes on when they have woken",
                decide::boards_word(figures.asleep)
            ));
            ExitCode::from(DEGRADED_STATUS)
        }
    })
}

fn reason(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{text}; ") }
}

async fn stored(operator: &mut Operator, command: &Rollout, name: &str) -> Result<Stored, Obstacle> {
    let stored = store::read(operator, &command.namespace, name).await?;
    stored.ok_or_else(|| {
        let hint = "of this fleet; pods of this board are deployment/NAME or POD (coracle rollback, hold, confirm)";
        Obstacle::lasting(format!("{name}: no rollout {hint}"))
    })
}

/// Another command that runs it sees the phase in its next round.
async fn change(operator: &mut Operator, command: &Rollout, name: &str, phase: Phase) -> Result<ExitCode, Obstacle> {
    let stored = stored(operator, command, name).await?;
    if stored.state.phase.is_over() {
        return Err(Obstacle::lasting(format!("{name} is {} already", stored.state.phase.name())));
    }
    let state = State { phase, reason: String::new(), ..stored.state.clone() };
    store_state(operator, command, &stored, &stored.plan, &state).await
}

async fn store_state(
    operator: &mut Operator,
    command: &Rollout,
    stored: &Stored,
    plan: &Plan,
    state: &State,
) -> Result<ExitCode, Obstacle> {
    let write = stored.replace(&command.namespace, plan, state);
    if command.dry_run {
        return Ok(print(&format!("{write}\n")));
    }
    match write.send(operator).await {
        Ok(_) => Ok(print(&format!("{}: {}\n", stored.name, state.phase.name()))),
        Err(error) => Err(Obstacle::of(&format!("store {}", stored.name), &error)),
    }
}

async fn resume(operator: &mut Operator, command: &Rollout, name: &str) -> Result<ExitCode, Obstacle> {
    let stored = stored(operator, command, name).await?;
    if stored.state.phase.is_over() {
        return Err(Obstacle::lasting(format!(
            "{name} is {}: coracle rollout start begins another",
            stored.state.phase.name()
        )));
    }
    let mut state = stored.state.clone();
    if state.phase != Phase::Running {
        state.resume(clock::now().unix_seconds());
    }
    let stop_after = command.stop_after.unwrap_or(stored.plan.stop_after);
    let plan = Plan { stop_after, is_ahead: stored.plan.is_ahead || command.ahead, ..stored.plan.clone() };
    if command.dry_run {
        let write = stored.replace(&command.namespace, &plan, &state);
        return show(operator, &plan, name, &state, &write).await;
    }
    if (&plan, &state) != (&stored.plan, &stored.state) {
        store_state(operator, command, &stored, &plan, &state).await?;
    }
    go_on(operator, command, name).await
}

async fn status(operator: &mut Operator, command: &Rollout, name: Option<&str>) -> Result<ExitCode, Obstacle> {
    let all = match name {
        Some(name) => vec![stored(operator, command, name).await?],
        None => store::list(operator, &command.namespace).await?,
    };
    let mut reports = Vec::new();
    for stored in all {
        let picture = Picture::take(operator, &stored.name, &stored.plan, &stored.state).await?;
        let decision = picture.decide(&stored.plan, &stored.state);
        let Picture { sights, pods, .. } = picture;
        reports.push(Report {
            stored: Stored { state: decision.state, ..stored },
            figures: decision.figures,
            sights,
            pods,
        });
    }
    let now = clock::now().unix_seconds();
    let values = || match (name, reports.as_slice()) {
        (Some(_), [report]) => report::to_json(report),
        _ => serde_json::json!({ "rollouts": reports.iter().map(report::to_json).collect::<Vec<_>>() }),
    };
    Ok(print(&match (command.output, name, reports.as_slice()) {
        (StatusOutput::Json, _, _) => format!("{:#}\n", values()),
        (StatusOutput::Yaml, _, _) => to_yaml(&values()),
        (StatusOutput::Text, Some(_), [report]) => report::details(report, now),
        (StatusOutput::Text, _, reports) => report::list(reports),
    }))
}
