//! The kinds of workloads, and what each field of them means on one node. Pure.

use serde_json::{Map, Value};

use self::WorkloadKind::{CronJob, DaemonSet, Deployment, Job, StatefulSet};
use super::Warning;
use crate::types::api::validation::FieldError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkloadKind {
    CronJob,
    DaemonSet,
    Deployment,
    Job,
    StatefulSet,
}

impl WorkloadKind {
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        [Self::CronJob, Self::DaemonSet, Self::Deployment, Self::Job, Self::StatefulSet]
            .into_iter()
            .find(|kind| kind.as_str() == word)
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::CronJob => "CronJob",
            Self::DaemonSet => "DaemonSet",
            Self::Deployment => "Deployment",
            Self::Job => "Job",
            Self::StatefulSet => "StatefulSet",
        }
    }
}

/// Removes the fields of the spec that have no meaning here. Harmless ones become warnings, the others errors.
pub(super) fn take_known_fields(
    kind: WorkloadKind,
    object: &mut Map<String, Value>,
    warnings: &mut Vec<Warning>,
) -> Vec<FieldError> {
    let mut faults = Vec::new();
    let Some(Value::Object(spec)) = object.get_mut("spec") else { return faults };
    spec.retain(|key, value| {
        if value.is_null() {
            return false;
        }
        let field = WORKLOAD_FIELDS.iter().find(|field| field.name == key && field.kinds.contains(&kind));
        let path = format!("spec.{key}");
        match field.map(|field| &field.meaning) {
            Some(FieldMeaning::Used) => return true,
            Some(FieldMeaning::NoEffect(why)) => warnings.push(Warning::NoEffect(path, (*why).to_owned())),
            Some(FieldMeaning::Refused(why)) => {
                faults.push(FieldError { path, problem: format!("has no meaning on one node: {why}") });
            }
            Some(FieldMeaning::Unsupported(instead)) => {
                faults.push(FieldError { path, problem: format!("is not supported: {instead}") });
            }
            None => warnings.push(Warning::UnknownField(path)),
        }
        false
    });
    faults
}

struct WorkloadField {
    name: &'static str,
    kinds: &'static [WorkloadKind],
    meaning: FieldMeaning,
}

enum FieldMeaning {
    Used,
    /// What happens without it.
    NoEffect(&'static str),
    /// What to do instead.
    Refused(&'static str),
    /// It would have a meaning, which this node does not know. What to do instead.
    Unsupported(&'static str),
}

const fn field(name: &'static str, kinds: &'static [WorkloadKind], meaning: FieldMeaning) -> WorkloadField {
    WorkloadField { name, kinds, meaning }
}

const ALL_KINDS: &[WorkloadKind] = &[DaemonSet, Deployment, StatefulSet];

const FEWER_RULES: &str = "backoffLimit counts the failed pods of the Job";

const WORKLOAD_FIELDS: [WorkloadField; 36] = [
    field("activeDeadlineSeconds", &[Job], FieldMeaning::Used),
    field("backoffLimit", &[Job], FieldMeaning::Used),
    field("backoffLimitPerIndex", &[Job], FieldMeaning::Unsupported(FEWER_RULES)),
    field("completionMode", &[Job], FieldMeaning::Used),
    field("completions", &[Job], FieldMeaning::Used),
    field("concurrencyPolicy", &[CronJob], FieldMeaning::Used),
    field("failedJobsHistoryLimit", &[CronJob], FieldMeaning::Used),
    field("jobTemplate", &[CronJob], FieldMeaning::Used),
    field("managedBy", &[Job], FieldMeaning::Refused("the node runs its Jobs itself")),
    field("manualSelector", &[Job], FieldMeaning::NoEffect("the node knows the pods of its Jobs")),
    field("maxFailedIndexes", &[Job], FieldMeaning::Unsupported(FEWER_RULES)),
    field("minReadySeconds", ALL_KINDS, FieldMeaning::NoEffect("a new version is accepted when it is ready")),
    field("ordinals", &[StatefulSet], FieldMeaning::Refused("the pod has the number 0")),
    field("parallelism", &[Job], FieldMeaning::Used),
    field("paused", &[Deployment], FieldMeaning::Used),
    field(
        "persistentVolumeClaimRetentionPolicy",
        &[StatefulSet],
        FieldMeaning::NoEffect("data is kept until it is deleted"),
    ),
    field("podFailurePolicy", &[Job], FieldMeaning::Unsupported(FEWER_RULES)),
    field("podManagementPolicy", &[StatefulSet], FieldMeaning::NoEffect("there is one pod")),
    field("podReplacementPolicy", &[Job], FieldMeaning::NoEffect("a pod is replaced when it has ended")),
    field("progressDeadlineSeconds", &[Deployment], FieldMeaning::Used),
    field("replicas", &[Deployment, StatefulSet], FieldMeaning::Used),
    field("revisionHistoryLimit", ALL_KINDS, FieldMeaning::Used),
    field("schedule", &[CronJob], FieldMeaning::Used),
    field("selector", ALL_KINDS, FieldMeaning::Used),
    field("selector", &[Job], FieldMeaning::NoEffect("the node knows the pods of its Jobs")),
    field("serviceName", &[StatefulSet], FieldMeaning::Used),
    field("startingDeadlineSeconds", &[CronJob], FieldMeaning::Used),
    field("strategy", &[Deployment], FieldMeaning::Used),
    field("successfulJobsHistoryLimit", &[CronJob], FieldMeaning::Used),
    field("successPolicy", &[Job], FieldMeaning::Unsupported("a Job is complete when all completions have succeeded")),
    field("suspend", &[CronJob, Job], FieldMeaning::Used),
    field("template", &[DaemonSet, Deployment, Job, StatefulSet], FieldMeaning::Used),
    field("timeZone", &[CronJob], FieldMeaning::Used),
    field("ttlSecondsAfterFinished", &[Job], FieldMeaning::Used),
    field("updateStrategy", &[DaemonSet, StatefulSet], FieldMeaning::Used),
    field("volumeClaimTemplates", &[StatefulSet], FieldMeaning::Used),
];
