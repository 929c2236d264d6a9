//! Whether a pod is meant for this node: OS, node name, selector, taints. Pure.

use super::Rejection;
use crate::state::pods::NodeFields;
use crate::types::api::{Map, Pod, Reason, Taint, TaintEffect};

/// The node's name, labels and taints.
#[derive(Clone, Debug, Default)]
pub(super) struct ThisNode {
    name: String,
    labels: Map<String>,
    taints: Vec<Taint>,
    /// Tolerations may compare values (`TaintTolerationComparisonOperators`).
    compares_taints: bool,
}

const OS_LABEL: &str = "kubernetes.io/os";
const NODE_OS: &str = "linux";

impl ThisNode {
    /// The default labels, overridden by the configured ones. `machine` is the architecture in Rust's spelling.
    pub(super) fn new(name: &str, machine: &'static str, configured: &Map<String>, compares_taints: bool) -> Self {
        let (host, arch) = ("kubernetes.io/hostname", go_architecture(machine));
        let standard_labels = [(host, name), (OS_LABEL, NODE_OS), ("kubernetes.io/arch", arch)];
        let old = [("beta.kubernetes.io/os", NODE_OS), ("beta.kubernetes.io/arch", arch)];
        let standard_labels = standard_labels.into_iter().chain(old);
        let all_labels = standard_labels.chain(configured.iter().map(|(key, value)| (key, value.as_str())));
        let mut labels: Map<String> = all_labels.map(|(key, value)| (key, value.to_owned())).collect();
        // The OS label cannot be overridden.
        labels.insert(OS_LABEL, NODE_OS.to_owned());
        Self { name: name.to_owned(), labels, taints: Vec::new(), compares_taints }
    }

    /// Replaces labels and taints by those of the Node object.
    pub(super) fn in_cluster(&mut self, NodeFields { labels, taints, .. }: NodeFields) {
        self.labels = labels;
        self.taints = taints;
    }

    /// Freed resources cannot help a pod for another OS.
    pub(super) fn check_os(&self, pod: &Pod) -> Result<(), Rejection> {
        let refused = |reason, message: &str| Err(Rejection { reason, message: message.to_owned() });
        if pod.metadata.labels.get(OS_LABEL).is_some_and(|os| os != NODE_OS) {
            let message = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
            return refused(Reason::POD_OS_SELECTOR_NODE_LABEL_DOES_NOT_MATCH, message);
        }
        if pod.spec.os.as_ref().is_some_and(|os| os.name != NODE_OS) {
            let message = "Failed to admit pod as the OS field doesn't match node OS";
            return refused(Reason::POD_OS_NOT_SUPPORTED, message);
        }
        Ok(())
    }

    /// Node selector and required node affinity.
    pub(super) fn is_selected(&self, pod: &Pod) -> bool {
        let affinity = pod.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required = affinity.and_then(|nodes| nodes.required_during_scheduling_ignored_during_execution.as_ref());
        pod.spec.node_selector.iter().all(|(key, value)| self.labels.get(key) == Some(value))
            && required.is_none_or(|selector| selector.selects(&self.name, &self.labels))
    }

    /// Only NoExecute taints are checked here. Static pods are exempt.
    pub(super) fn is_tolerated(&self, pod: &Pod) -> bool {
        let no_execute = TaintEffect::NoExecute.as_str();
        let mut taints = self.taints.iter().filter(|taint| taint.effect == no_execute);
        let tolerates = |taint: &Taint| {
            let mut tolerations = pod.spec.tolerations.iter();
            tolerations
                .any(|toleration| toleration.tolerates(&taint.key, &taint.value, no_execute, self.compares_taints))
        };
        pod.is_static() || taints.all(tolerates)
    }

    pub(super) fn is_named(&self, pod: &Pod) -> bool {
        pod.spec.node_name.is_empty() || pod.spec.node_name == self.name
    }
}

/// The architecture in Go's spelling, as the label has it.
fn go_architecture(machine: &'static str) -> &'static str {
    match machine {
        "aarch64" => "arm64",
        "loongarch64" => "loong64",
        "powerpc64" => "ppc64le",
        "x86" => "386",
        "x86_64" => "amd64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::types::api::decode;

    fn node() -> ThisNode {
        let configured = [("zone", "a"), ("beta.kubernetes.io/arch", "own"), ("kubernetes.io/os", "plan9")];
        let configured = configured.into_iter().map(|(key, value)| (key, value.to_owned())).collect();
        ThisNode::new("node1", "aarch64", &configured, false)
    }

    fn pod(spec: Value) -> Pod {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": []}});
        pod["spec"] = spec;
        decode(pod).unwrap().value
    }

    #[test]
    fn node_selector_must_match_all_labels() {
        for (selector, expected) in [
            (json!({}), true),
            (json!({"zone": "a"}), true),
            (json!({"zone": "b"}), false),
            (json!({"zone": "a", "none": ""}), false),
            (json!({"kubernetes.io/hostname": "node1", "kubernetes.io/os": "linux"}), true),
            (json!({"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "own"}), true),
            (json!({"kubernetes.io/arch": "arm64"}), true),
        ] {
            assert_eq!(node().is_selected(&pod(json!({"nodeSelector": selector}))), expected, "{selector}");
        }
    }

    #[test]
    fn labels_of_the_node_object_are_used() {
        let mut node = node();
        let labels: Map<String> = [("zone", "c".to_owned()), ("disk", "ssd".to_owned())].into_iter().collect();
        node.in_cluster(NodeFields { labels, ..NodeFields::default() });
        let selected = |selector: Value| node.is_selected(&pod(json!({"nodeSelector": selector})));
        assert!(selected(json!({"zone": "c", "disk": "ssd"})));
        assert!(!selected(json!({"zone": "a"})));
    }

    #[test]
    fn untolerated_no_execute_taint_rejects_the_pod() {
        let taint = |value: &str, effect: &'static str| Taint {
            key: "broken".to_owned(),
            value: value.to_owned(),
            effect: effect.into(),
            ..Taint::default()
        };
        for (taints, tolerations, expected) in [
            (vec![taint("", "NoSchedule"), taint("", "PreferNoSchedule")], json!([]), true),
            (vec![taint("x", "NoExecute")], json!([]), false),
            (vec![taint("x", "NoExecute")], json!([{"key": "broken", "operator": "Exists"}]), true),
            (vec![taint("x", "NoExecute")], json!([{"operator": "Exists"}]), true),
            (vec![taint("x", "NoExecute")], json!([{"key": "broken", "value": "x", "effect": "NoExecute"}]), true),
            (vec![taint("x", "NoExecute")], json!([{"key": "broken", "value": "y"}]), false),
            (vec![taint("x", "NoExecute")], json!([{"key": "broken", "value": "x", "effect": "NoSchedule"}]), false),
            (vec![taint("1", "NoExecute")], json!([{"key": "broken", "operator": "Lt", "value": "2"}]), false),
        ] {
            let mut node = node();
            node.in_cluster(NodeFields { taints, ..NodeFields::default() });
            let mut pod = pod(json!({"tolerations": tolerations}));
            assert_eq!(node.is_tolerated(&pod), expected, "{tolerations}");
            pod.metadata.annotations.insert(crate::types::api::annotations::CONFIG_SOURCE, "file".to_owned());
            assert!(node.is_tolerated(&pod), "static pods are exempt");
        }
    }

    #[test]
    fn tolerations_compare_integers_while_the_gate_is_on() {
        let tolerated = |compares_taints, operator: &str, value: &str, of_taint: &str| {
            let taint = Taint {
                key: "level".to_owned(),
                value: of_taint.to_owned(),
                effect: "NoExecute".into(),
                ..Taint::default()
            };
            let mut node = ThisNode { compares_taints, ..node() };
            node.in_cluster(NodeFields { taints: vec![taint], ..NodeFields::default() });
            let toleration = json!({"key": "level", "operator": operator, "value": value});
            node.is_tolerated(&pod(json!({"tolerations": [toleration]})))
        };
        for (operator, value, of_taint, expected) in [
            ("Gt", "950", "990", true),
            ("Gt", "990", "990", false),
            ("Lt", "990", "950", true),
            ("Lt", "-5", "-6", true),
            ("Lt", "950", "990", false),
            ("Lt", "990", "0950", false),
            ("Lt", "990", "low", false),
        ] {
            assert_eq!(tolerated(true, operator, value, of_taint), expected, "{operator} {value} {of_taint}");
            assert!(!tolerated(false, operator, value, of_taint), "{operator} {value} {of_taint}");
        }
    }

    #[test]
    fn selector_and_required_affinity_must_both_match() {
        let with = |zone: &str, name: &str| {
            let field = json!({"key": "metadata.name", "operator": "In", "values": [name]});
            let required = json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
            let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
            node().is_selected(&pod(json!({"nodeSelector": {"zone": zone}, "affinity": affinity})))
        };
        assert_eq!([with("a", "node1"), with("a", "node2"), with("b", "node1")], [true, false, false]);
        // Preferred affinity and pod affinity are only for the scheduler.
        assert!(node().is_selected(&pod(json!({"affinity": {"podAffinity": {"x": 1}, "nodeAffinity": {}}}))));
    }

    #[test]
    fn pod_for_another_node_or_os_is_rejected() {
        assert!(node().is_named(&pod(json!({}))) && node().is_named(&pod(json!({"nodeName": "node1"}))));
        assert!(!node().is_named(&pod(json!({"nodeName": "node2"}))));
        let reason = |pod: &Pod| node().check_os(pod).err().map(|rejection| rejection.reason);
        assert_eq!(reason(&pod(json!({"os": {"name": "linux"}}))), None);
        assert_eq!(reason(&pod(json!({"os": {"name": "windows"}}))), Some(Reason::POD_OS_NOT_SUPPORTED));
        let mut labelled = pod(json!({}));
        for (os, expected) in [("linux", None), ("windows", Some(Reason::POD_OS_SELECTOR_NODE_LABEL_DOES_NOT_MATCH))] {
            labelled.metadata.labels.insert(OS_LABEL, os.to_owned());
            assert_eq!(reason(&labelled), expected);
        }
    }
}
