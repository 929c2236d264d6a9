//! Starts the Jobs of CronJobs and removes the finished ones that are too many.

use super::decide::Moment;
use super::decide_cron::{CronInput, Run, RunState, decide_cron, to_remove};
use super::record::{JOB_COMPLETE, JobRecord};
use super::table::{CronTimes, JobDocument, JobEntry, JobTable, key_of_run, new_run};
use super::{DocumentSpec, JobChange, Jobs, decide_entry, event_of, has_leaving_pods, shown};
use crate::control::pod_sources::static_pod::{job_name, scheduled_job_name};
use crate::control::pod_table::{Effect, PodTable};
use crate::types::api::{ConcurrencyPolicy, EventKind, PodUid, Reason};
use crate::types::time_zone::TimeZone;

/// A zone that could not be read is read again after so many seconds: somebody may install it.
const ZONE_RETRY_SECONDS: i64 = 3600;

/// What is the same for all CronJobs of a round.
struct CronRound<'a> {
    table: &'a JobTable,
    /// All Jobs of CronJobs, each with the key of its CronJob.
    runs: Vec<(&'a str, Run<'a>)>,
    pods: &'a PodTable,
    at: Moment,
}

impl Jobs {
    /// Decides about all CronJobs. The changes of their Jobs come before those of their own records, so that a time that is
    /// over has its Job on the disk.
    pub(super) fn decide_cron_jobs(&mut self, pods: &PodTable, at: Moment) -> Vec<JobChange> {
        let (mut changes, mut times) = (Vec::new(), Vec::new());
        let (mut until, mut names) = (i64::MAX, Vec::new());
        let table = self.table.read();
        let round = CronRound { table: &table, runs: runs(&table), pods, at };
        for (key, entry) in &table.jobs {
            let Some((_, spec, _)) = entry.cron_job() else { continue };
            let name = spec.time_zone.clone().unwrap_or_default();
            let (of_cron_job, next) = round.decide(key, entry, self.clock.zone(&name), &mut changes);
            until = until.min(next.unwrap_or(i64::MAX));
            times.push((key.clone(), of_cron_job));
            if !names.contains(&name) {
                names.push(name);
            }
        }
        drop(table);
        let mut table = self.table.write();
        for (key, of_cron_job) in times {
            table.jobs.entry(key).or_default().cron_times = of_cron_job;
        }
        drop(table);
        self.clock.wait(until, names);
        changes
    }
}

fn runs(table: &JobTable) -> Vec<(&str, Run<'_>)> {
    let runs = table.jobs.iter().filter_map(|(key, entry)| {
        let (run, record) = (entry.run()?, entry.record.as_ref()?);
        let state = match &entry.document {
            // Its template cannot be read.
            None => RunState::Failed,
            Some(document) => state(document, record),
        };
        Some((&*run.cron_job, Run { key, state }))
    });
    runs.collect()
}

fn state(document: &JobDocument, record: &JobRecord) -> RunState {
    let has_ttl = matches!(&document.spec, DocumentSpec::Job(spec) if spec.ttl_seconds_after_finished.is_some());
    match &*record.condition {
        "" => RunState::Active,
        _ if has_ttl && record.ended.is_empty() => RunState::Expired,
        JOB_COMPLETE => RunState::Succeeded,
        _ => RunState::Failed,
    }
}

impl CronRound<'_> {
    /// Adds what changes. Returns the times, and the Unix time of the next look.
    fn decide(
        &self,
        key: &str,
        entry: &JobEntry,
        zone: Option<Result<&TimeZone, &String>>,
        changes: &mut Vec<JobChange>,
    ) -> (CronTimes, Option<i64>) {
        let mut times = entry.cron_times.clone();
        let Some((document, spec, schedule)) = entry.cron_job() else { return (times, None) };
        let template = &*document.template.pod;
        let runs: Vec<Run<'_>> = self.runs.iter().filter(|(of, _)| *of == key).map(|(_, run)| *run).collect();
        let record = entry.record.as_ref().and_then(|record| record.schedule.as_ref());
        let is_quiet = |now: i64| times.next.is_some_and(|(looked, next)| (looked..next).contains(&now));
        let (mut decision, mut effects, next) = (None, Vec::new(), times.next.map(|(_, next)| next));
        let next = match (zone, self.at.clock) {
            (Some(Err(why)), Some(now)) => {
                if times.problem.as_ref() != Some(why) {
                    effects.push(event_of(template, EventKind::Warning, Reason::UNKNOWN_TIME_ZONE, why.clone()));
                }
                (times.problem, times.next) = (Some(why.clone()), None);
                now.checked_add(ZONE_RETRY_SECONDS)
            }
            (Some(Ok(_)), Some(now)) if is_quiet(now) => next,
            (Some(Ok(zone)), Some(now)) => {
                let has_leaving_pods = || has_leaving_pods(template, &self.uids_of(&runs), self.pods);
                let input = CronInput { spec, schedule, zone, runs: &runs, has_leaving_pods: &has_leaving_pods };
                let decided = decide_cron(&input, record, now);
                let is_new = decided.waits.is_some() && decided.waits != times.waits;
                if is_new && spec.concurrency_policy == ConcurrencyPolicy::Forbid {
                    let reason = Reason::JOB_ALREADY_ACTIVE;
                    effects.push(event_of(template, EventKind::Normal, reason, ALREADY_ACTIVE.to_owned()));
                }
                let next = decided.next;
                times = CronTimes { next: next.map(|next| (now, next)), waits: decided.waits, problem: None };
                decision = Some(decided);
                next
            }
            (None, _) | (_, None) => {
                times.next = None;
                None
            }
        };
        let waits = decision.as_ref().is_some_and(|decision| decision.waits.is_some());
        let replaces = waits && spec.concurrency_policy == ConcurrencyPolicy::Replace;
        for removed in to_remove(spec, &runs, replaces) {
            effects.push(event_of(template, EventKind::Normal, Reason::SUCCESSFUL_DELETE, self.deleted(removed)));
            changes.push(JobChange { key: removed.to_owned(), record: None, effects: Vec::new() });
        }
        let mut schedule = record.cloned();
        if let Some(decision) = decision {
            if let Some(time) = decision.start {
                effects.extend(self.start(key, document, time, changes));
            }
            effects.extend(decision.events.iter().map(|event| shown(event, template)));
            schedule = Some(decision.record);
        }
        if !effects.is_empty() || schedule.as_ref() != record {
            let record = Some(JobRecord { schedule, ..JobRecord::default() });
            changes.push(JobChange { key: key.to_owned(), record, effects });
        }
        (times, next)
    }

    fn uids_of(&self, runs: &[Run<'_>]) -> Vec<PodUid> {
        runs.iter().filter_map(|run| self.table.jobs.get(run.key)).flat_map(JobEntry::pod_uids).collect()
    }

    fn deleted(&self, key: &str) -> String {
        let document = self.table.jobs.get(key).and_then(|entry| entry.document.as_ref());
        ["Deleted job ", document.map_or("", |document| job_name(&document.template.pod))].concat()
    }

    /// Adds the Job for this time, with its first pods. Returns the event of the CronJob.
    fn start(&self, key: &str, document: &JobDocument, time: i64, changes: &mut Vec<JobChange>) -> Option<Effect> {
        let template = &*document.template.pod;
        let name = scheduled_job_name(template, time);
        let of_run = key_of_run(template, time);
        if let Some(known) = self.table.jobs.get(&of_run) {
            // It was started before a power cut, or is the second of a minute.
            let is_own = known.run().is_some_and(|run| run.cron_job == key);
            let message = ["Error creating job: there is a Job ", &name].concat();
            return (!is_own).then(|| event_of(template, EventKind::Warning, Reason::FAILED_CREATE, message));
        }
        let mut entry = new_run(key, document, time);
        let decision = decide_entry(&mut entry, self.pods, self.at)?;
        let of_job = &entry.document.as_ref()?.template.pod;
        let effects = decision.events.iter().map(|event| shown(event, of_job)).collect();
        changes.push(JobChange { key: of_run, record: Some(decision.record), effects });
        let message = ["Created job ", &name].concat();
        Some(event_of(template, EventKind::Normal, Reason::SUCCESSFUL_CREATE, message))
    }
}

const ALREADY_ACTIVE: &str = "Not starting job because prior execution is running and concurrency policy is Forbid";

#[cfg(test)]
mod tests;
