//! What a node must not forget of a Job: the pods that it made, and what became of them. Pure.

use crate::types::api::{PodPhase, record};

record! {
    /// Written before a pod is made, replaced or counted as finished.
    #[derive(Eq)]
    pub(crate) struct JobRecord {
        /// Of the template: a document with another one is another Job.
        pub(crate) uid: String,
        /// Number of pods that were made, which is the number of the next.
        pub(crate) made: u32,
        /// In the order in which they were made.
        pub(crate) active: Vec<ActivePod>,
        /// The last pods that ended, for users. They never run again.
        pub(crate) ended: Vec<EndedPod>,
        pub(crate) succeeded: u32,
        pub(crate) failed: u32,
        /// Failures since the last success, for the back-off.
        pub(crate) failed_in_row: u32,
        /// Indexes that have succeeded, as ranges with both ends, in order.
        pub(crate) completed: Vec<(i64, i64)>,
        pub(crate) is_suspended: bool = "suspended",
        /// Unix time; `None` if the clock was not set.
        pub(crate) started: Option<i64>,
        pub(crate) finished: Option<i64>,
        /// `Complete` or `Failed` of a finished Job, as upstream's conditions.
        pub(crate) condition: String,
        /// Why it has failed.
        pub(crate) reason: String,
        /// Of a Job that a CronJob started.
        pub(crate) run: Option<CronRun>,
        /// Of a CronJob, which has none of the above.
        pub(crate) schedule: Option<ScheduleRecord>,
    }
}

record! {
    /// Why a Job without a document exists.
    #[derive(Eq)]
    pub(crate) struct CronRun {
        /// The file of the CronJob's record.
        pub(crate) cron_job: String,
        /// The scheduled Unix time.
        pub(crate) time: i64,
        /// The pod that is the template, as JSON: a changed CronJob does not change Jobs that have started.
        pub(crate) template: String,
    }
}

record! {
    /// Which times of a CronJob are over, so that no Job starts twice.
    #[derive(Eq)]
    pub(crate) struct ScheduleRecord {
        /// Ranges of Unix times with both ends, in order and apart: each scheduled time in them was started or does not
        /// count. A clock that jumps ahead leaves a gap, so that the times in it come when it is set back.
        pub(crate) over: Vec<(i64, i64)>,
        /// The last time that was started.
        pub(crate) last: Option<i64>,
    }
}

record! {
    #[derive(Eq)]
    pub(crate) struct ActivePod {
        pub(crate) serial: u32,
        /// Of a Job with `completionMode: Indexed`.
        pub(crate) index: Option<u32>,
    }
}

record! {
    #[derive(Eq)]
    pub(crate) struct EndedPod {
        pub(crate) serial: u32,
        pub(crate) index: Option<u32>,
        pub(crate) succeeded: bool,
    }
}

/// Ended pods of a Job that stay visible.
pub(super) const SHOWN_ENDED_PODS: usize = 5;

pub(super) const JOB_COMPLETE: &str = "Complete";
pub(super) const JOB_FAILED: &str = "Failed";

impl JobRecord {
    pub(super) fn new(uid: &str) -> Self {
        Self { uid: uid.to_owned(), ..Self::default() }
    }

    /// Of a Job whose record cannot be read; without a uid, because any may be its. It does not run: it may have run.
    pub(super) fn damaged() -> Self {
        Self { condition: JOB_FAILED.to_owned(), reason: "RecordDamaged".to_owned(), ..Self::default() }
    }

    pub(super) fn is_finished(&self) -> bool {
        !self.condition.is_empty()
    }

    pub(super) fn has_completed(&self, index: u32) -> bool {
        self.completed.iter().any(|(first, last)| (*first..=*last).contains(&i64::from(index)))
    }

    pub(super) fn complete(&mut self, index: u32) {
        let index = i64::from(index);
        let at = self.completed.iter().position(|(first, _)| *first > index).unwrap_or(self.completed.len());
        self.completed.insert(at, (index, index));
        self.completed.dedup_by(|next, before| {
            let joins = before.1.saturating_add(1) >= next.0;
            if joins {
                before.1 = before.1.max(next.1);
            }
            joins
        });
    }
}

impl EndedPod {
    pub(super) fn phase(&self) -> PodPhase {
        if self.succeeded { PodPhase::Succeeded } else { PodPhase::Failed }
    }
}
