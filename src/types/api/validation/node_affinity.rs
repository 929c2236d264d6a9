//! Validates node selectors and node affinity. Pure.

use super::faults::Faults;
use super::names::{LABEL_KEY, LABEL_VALUE};
use crate::types::api::decode::Path;
use crate::types::api::{NODE_NAME_FIELD, NodeSelectorOperator, NodeSelectorRequirement, PodSpec};

pub(super) fn check(spec: &PodSpec, path: &Path<'_>, faults: &mut Faults) {
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|nodes| nodes.required_during_scheduling_ignored_during_execution.as_ref());
    let Some(required) = required else { return };
    let path = path.key("nodeAffinity");
    let path = path.key("requiredDuringSchedulingIgnoredDuringExecution");
    let path = path.key("nodeSelectorTerms");
    if required.node_selector_terms.is_empty() {
        faults.required_as(&path, "at least one term");
    }
    for (index, term) in required.node_selector_terms.iter() {
        let path = path.index(index);
        for (index, label) in term.match_expressions.iter().enumerate() {
            check_label(label, &path.key("matchExpressions").index(index), faults);
        }
        for (index, field) in term.match_fields.iter().enumerate() {
            check_field(field, &path.key("matchFields").index(index), faults);
        }
    }
}

fn check_label(label: &NodeSelectorRequirement, path: &Path<'_>, faults: &mut Faults) {
    faults.required_name(&path.key("key"), &label.key, &LABEL_KEY);
    let values = path.key("values");
    match label.operator {
        None => faults.required(&path.key("operator")),
        Some(NodeSelectorOperator::In | NodeSelectorOperator::NotIn) => {
            if label.values.is_empty() {
                faults.required_as(&values, "at least one value when the operator is \"In\" or \"NotIn\"");
            }
            for (index, value) in label.values.iter().enumerate() {
                faults.name(&values.index(index), value, &LABEL_VALUE);
            }
        }
        Some(NodeSelectorOperator::Exists | NodeSelectorOperator::DoesNotExist) if !label.values.is_empty() => {
            faults.forbidden(&values, "when the operator is \"Exists\" or \"DoesNotExist\"");
        }
        Some(NodeSelectorOperator::Exists | NodeSelectorOperator::DoesNotExist) => {}
        Some(NodeSelectorOperator::Gt | NodeSelectorOperator::Lt) => {
            if label.values.len() != 1 {
                faults.required_as(&values, "a single value when the operator is \"Gt\" or \"Lt\"");
            }
        }
    }
}

fn check_field(field: &NodeSelectorRequirement, path: &Path<'_>, faults: &mut Faults) {
    if field.key != NODE_NAME_FIELD {
        faults.invalid(&path.key("key"), &field.key, format_args!("must be {NODE_NAME_FIELD:?}"));
    }
    match field.operator {
        Some(NodeSelectorOperator::In | NodeSelectorOperator::NotIn) => {
            if field.values.len() != 1 {
                faults.required_as(&path.key("values"), "a single value for a field");
            }
        }
        None => faults.required(&path.key("operator")),
        Some(operator) => {
            faults.invalid(&path.key("operator"), operator.as_str(), "must be \"In\" or \"NotIn\" for a field");
        }
    }
}
