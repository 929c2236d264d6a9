//! What must hold of Jobs when the faults are over: each has finished, each CronJob has started its last time, and
//! nothing else runs.

use std::time::Duration;

use serde_json::Value;

use super::rules::{Document, JobRules, record_of, records_of_runs};
use super::{CronTraits, JOB_REVISION};
use crate::simulation::container_runtime::revision;
use crate::simulation::life::Node;
use crate::types::api::ConcurrencyPolicy;

/// Within this time of its own a Job starts, and its first pod.
const JOB_START_TIME: Duration = Duration::from_secs(30);
/// The longest time in which a Job of a CronJob waits for another pod, and runs it.
const MAX_JOB_WAIT: Duration = Duration::from_secs(200);

impl Node {
    pub(in crate::simulation) fn jobs_converged(&self) -> Result<(), String> {
        self.runtime.look_for_ended_jobs();
        self.runtime.look_for_finished_jobs();
        // The agent starts no Job before it knows the runtime's pods, and no API server shows that it waits for them.
        if self.runtime.has_hanging_calls() {
            return Err("a call of the runtime hangs".into());
        }
        let wanted = self.wanted.borrow();
        if let Some(missing) = self.not_running() {
            return Err(format!("pod {missing} does not run"));
        }
        let jobs = self.runtime.jobs.borrow();
        self.runtime.look(|runtime| {
            for sandbox in runtime.world.sandboxes.iter().filter(|one| one.is_ready()) {
                let labels = &sandbox.config.labels;
                let is_wanted = match labels.get(JOB_REVISION).and_then(|revision| revision.parse().ok()) {
                    Some(revision) => jobs.may_run(revision),
                    None => wanted.is_wanted(&revision(labels, sandbox)),
                };
                if !is_wanted {
                    return Err(format!("pod {} runs, but is not wanted", sandbox.name()));
                }
            }
            Ok(())
        })?;
        self.no_survivors()?;
        let runs = records_of_runs();
        for (revision, document) in jobs.documents.iter().filter(|(_, document)| document.is_wanted) {
            let settled = match document.traits.cron {
                None => jobs.has_finished(*revision, document),
                Some(cron) => self.is_on_time(&jobs, *revision, (document, cron), &runs),
            };
            settled.map_err(|what| format!("{} (revision {revision}): {what}", document.name))?;
        }
        Ok(())
    }

    /// The last scheduled time since everything was well has started a Job. `runs`: the records of all Jobs of CronJobs.
    fn is_on_time(
        &self,
        jobs: &JobRules,
        revision: u64,
        (document, cron): (&Document, CronTraits),
        runs: &[(String, Value)],
    ) -> Result<(), String> {
        let of_it = |name: &str| {
            let minutes = name.strip_prefix(&*document.name).and_then(|rest| rest.strip_prefix('-'));
            minutes.is_some_and(|minutes| minutes.len() > 5 && minutes.parse::<u64>().is_ok())
        };
        let mut active = runs.iter().filter(|(name, record)| of_it(name) && record["condition"] == "");
        let now = self.world.passed();
        let idle = now.saturating_sub(document.last_start.max(jobs.disturbed));
        if let Some((name, _)) = active.next().filter(|_| idle > MAX_JOB_WAIT) {
            return Err(format!("{name} is active, and nothing has started for {idle:?}"));
        }
        let wall = |passed: Duration| (self.world.wall_clock() + passed).saturating_sub(now).as_secs().cast_signed();
        let (since, before) = (wall(document.changed.max(jobs.disturbed)), wall(now.saturating_sub(JOB_START_TIME)));
        let period = 60 * cron.minutes;
        let due = before - before.rem_euclid(period);
        let does_count = due > since && !jobs.is_clock_new() && !jobs.may_be_over(due, period);
        if document.traits.suspend || !does_count {
            return Ok(());
        }
        if cron.policy == ConcurrencyPolicy::Forbid {
            let longest = MAX_JOB_WAIT + Duration::from_secs(period.unsigned_abs());
            return if idle <= longest { Ok(()) } else { Err(format!("nothing has started for {idle:?}")) };
        }
        let name = format!("{}-{}", document.name, due / 60);
        let has_started = jobs.jobs.contains_key(&(revision, name.clone()));
        if has_started { Ok(()) } else { Err(format!("{name} has not started, by the clock {before}")) }
    }
}

impl JobRules {
    /// Pods of CronJobs come and go.
    fn may_run(&self, revision: u64) -> bool {
        let document = self.documents.get(&revision).filter(|document| document.is_wanted);
        document.is_some_and(|document| document.traits.cron.is_some())
    }

    fn has_finished(&self, revision: u64, document: &Document) -> Result<(), String> {
        let record = record_of(&document.name).ok_or("it has no record")?;
        let condition = record["condition"].as_str().unwrap_or_default();
        match condition {
            "" if document.traits.suspend && record["suspended"] == true => Ok(()),
            "" => Err(format!("it has not finished: {record}")),
            "Complete" => {
                let key = (revision, document.name.clone());
                let succeeded = self.jobs.get(&key).map_or(0, |job| job.succeeded.len());
                let is_right = document.was_edited
                    || document.traits.wanted_completions().is_none_or(|wanted| succeeded == wanted as usize);
                if is_right { Ok(()) } else { Err(format!("{succeeded} pods have succeeded, but it shows {record}")) }
            }
            _ => Ok(()),
        }
    }
}
