//! Node selectors and label selectors. Pure.

use super::decode::{Decode, DecodeContext, DecodeError, Input};
use super::encode::{Encode, Json};
use super::map::Map;
use super::texts::{Texts, Unread, UnreadList};

object! {
    pub struct Affinity {
        node_affinity: Option<Box<NodeAffinity>>,
        pod_affinity: Option<Unread>,
        pod_anti_affinity: Option<Unread>,
    }
}

object! {
    pub struct NodeAffinity {
        required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
        preferred_during_scheduling_ignored_during_execution: UnreadList,
    }
}

object! {
    /// Selects a node that matches at least one term.
    pub struct NodeSelector {
        @always {
            node_selector_terms: NodeSelectorTerms,
        }
    }
}

/// The terms of a selector. Those without requirements, which match no node, are only counted: a pod may have 500,000.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSelectorTerms {
    /// The others, each with its index in the list.
    terms: Vec<(usize, NodeSelectorTerm)>,
    len: usize,
}

object! {
    /// Matches a node that meets every requirement.
    pub struct NodeSelectorTerm {
        match_expressions: Vec<NodeSelectorRequirement>,
        match_fields: Vec<NodeSelectorRequirement>,
    }
}

object! {
    pub struct NodeSelectorRequirement {
        key: String,
        operator: Option<NodeSelectorOperator>,
        values: Texts,
    }
}

words! {
    pub enum NodeSelectorOperator {
        DoesNotExist = "DoesNotExist",
        Exists = "Exists",
        Gt = "Gt",
        In = "In",
        Lt = "Lt",
        NotIn = "NotIn",
    }
}

object! {
    /// Every entry must match; an empty selector selects every object.
    pub struct LabelSelector {
        match_labels: Map<String>,
        match_expressions: Vec<NodeSelectorRequirement>,
    }
}

impl LabelSelector {
    pub fn selects(&self, labels: &Map<String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|label| label.holds(labels.get(&label.key).map(String::as_str)))
    }
}

/// The only field that `matchFields` may name.
pub const NODE_NAME_FIELD: &str = "metadata.name";

impl NodeSelector {
    pub fn selects(&self, node_name: &str, labels: &Map<String>) -> bool {
        self.node_selector_terms.iter().any(|(_, term)| term.selects(node_name, labels))
    }
}

impl NodeSelectorTerms {
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The terms with requirements, each with its index in the list.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &NodeSelectorTerm)> {
        self.terms.iter().map(|(index, term)| (*index, term))
    }
}

impl Decode for NodeSelectorTerms {
    fn decode(input: Input<'_>, context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        let mut all = Self::default();
        input.each_decoded(context, &mut |index, term: NodeSelectorTerm| {
            all.len = index + 1;
            if term != NodeSelectorTerm::default() {
                all.terms.push((index, term));
            }
        })?;
        Ok(all)
    }
}

impl Encode for NodeSelectorTerms {
    fn write(&self, json: &mut Json) {
        let empty = NodeSelectorTerm::default();
        let mut terms = self.terms.iter().peekable();
        let all = (0..self.len).map(|index| terms.next_if(|(of, _)| *of == index).map_or(&empty, |(_, term)| term));
        json.list(all, |term, json| term.write(json));
    }
}

impl NodeSelectorTerm {
    fn selects(&self, node_name: &str, labels: &Map<String>) -> bool {
        let name = |field: &NodeSelectorRequirement| (field.key == NODE_NAME_FIELD).then_some(node_name);
        self.match_expressions.iter().all(|label| label.holds(labels.get(&label.key).map(String::as_str)))
            && self.match_fields.iter().all(|field| field.holds(name(field)))
    }
}

impl NodeSelectorRequirement {
    fn holds(&self, label: Option<&str>) -> bool {
        let is_listed = |label_value| self.values.iter().any(|value| value == label_value);
        match self.operator {
            None => false,
            Some(NodeSelectorOperator::DoesNotExist) => label.is_none(),
            Some(NodeSelectorOperator::Exists) => label.is_some(),
            Some(NodeSelectorOperator::Gt) => self.compares(label, |label_value, value| label_value > value),
            Some(NodeSelectorOperator::In) => label.is_some_and(is_listed),
            Some(NodeSelectorOperator::Lt) => self.compares(label, |label_value, value| label_value < value),
            Some(NodeSelectorOperator::NotIn) => !label.is_some_and(is_listed),
        }
    }

    /// Compares both values as integers; false if either is not an integer.
    fn compares(&self, label: Option<&str>, holds: fn(i64, i64) -> bool) -> bool {
        let (1, Some(value)) = (self.values.len(), self.values.get(0)) else { return false };
        let label_value = label.and_then(|label_value| label_value.parse().ok());
        label_value.zip(value.parse().ok()).is_some_and(|(label_value, value)| holds(label_value, value))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::types::api::{decode, encode};

    #[track_caller]
    fn check(terms: Value, expected: bool) {
        let selector: NodeSelector = decode(json!({ "nodeSelectorTerms": terms })).unwrap().value;
        let labels = [("zone", "a"), ("cores", "4"), ("name", "x")];
        let labels = labels.into_iter().map(|(key, value)| (key, value.to_owned())).collect();
        assert_eq!(selector.selects("node1", &labels), expected, "{selector:?}");
    }

    fn label(key: &str, operator: &str, values: &[&str]) -> Value {
        json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}])
    }

    #[test]
    fn each_operator_compares_the_label() {
        for (key, operator, values, expected) in [
            ("zone", "In", &["b", "a"][..], true),
            ("zone", "In", &["b"], false),
            ("none", "In", &["b"], false),
            ("zone", "NotIn", &["b"], true),
            ("zone", "NotIn", &["a", "b"], false),
            ("none", "NotIn", &["a"], true),
            ("zone", "Exists", &[], true),
            ("none", "Exists", &[], false),
            ("zone", "DoesNotExist", &[], false),
            ("none", "DoesNotExist", &[], true),
            ("cores", "Gt", &["3"], true),
            ("cores", "Gt", &["4"], false),
            ("cores", "Lt", &["5"], true),
            ("cores", "Lt", &["4"], false),
            ("zone", "Gt", &["3"], false),
            ("none", "Lt", &["3"], false),
            ("cores", "Gt", &["x"], false),
            ("cores", "Gt", &[], false),
        ] {
            check(label(key, operator, values), expected);
        }
    }

    #[test]
    fn terms_without_requirements_are_only_counted() {
        let selector =
            json!({"nodeSelectorTerms": [{}, {"matchFields": []}, {"matchExpressions": [{"key": "a"}]}, {}]});
        let decoded: NodeSelector = decode(selector).unwrap().value;
        let encoded = json!({"nodeSelectorTerms": [{}, {}, {"matchExpressions": [{"key": "a"}]}, {}]});
        assert_eq!(encode(&decoded), encoded);
        let kept: Vec<usize> = decoded.node_selector_terms.iter().map(|(index, _)| index).collect();
        assert_eq!((kept, decoded.node_selector_terms.is_empty()), (vec![2], false));
    }

    #[test]
    fn one_term_with_all_requirements_met_selects() {
        check(json!([]), false);
        check(json!([{}]), false);
        let (yes, no) = (json!({"key": "zone", "operator": "Exists"}), json!({"key": "none", "operator": "Exists"}));
        check(json!([{"matchExpressions": [no]}, {"matchExpressions": [yes]}]), true);
        check(json!([{"matchExpressions": [yes, no]}]), false);
        let name =
            |operator: &str, value: &str| json!({"key": "metadata.name", "operator": operator, "values": [value]});
        check(json!([{"matchFields": [name("In", "node1")]}]), true);
        check(json!([{"matchFields": [name("NotIn", "node1")]}]), false);
        check(json!([{"matchFields": [name("In", "node1")], "matchExpressions": [no]}]), false);
        // A label with the name of a field is not that field.
        check(json!([{"matchFields": [{"key": "name", "operator": "In", "values": ["x"]}]}]), false);
    }
}
