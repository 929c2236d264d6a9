//! Why a pod does not run as wanted: cause, advice and since when. Pure.
//!
//! The command line, the status page, the metrics and the node's health all use this one answer. `cause` consists of
//! what Coracle, the runtime or a registry reports. What a container, its probe or its hook writes is in `detail`, which
//! unauthenticated users do not see.

mod advice;
mod containers;
mod error_text;
mod warnings;

use crate::state::pods::PodWarning;
use crate::types::api::{ConditionStatus, Pod, PodPhase, PodStatus, Reason, Time, conditions, record};

use error_text::innermost;

/// What the answer depends on.
#[derive(Clone, Copy)]
pub(crate) struct PodSituation<'a> {
    /// Its own status is not used.
    pub(crate) pod: &'a Pod,
    pub(crate) status: &'a PodStatus,
    /// The pod's recent warnings, oldest first.
    pub(crate) warnings: &'a [PodWarning<'a>],
    /// Since when the pod runs with another spec than its manifest's, which kept its uid.
    pub(crate) unreplaced_since: Option<Time>,
    pub(crate) now: Time,
}

/// How far a pod is from what its spec wants.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PodHealth {
    Running,
    /// All containers succeeded, and none starts again.
    Done,
    /// On its way, without a problem so far.
    Waiting,
    /// A user has stopped it.
    Stopped,
    Failing(PodProblem),
}

record! {
    pub(crate) struct PodProblem {
        /// Reason as in the STATUS column, such as `NodePorts` or `CrashLoopBackOff`.
        pub(crate) reason: String,
        /// One clause without a full stop, such as `container main exits with code 1 (4 restarts)`.
        pub(crate) cause: String,
        /// What to do. Empty if the cause says it.
        pub(crate) advice: String,
        /// What the container, its probe or its hook wrote.
        pub(crate) detail: String,
        /// RFC 3339; empty if unknown.
        pub(crate) since: String,
        /// When Coracle tries again, RFC 3339; empty if that is not known.
        pub(crate) next_retry: String,
    }
}

/// Age of a pod, of a warning or of an unready container from which on it is a problem.
const PATIENCE_SECONDS: i64 = 30;

/// Why the pod does not run as wanted, or that it does.
pub(crate) fn pod_health(situation: PodSituation<'_>) -> PodHealth {
    let PodSituation { pod, status, .. } = situation;
    let problem = match status.phase {
        PodPhase::Succeeded => return PodHealth::Done,
        PodPhase::Failed => Some(containers::failed_pod(situation)),
        PodPhase::Unknown => Some(unknown_state()),
        PodPhase::Pending | PodPhase::Running if pod.metadata.deletion_timestamp.is_some() => {
            warnings::while_terminating(situation)
        }
        PodPhase::Pending | PodPhase::Running => containers::problem(situation)
            .or_else(|| warnings::while_starting(situation))
            .or_else(|| containers::probe_without_port(situation))
            .or_else(|| containers::unready(situation))
            .or_else(|| situation.unreplaced_since.map(unreplaced)),
    };
    match problem {
        Some(problem) => PodHealth::Failing(since_when(problem, status)),
        None if status.phase == PodPhase::Running && is_ready(status) => PodHealth::Running,
        None => PodHealth::Waiting,
    }
}

fn unreplaced(since: Time) -> PodProblem {
    PodProblem {
        reason: Reason::NOT_REPLACED.as_str().to_owned(),
        cause: "its manifest has changed and metadata.uid has not: it runs as before the change".to_owned(),
        advice: "change metadata.uid with each change of the manifest, or leave it out".to_owned(),
        since: since.to_string(),
        ..PodProblem::default()
    }
}

fn unknown_state() -> PodProblem {
    PodProblem {
        reason: "Unknown".to_owned(),
        cause: "the runtime does not report the state of the pod".to_owned(),
        advice: "see `coracle status` for the state of the runtime".to_owned(),
        ..PodProblem::default()
    }
}

/// A problem without a time of its own begins when the pod was last ready, else when it started.
fn since_when(mut problem: PodProblem, status: &PodStatus) -> PodProblem {
    if problem.since.is_empty() {
        let ready = status.conditions.iter().find(|condition| condition.kind == conditions::READY);
        let unready = ready.filter(|condition| condition.status != ConditionStatus::True);
        let since = unready.and_then(|condition| condition.last_transition_time).or(status.start_time);
        problem.since = since.map(|time| time.to_string()).unwrap_or_default();
    }
    problem
}

fn is_ready(status: &PodStatus) -> bool {
    let ready = status.conditions.iter().find(|condition| condition.kind == conditions::READY);
    ready.is_some_and(|condition| condition.status == ConditionStatus::True)
}

fn is_older(than: i64, time: Option<Time>, now: Time) -> bool {
    time.is_some_and(|time| now.unix_seconds() - time.unix_seconds() >= than)
}

#[cfg(test)]
mod tests;
