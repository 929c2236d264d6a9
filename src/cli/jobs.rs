//! `coracle jobs`.

use std::process::ExitCode;

use super::command_table::ListJobs;
use super::local_api::get;
use super::outputs::TopOutput;
use super::pod_row::age;
use super::table::table;
use super::{failed, print};
use crate::control::server::{CronJobRow, JobRow, JobRows};
use crate::platform::host::clock;
use crate::types::error::ErrorChain;

pub(super) fn run(command: &ListJobs) -> ExitCode {
    let mut response: JobRows = match get(&command.local_socket, "/jobs") {
        Ok(response) => response,
        Err(error) => return failed(&ErrorChain(&error).to_string()),
    };
    let is_wanted = |namespace: &str| command.namespace.as_deref().is_none_or(|wanted| wanted == namespace);
    response.jobs.retain(|job| is_wanted(&job.namespace));
    response.cron_jobs.retain(|cron_job| is_wanted(&cron_job.namespace));
    match command.output {
        TopOutput::Table => print(&tables(&response, clock::now().unix_seconds())),
        TopOutput::Json => print(&(serde_json::to_string_pretty(&response).unwrap_or_default() + "\n")),
    }
}

fn tables(rows: &JobRows, now: i64) -> String {
    match (&*rows.cron_jobs, &*rows.jobs) {
        ([], jobs) => job_table(jobs, now),
        (cron_jobs, []) => cron_job_table(cron_jobs, now),
        (cron_jobs, jobs) => [&*cron_job_table(cron_jobs, now), "\n", &job_table(jobs, now)].concat(),
    }
}

fn cron_job_table(cron_jobs: &[CronJobRow], now: i64) -> String {
    let head = ["NAMESPACE", "NAME", "SCHEDULE", "TIMEZONE", "SUSPEND", "ACTIVE", "LAST SCHEDULE", "NEXT"];
    let mut rows: Vec<Vec<String>> = vec![head.map(str::to_owned).to_vec()];
    for cron_job in cron_jobs {
        let next = match cron_job.next_schedule_time {
            _ if !cron_job.problem.is_empty() => cron_job.problem.clone(),
            Some(next) => ["in ", &age(next.saturating_sub(now).max(0))].concat(),
            None => "<none>".to_owned(),
        };
        rows.push(vec![
            cron_job.namespace.clone(),
            cron_job.name.clone(),
            cron_job.schedule.clone(),
            cron_job.time_zone.clone().unwrap_or_else(|| "<none>".to_owned()),
            if cron_job.suspend { "True" } else { "False" }.to_owned(),
            cron_job.active.to_string(),
            cron_job.last_schedule_time.map_or_else(|| "<none>".to_owned(), |last| age(now.saturating_sub(last))),
            next,
        ]);
    }
    table(&rows)
}

fn job_table(jobs: &[JobRow], now: i64) -> String {
    if jobs.is_empty() {
        return "No jobs.\n".to_owned();
    }
    let head = ["NAMESPACE", "NAME", "STATUS", "COMPLETIONS", "ACTIVE", "FAILED", "DURATION"];
    let mut rows: Vec<Vec<String>> = vec![head.map(str::to_owned).to_vec()];
    for job in jobs {
        let reason = if job.reason.is_empty() { String::new() } else { [" (", &job.reason, ")"].concat() };
        let wanted = job.completions.map_or_else(|| "1 of a queue".to_owned(), |wanted| wanted.to_string());
        let lasted = job.start_time.map(|start| job.completion_time.unwrap_or(now).saturating_sub(start));
        rows.push(vec![
            job.namespace.clone(),
            job.name.clone(),
            [&*job.status, &reason].concat(),
            [&*job.succeeded.to_string(), "/", &wanted].concat(),
            job.active.to_string(),
            job.failed.to_string(),
            lasted.map_or_else(|| "<unknown>".to_owned(), age),
        ]);
    }
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_has_a_row_with_its_reason_and_duration() {
        let failed = JobRow {
            namespace: "default".to_owned(),
            name: "index".to_owned(),
            status: "Failed".to_owned(),
            reason: "DeadlineExceeded".to_owned(),
            completions: Some(3),
            succeeded: 1,
            failed: 2,
            start_time: Some(100),
            completion_time: Some(160),
            ..JobRow::default()
        };
        let queue =
            JobRow { name: "queue".to_owned(), completions: None, start_time: None, active: 2, ..failed.clone() };
        let expected = "\
NAMESPACE   NAME    STATUS                      COMPLETIONS      ACTIVE   FAILED   DURATION
default     index   Failed (DeadlineExceeded)   1/3              0        2        60s
default     queue   Failed (DeadlineExceeded)   1/1 of a queue   2        2        <unknown>
";
        let rows = JobRows { jobs: vec![failed, queue], ..JobRows::default() };
        assert_eq!(tables(&rows, 1000), expected);
        assert_eq!(tables(&JobRows::default(), 0), "No jobs.\n");
    }

    #[test]
    fn cron_job_has_a_row_with_its_times_or_its_problem() {
        let backup = CronJobRow {
            namespace: "default".to_owned(),
            name: "backup".to_owned(),
            schedule: "0 3 * * *".to_owned(),
            time_zone: Some("Europe/Berlin".to_owned()),
            active: 1,
            last_schedule_time: Some(1000),
            next_schedule_time: Some(87_400),
            ..CronJobRow::default()
        };
        let suspended = CronJobRow {
            suspend: true,
            time_zone: None,
            active: 0,
            last_schedule_time: None,
            next_schedule_time: None,
            ..backup.clone()
        };
        let broken = CronJobRow { problem: "no such zone".to_owned(), ..suspended.clone() };
        let expected = "\
NAMESPACE   NAME     SCHEDULE    TIMEZONE        SUSPEND   ACTIVE   LAST SCHEDULE   NEXT
default     backup   0 3 * * *   Europe/Berlin   False     1        60s             in 23h
default     backup   0 3 * * *   <none>          True      0        <none>          <none>
default     backup   0 3 * * *   <none>          True      0        <none>          no such zone
";
        let rows = JobRows { cron_jobs: vec![backup, suspended, broken], ..JobRows::default() };
        assert_eq!(tables(&rows, 1060), expected);
    }
}
