//! Jobs and CronJobs of a node without a cluster: their documents, which end by themselves or never, and their rules.

mod checks;
mod documents;
mod rules;

use std::time::Duration;

use crate::types::api::ConcurrencyPolicy;

pub(super) use rules::JobRules;

/// Labels of the pods of a document and of its Jobs.
const JOB_REVISION: &str = "job-revision";
const JOB_NAME: &str = "job-name";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// Numbers select among the documents that exist at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobStep {
    Write(JobTraits),
    /// So many documents at once.
    Fill(usize, JobTraits),
    /// Or resumes.
    Suspend(u64),
    SetParallelism(u64, u32),
    /// Of a Job, which is then another one.
    ChangeTemplate(u64),
    SetPolicy(u64, ConcurrencyPolicy),
    Remove(u64),
}

/// A document of a Job, or of a CronJob with such Jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct JobTraits {
    pub(super) completions: Option<u32>,
    pub(super) parallelism: Option<u32>,
    pub(super) indexed: bool,
    /// `restartPolicy: OnFailure`, else `Never`.
    pub(super) on_failure: bool,
    pub(super) backoff_limit: u32,
    pub(super) deadline: Option<u32>,
    pub(super) ttl: Option<u32>,
    pub(super) suspend: bool,
    /// Longest time until a container exits; `None`: it runs until it is stopped.
    pub(super) lasts: Option<Duration>,
    /// The chance that it fails, in percent.
    pub(super) fails: u64,
    pub(super) cron: Option<CronTraits>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CronTraits {
    /// A Job each so many minutes.
    pub(super) minutes: i64,
    pub(super) policy: ConcurrencyPolicy,
    pub(super) starting_deadline: Option<u32>,
}

#[cfg(test)]
mod tests;
