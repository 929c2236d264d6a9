//! The documents of Jobs and CronJobs, and the steps that write, change and remove them.

use serde_json::{Value, json};

use super::{CronTraits, JOB_REVISION, JobStep, JobTraits};
use crate::simulation::life::Node;
use crate::types::api::ConcurrencyPolicy;

/// The first is the name of the others' owner with an index.
const NAMES: [&str; 6] = ["task", "task-1", "task-2", "load", "load-1", "copy"];

impl JobTraits {
    /// `None`: a work queue, which is complete when one pod has succeeded and all have ended.
    pub(super) fn wanted_completions(&self) -> Option<u32> {
        self.completions.or_else(|| self.parallelism.is_none().then_some(1))
    }

    pub(super) fn wanted_parallelism(&self) -> u32 {
        self.parallelism.unwrap_or(1)
    }

    pub(super) fn may_overlap(&self) -> bool {
        self.cron.is_none_or(|cron| cron.policy == ConcurrencyPolicy::Allow)
    }

    fn object(&self, name: &str, revision: u64) -> Value {
        let pod = json!({
            "restartPolicy": if self.on_failure { "OnFailure" } else { "Never" },
            "terminationGracePeriodSeconds": 10, "enableServiceLinks": false,
            "containers": [{ "name": "main", "image": "busybox", "imagePullPolicy": "IfNotPresent" }],
        });
        let mut spec = json!({
            "backoffLimit": self.backoff_limit,
            "template": { "metadata": { "labels": { JOB_REVISION: revision.to_string() } }, "spec": pod },
        });
        for (key, value) in [
            ("completions", self.completions),
            ("parallelism", self.parallelism),
            ("activeDeadlineSeconds", self.deadline),
            ("ttlSecondsAfterFinished", self.ttl),
        ] {
            if let Some(value) = value {
                spec[key] = json!(value);
            }
        }
        if self.indexed {
            spec["completionMode"] = json!("Indexed");
        }
        let metadata = json!({ "name": name });
        let Some(CronTraits { minutes, policy, starting_deadline }) = self.cron else {
            spec["suspend"] = json!(self.suspend);
            return json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec });
        };
        let mut cron = json!({
            "schedule": format!("*/{minutes} * * * *"), "timeZone": "UTC", "concurrencyPolicy": policy.as_str(),
            "suspend": self.suspend, "jobTemplate": { "spec": spec },
        });
        if let Some(deadline) = starting_deadline {
            cron["startingDeadlineSeconds"] = json!(deadline);
        }
        json!({ "apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": cron })
    }
}

impl Node {
    pub(in crate::simulation) fn take_job_step(&mut self, step: JobStep) {
        match step {
            JobStep::Write(traits) => {
                let is_free = |name: &&str| !self.runtime.jobs.borrow().has(name);
                if let Some(name) = NAMES.into_iter().find(is_free) {
                    self.write_job(name, traits);
                }
            }
            JobStep::Fill(count, traits) => {
                for number in 0..count {
                    self.write_job(&format!("fill-{number}"), traits);
                }
            }
            JobStep::Suspend(which) => self.edit_job(which, |traits| traits.suspend = !traits.suspend),
            JobStep::SetParallelism(which, parallelism) => self.edit_job(which, |traits| {
                // With another meaning of its completions it would be another Job.
                if traits.parallelism.is_some() && traits.cron.is_none() {
                    traits.parallelism = Some(parallelism.max(1));
                }
            }),
            JobStep::SetPolicy(which, policy) => self.edit_job(which, |traits| {
                if let Some(cron) = &mut traits.cron {
                    cron.policy = policy;
                }
            }),
            JobStep::ChangeTemplate(which) => {
                let Some((revision, name, traits)) = self.runtime.jobs.borrow().pick(which) else { return };
                if traits.cron.is_none() {
                    self.runtime.jobs.borrow_mut().remove(revision);
                    self.write_job(&name, traits);
                }
            }
            JobStep::Remove(which) => {
                let Some((revision, name, _)) = self.runtime.jobs.borrow().pick(which) else { return };
                self.runtime.jobs.borrow_mut().remove(revision);
                self.machine.remove_manifest(&name);
            }
        }
    }

    fn write_job(&mut self, name: &str, traits: JobTraits) {
        let revision = self.runtime.jobs.borrow_mut().add(name, traits, self.world.passed());
        self.machine.write_manifest(name, &traits.object(name, revision).to_string());
    }

    fn edit_job(&mut self, which: u64, edit: impl Fn(&mut JobTraits)) {
        let Some((revision, name, mut traits)) = self.runtime.jobs.borrow().pick(which) else { return };
        edit(&mut traits);
        self.runtime.jobs.borrow_mut().edit(revision, traits, self.world.passed());
        self.machine.write_manifest(&name, &traits.object(&name, revision).to_string());
    }
}
