//! `coracle jobs`.

use std::process::ExitCode;

use super::command_table::ListJobs;
use super::local_api::get;
use super::outputs::TopOutput;
use super::pod_row::age;
use super::table::table;
use super::{failed, print};
use crate::control::server::{JobRow, JobRows};
use crate::platform::host::clock;
use crate::types::error::ErrorChain;

pub(super) fn run(command: &ListJobs) -> ExitCode {
    let mut response: JobRows = match get(&command.local_socket, "/jobs") {
        Ok(response) => response,
        Err(error) => return failed(&ErrorChain(&error).to_string()),
    };
    response.jobs.retain(|job| command.namespace.as_deref().is_none_or(|namespace| namespace == job.namespace));
    match command.output {
        TopOutput::Table => print(&rows(&response.jobs, clock::now().unix_seconds())),
        TopOutput::Json => print(&(serde_json::to_string_pretty(&response).unwrap_or_default() + "\n")),
    }
}

fn rows(jobs: &[JobRow], now: i64) -> String {
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
        assert_eq!(rows(&[failed, queue], 1000), expected);
        assert_eq!(rows(&[], 0), "No jobs.\n");
    }
}
