//! Jobs and CronJobs of manifests, as far as they have a meaning on one node. Pure.

use super::metadata::{Dropped, ObjectMeta};
use super::workload::PodTemplate;

object! {
    /// A `batch/v1` Job.
    pub struct Job {
        api_version: String,
        kind: String,
        metadata: ObjectMeta,
        spec: JobSpec,
        status: Dropped,
    }
}

object! {
    pub struct JobSpec {
        completions: Option<i32>,
        parallelism: Option<i32>,
        backoff_limit: Option<i32>,
        active_deadline_seconds: Option<i64>,
        ttl_seconds_after_finished: Option<i32>,
        completion_mode: CompletionMode,
        suspend: bool,
        template: PodTemplate,
    }
}

words! {
    #[derive(Default)]
    pub enum CompletionMode {
        #[default]
        NonIndexed = "NonIndexed",
        Indexed = "Indexed",
    }
}

object! {
    /// A `batch/v1` CronJob, without the template of its Jobs.
    pub struct CronJob {
        api_version: String,
        kind: String,
        metadata: ObjectMeta,
        spec: CronJobSpec,
        status: Dropped,
    }
}

object! {
    pub struct CronJobSpec {
        schedule: String,
        /// Such as `Europe/Berlin`; the node's own if unset.
        time_zone: Option<String>,
        concurrency_policy: ConcurrencyPolicy,
        starting_deadline_seconds: Option<i64>,
        suspend: bool,
        successful_jobs_history_limit: Option<i32>,
        failed_jobs_history_limit: Option<i32>,
    }
}

words! {
    #[derive(Default)]
    pub enum ConcurrencyPolicy {
        #[default]
        Allow = "Allow",
        Forbid = "Forbid",
        Replace = "Replace",
    }
}
