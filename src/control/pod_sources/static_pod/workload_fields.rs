//! The kinds of workloads, and what each field of a Deployment, a DaemonSet or a StatefulSet means on one node. Pure.

use serde_json::{Map, Value};

use self::WorkloadKind::{DaemonSet, Deployment, StatefulSet};
use super::Warning;
use crate::types::api::validation::FieldError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkloadKind {
    DaemonSet,
    Deployment,
    StatefulSet,
}

impl WorkloadKind {
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        [Self::DaemonSet, Self::Deployment, Self::StatefulSet].into_iter().find(|kind| kind.as_str() == word)
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::DaemonSet => "DaemonSet",
            Self::Deployment => "Deployment",
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
}

const fn field(name: &'static str, kinds: &'static [WorkloadKind], meaning: FieldMeaning) -> WorkloadField {
    WorkloadField { name, kinds, meaning }
}

const ALL_KINDS: &[WorkloadKind] = &[DaemonSet, Deployment, StatefulSet];

const WORKLOAD_FIELDS: [WorkloadField; 14] = [
    field("minReadySeconds", ALL_KINDS, FieldMeaning::NoEffect("a new version is accepted when it is ready")),
    field("ordinals", &[StatefulSet], FieldMeaning::Refused("the pod has the number 0")),
    field("paused", &[Deployment], FieldMeaning::Used),
    field(
        "persistentVolumeClaimRetentionPolicy",
        &[StatefulSet],
        FieldMeaning::NoEffect("data is kept until it is deleted"),
    ),
    field("podManagementPolicy", &[StatefulSet], FieldMeaning::NoEffect("there is one pod")),
    field("progressDeadlineSeconds", &[Deployment], FieldMeaning::Used),
    field("replicas", &[Deployment, StatefulSet], FieldMeaning::Used),
    field("revisionHistoryLimit", ALL_KINDS, FieldMeaning::Used),
    field("selector", ALL_KINDS, FieldMeaning::Used),
    field("serviceName", &[StatefulSet], FieldMeaning::Used),
    field("strategy", &[Deployment], FieldMeaning::Used),
    field("template", ALL_KINDS, FieldMeaning::Used),
    field("updateStrategy", &[DaemonSet, StatefulSet], FieldMeaning::Used),
    field("volumeClaimTemplates", &[StatefulSet], FieldMeaning::Used),
];
