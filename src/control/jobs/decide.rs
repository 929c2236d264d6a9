//! What becomes of a Job: which of its pods have ended, whether it has finished, and which pods to make. Pure.
//!
//! As `syncJob` in pkg/controller/job. The decision takes effect when its record is on the disk: until then no pod is
//! made, replaced or counted, so that a power cut repeats the decision and never its effect.
//!
//! ```text
//! record, phases of its pods, time -> decide -> the next record -> the disk -> pods, events
//! ```

use std::time::{Duration, Instant};

use super::record::{ActivePod, EndedPod, JOB_COMPLETE, JOB_FAILED, JobRecord, SHOWN_ENDED_PODS};
use crate::types::api::{CompletionMode, EventKind, JobSpec, Reason, RestartPolicy};

/// An active pod as the node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodState {
    /// It has not ended; the restarts of its containers.
    Active {
        restarts: u32,
    },
    /// Its containers exited with 0, and the rest of it is not known to have stopped: it will have succeeded.
    Ending,
    /// Its containers exited with 0, and nothing of it runs.
    Succeeded,
    Failed,
}

/// What only this process knows of a Job. Losing it costs time, never a pod.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct JobTimes {
    active: Option<Stopwatch>,
    finished: Option<Stopwatch>,
    /// The end of the back-off after a failed pod.
    retry: Option<Instant>,
}

/// Counts on the monotonic clock from when this process first saw the Job; only an earlier start is compared with the
/// wall clock, once. So a step of that clock ends no Job early.
#[derive(Clone, Copy, Debug)]
struct Stopwatch {
    met: Instant,
    before: Duration,
}

/// The time of a decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) now: Instant,
    /// Unix time; `None` while the clock is not set.
    pub(super) clock: Option<i64>,
}

/// What the decision needs besides the record.
pub(super) struct JobInput<'a> {
    pub(super) spec: &'a JobSpec,
    pub(super) restart_policy: RestartPolicy,
    pub(super) state: &'a dyn Fn(&ActivePod) -> PodState,
    /// Whether pods of this Job or of a former one with its name still end: their successors wait. Looks at all pods of
    /// the node, so it is asked only before a pod is made.
    pub(super) has_leaving_pods: &'a dyn Fn() -> bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) record: JobRecord,
    pub(super) events: Vec<JobEvent>,
    /// When to decide again, if nothing happens before.
    pub(super) due: Option<Instant>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JobEvent {
    Created(ActivePod),
    Other(EventKind, Reason, &'static str),
}

/// Upstream's default.
const BACKOFF_LIMIT: i32 = 6;
const FIRST_JOB_BACKOFF: Duration = Duration::from_secs(10);
/// Six minutes, as the documentation of Jobs has it.
const MAX_JOB_BACKOFF: Duration = Duration::from_secs(360);

pub(super) fn decide(input: &JobInput<'_>, record: &JobRecord, times: &mut JobTimes, at: Moment) -> Decision {
    let mut decision = Decision { record: record.clone(), events: Vec::new(), due: None };
    if record.is_finished() {
        expire(input.spec, &mut decision, times, at);
        return decision;
    }
    let restarts = count_ended(input, &mut decision.record, times, at);
    suspend(input, &mut decision, times);
    let active = (!decision.record.is_suspended).then(|| {
        let active = times.active.get_or_insert_with(|| Stopwatch::new(record.started, at));
        let started = at.clock.map(|clock| clock.saturating_sub_unsigned(active.elapsed(at.now).as_secs()));
        decision.record.started = decision.record.started.or(started);
        *active
    });
    let deadline = input.spec.active_deadline_seconds.zip(active);
    let deadline = deadline.and_then(|(limit, active)| active.due(u64::try_from(limit).unwrap_or(0)));
    if let Some((condition, reason, event)) = finished(input, &decision.record, restarts, deadline, at) {
        finish(&mut decision, condition, reason, at);
        decision.events.push(event);
        times.finished = None;
        expire(input.spec, &mut decision, times, at);
        return decision;
    }
    decision.due = deadline;
    if !decision.record.is_suspended {
        scale(input, &mut decision, times, at);
    }
    decision
}

/// Moves the pods that have ended. Returns the restarts of the others.
fn count_ended(input: &JobInput<'_>, record: &mut JobRecord, times: &mut JobTimes, at: Moment) -> u32 {
    let mut restarts = 0_u32;
    for pod in std::mem::take(&mut record.active) {
        let succeeded = match (input.state)(&pod) {
            PodState::Active { restarts: of_pod } => {
                restarts = restarts.saturating_add(of_pod);
                record.active.push(pod);
                continue;
            }
            PodState::Ending => {
                record.active.push(pod);
                continue;
            }
            PodState::Succeeded => true,
            PodState::Failed => false,
        };
        if succeeded {
            record.succeeded = record.succeeded.saturating_add(1);
            record.failed_in_row = 0;
            pod.index.into_iter().for_each(|index| record.complete(index));
            times.retry = None;
        } else {
            record.failed = record.failed.saturating_add(1);
            record.failed_in_row = record.failed_in_row.saturating_add(1);
            times.retry = at.now.checked_add(backoff(record.failed_in_row));
        }
        record.ended.push(EndedPod { serial: pod.serial, index: pod.index, succeeded });
    }
    let surplus = record.ended.len().saturating_sub(SHOWN_ENDED_PODS);
    record.ended.drain(..surplus);
    restarts
}

/// The delay after so many failures in a row.
fn backoff(failures: u32) -> Duration {
    let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    FIRST_JOB_BACKOFF.saturating_mul(factor).min(MAX_JOB_BACKOFF)
}

/// The pods of a suspended Job end without counting as failed, and its deadline starts again when it is resumed. One
/// that has done its work still counts.
fn suspend(input: &JobInput<'_>, decision: &mut Decision, times: &mut JobTimes) {
    let (spec, record) = (input.spec, &mut decision.record);
    if spec.suspend {
        record.active.retain(|pod| (input.state)(pod) == PodState::Ending);
        record.started = None;
        times.active = None;
    }
    if spec.suspend == record.is_suspended {
        return;
    }
    record.is_suspended = spec.suspend;
    let (reason, message) =
        if spec.suspend { (Reason::SUSPENDED, "Job suspended") } else { (Reason::RESUMED, "Job resumed") };
    decision.events.push(JobEvent::Other(EventKind::Normal, reason, message));
}

type Finished = (&'static str, Reason, JobEvent);

fn finished(
    input: &JobInput<'_>,
    record: &JobRecord,
    restarts: u32,
    deadline: Option<Instant>,
    at: Moment,
) -> Option<Finished> {
    let limit = u32::try_from(input.spec.backoff_limit.unwrap_or(BACKOFF_LIMIT)).unwrap_or(0);
    // Upstream's pastBackoffLimitOnFailure.
    let is_restarted_too_often = input.restart_policy == RestartPolicy::OnFailure && restarts >= limit.max(1);
    if record.failed > limit || is_restarted_too_often {
        let event = (Reason::BACKOFF_LIMIT_EXCEEDED, "Job has reached the specified backoff limit");
        return Some((JOB_FAILED, event.0.clone(), JobEvent::Other(EventKind::Warning, event.0, event.1)));
    }
    if deadline.is_some_and(|deadline| deadline <= at.now) {
        let reason = Reason::DEADLINE_EXCEEDED;
        let message = "Job was active longer than specified deadline";
        return Some((JOB_FAILED, reason.clone(), JobEvent::Other(EventKind::Warning, reason, message)));
    }
    let is_complete = match wanted_completions(input.spec) {
        Some(completions) => record.succeeded >= completions,
        // The pods of a work queue end by themselves.
        None => record.succeeded > 0 && record.active.is_empty(),
    };
    let completed = JobEvent::Other(EventKind::Normal, Reason::COMPLETED, "Job completed");
    is_complete.then(|| (JOB_COMPLETE, Reason::default(), completed))
}

/// `None`: a work queue, which is complete when one pod has succeeded and all have ended.
pub(super) fn wanted_completions(spec: &JobSpec) -> Option<u32> {
    let completions = spec.completions.or_else(|| spec.parallelism.is_none().then_some(1));
    completions.map(|count| u32::try_from(count).unwrap_or(0))
}

/// As upstream, pods that still run end, and count as failed.
fn finish(decision: &mut Decision, condition: &str, reason: Reason, at: Moment) {
    let record = &mut decision.record;
    let ending = u32::try_from(std::mem::take(&mut record.active).len()).unwrap_or(u32::MAX);
    record.failed = record.failed.saturating_add(ending);
    condition.clone_into(&mut record.condition);
    reason.as_str().clone_into(&mut record.reason);
    record.finished = at.clock;
}

/// `ttlSecondsAfterFinished`: nothing is left to see of the Job. Its record stays as long as its document, so that it
/// does not run again.
fn expire(spec: &JobSpec, decision: &mut Decision, times: &mut JobTimes, at: Moment) {
    let Some(ttl) = spec.ttl_seconds_after_finished.filter(|_| !decision.record.ended.is_empty()) else { return };
    let finished = times.finished.get_or_insert_with(|| Stopwatch::new(decision.record.finished, at));
    match finished.due(u64::try_from(ttl).unwrap_or(0)) {
        Some(due) if due <= at.now => decision.record.ended.clear(),
        due => decision.due = due,
    }
}

/// Makes pods that are missing, and ends those that are too many.
fn scale(input: &JobInput<'_>, decision: &mut Decision, times: &JobTimes, at: Moment) {
    let record = &mut decision.record;
    let parallelism = usize::try_from(input.spec.parallelism.unwrap_or(1)).unwrap_or(0);
    let completions = wanted_completions(input.spec);
    let wanted = match completions {
        Some(completions) => {
            parallelism.min(usize::try_from(completions.saturating_sub(record.succeeded)).unwrap_or(usize::MAX))
        }
        // After the first success of a work queue, no pod is replaced.
        None if record.succeeded > 0 => record.active.len(),
        None => parallelism,
    };
    if record.active.len() > wanted {
        // What has done its work is not done again.
        record.active.sort_by_key(|pod| (input.state)(pod) != PodState::Ending);
        record.active.truncate(wanted);
    }
    if record.active.len() >= wanted || (input.has_leaving_pods)() {
        return;
    }
    if let Some(retry) = times.retry.filter(|retry| *retry > at.now) {
        decision.due = decision.due.into_iter().chain([retry]).min();
        return;
    }
    let mut indexes = (0..completions.unwrap_or(0)).filter(|_| input.spec.completion_mode == CompletionMode::Indexed);
    while record.active.len() < wanted {
        let is_free =
            |index: &u32| !record.has_completed(*index) && !record.active.iter().any(|pod| pod.index == Some(*index));
        let index = indexes.find(is_free);
        if index.is_none() && input.spec.completion_mode == CompletionMode::Indexed {
            return;
        }
        let pod = ActivePod { serial: record.made, index };
        record.made = record.made.saturating_add(1);
        record.active.push(pod.clone());
        decision.events.push(JobEvent::Created(pod));
    }
}

impl Stopwatch {
    fn new(since: Option<i64>, at: Moment) -> Self {
        let before = since.zip(at.clock).map_or(0, |(since, clock)| clock.saturating_sub(since));
        Self { met: at.now, before: Duration::from_secs(u64::try_from(before).unwrap_or(0)) }
    }

    fn elapsed(&self, now: Instant) -> Duration {
        self.before.saturating_add(now.saturating_duration_since(self.met))
    }

    fn due(&self, seconds: u64) -> Option<Instant> {
        self.met.checked_add(Duration::from_secs(seconds).saturating_sub(self.before))
    }
}

#[cfg(test)]
mod tests;
