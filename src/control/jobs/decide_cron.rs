//! When a CronJob starts a Job, and which of its Jobs are removed. Pure.
//!
//! As `syncCronJob` in pkg/controller/cronjob, for a clock that may be wrong: a time that is over stays over when the
//! clock is set back, and a time that the clock jumped over comes when the clock is right again.
//!
//! ```text
//! Unix time      .....|==========|.......|==|.........
//! over           first seen  last start     after a gap: the latest of the missed times
//! ```

use super::decide::JobEvent;
use super::record::ScheduleRecord;
use crate::types::api::{ConcurrencyPolicy, CronJobSpec, EventKind, Reason};
use crate::types::cron_schedule::CronSchedule;
use crate::types::time_zone::TimeZone;

pub(super) struct CronInput<'a> {
    pub(super) spec: &'a CronJobSpec,
    pub(super) schedule: &'a CronSchedule,
    pub(super) zone: &'a TimeZone,
    /// The Jobs that it started and that are there, in the order of their names, which is that of their times.
    pub(super) runs: &'a [Run<'a>],
    /// Whether pods of removed Jobs still end. Looks at all pods of the node.
    pub(super) has_leaving_pods: &'a dyn Fn() -> bool,
}

/// A Job of a CronJob.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    pub(super) key: &'a str,
    pub(super) state: RunState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunState {
    Active,
    Succeeded,
    Failed,
    /// Its `ttlSecondsAfterFinished` are over.
    Expired,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CronDecision {
    pub(super) record: ScheduleRecord,
    /// The scheduled time for which to start a Job.
    pub(super) start: Option<i64>,
    /// A time has come, and waits for the end of an earlier Job.
    pub(super) waits: Option<i64>,
    pub(super) events: Vec<JobEvent>,
    /// The next scheduled Unix time, unless it is suspended or waits.
    pub(super) next: Option<i64>,
}

/// Upstream's defaults.
const SUCCESSFUL_JOBS_HISTORY_LIMIT: i32 = 3;
const FAILED_JOBS_HISTORY_LIMIT: i32 = 1;

/// Upstream's number of missed times that it takes for a mistake.
const MANY_MISSED_TIMES: usize = 100;

/// Ranges of a record. Each outage, each jump of the clock and each overlap that is forbidden adds one if it misses a
/// time.
const MAX_TIME_RANGES: usize = 8;

/// Of too many ranges, two become one if they are so close: no time in them comes again, nor do those between them. Only
/// a clock that is set back beyond so many longer outages meets times again.
const CLOSE_RANGES_SECONDS: i64 = 86_400;

/// The keys of finished Jobs that are too many, and of all active ones that a new one replaces.
pub(super) fn to_remove<'a>(spec: &CronJobSpec, runs: &[Run<'a>], replaces: bool) -> Vec<&'a str> {
    let mut removed = Vec::new();
    for (state, limit) in [
        (RunState::Succeeded, spec.successful_jobs_history_limit.unwrap_or(SUCCESSFUL_JOBS_HISTORY_LIMIT)),
        (RunState::Failed, spec.failed_jobs_history_limit.unwrap_or(FAILED_JOBS_HISTORY_LIMIT)),
        (RunState::Expired, 0),
        (RunState::Active, if replaces { 0 } else { i32::MAX }),
    ] {
        let of_state = runs.iter().rev().filter(|run| run.state == state);
        removed.extend(of_state.skip(usize::try_from(limit).unwrap_or(0)).map(|run| run.key));
    }
    removed
}

pub(super) fn decide_cron(input: &CronInput<'_>, record: Option<&ScheduleRecord>, now: i64) -> CronDecision {
    let CronInput { spec, schedule, zone, .. } = *input;
    let mut decision = CronDecision { record: record.cloned().unwrap_or_default(), ..CronDecision::default() };
    let over = &mut decision.record.over;
    let is_before = |range: &&(i64, i64)| range.0 <= now;
    if !over.iter().any(|range| is_before(&range)) {
        // Met now: earlier times do not count. Or the clock was ahead until now.
        over.insert(0, (now, now));
        bound(over, now);
    }
    if spec.suspend {
        return decision;
    }
    let last_over = over.iter().filter(is_before).map(|(_, last)| *last).max().unwrap_or(now);
    let latest = schedule.latest(last_over, now, zone);
    // Never due at once, whatever a zone says.
    let next = schedule.next(latest.unwrap_or(last_over), zone);
    decision.next = next.map(|next| next.max(now.saturating_add(1)));
    let is_too_late =
        |time: i64| spec.starting_deadline_seconds.is_some_and(|deadline| time.saturating_add(deadline) < now);
    let Some(time) = latest.filter(|time| !is_too_late(*time)) else { return decision };
    let active = input.runs.iter().any(|run| run.state == RunState::Active);
    let may_overlap = spec.concurrency_policy == ConcurrencyPolicy::Allow;
    if !may_overlap && (active || (input.has_leaving_pods)()) {
        decision.waits = Some(time);
        decision.next = None;
        return decision;
    }
    decision.start = Some(time);
    decision.record.last = Some(time);
    let missed = std::iter::successors(schedule.next(last_over, zone), |last| schedule.next(*last, zone));
    let missed = missed.take_while(|missed| *missed < time).take(MANY_MISSED_TIMES).count();
    if missed == MANY_MISSED_TIMES {
        decision.events.push(JobEvent::Other(EventKind::Warning, Reason::TOO_MANY_MISSED_TIMES, MISSED));
    }
    add(&mut decision.record.over, last_over, time, missed > 0);
    decision
}

const MISSED: &str = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";

/// `time` is over. `skips`: it is not the first time after the range that ends with `last_over`.
fn add(over: &mut Vec<(i64, i64)>, last_over: i64, time: i64, skips: bool) {
    let before = over.iter().position(|(_, last)| *last == last_over);
    match before.and_then(|at| over.get_mut(at)) {
        Some(range) if !skips => range.1 = time,
        _ => over.insert(before.map_or(0, |at| at.saturating_add(1)), (time, time)),
    }
    bound(over, time);
}

/// Removes a range if there are too many. That of `time` stays apart: the clock may have jumped there.
fn bound(over: &mut Vec<(i64, i64)>, time: i64) {
    if over.len() <= MAX_TIME_RANGES {
        return;
    }
    let gaps = over.windows(2).enumerate().filter_map(|(at, pair)| match pair {
        [before, after] if before.1 != time && after.1 != time => Some((after.0.saturating_sub(before.1), at)),
        _ => None,
    });
    match gaps.min().filter(|(gap, _)| *gap <= CLOSE_RANGES_SECONDS) {
        Some((_, at)) => {
            let (_, last) = over.remove(at.saturating_add(1));
            if let Some(range) = over.get_mut(at) {
                range.1 = last;
            }
        }
        None => {
            // The oldest, or if all others are ahead of the clock the furthest.
            let is_first = over.first().is_some_and(|(_, last)| *last == time);
            over.remove(if is_first { over.len().saturating_sub(1) } else { 0 });
        }
    }
}

#[cfg(test)]
mod tests;
