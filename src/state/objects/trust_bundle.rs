//! ClusterTrustBundles: certificates that a cluster's pods may believe. Pure.

use serde_json::Value;

use crate::protocol::pem;
use crate::types::api::{LabelSelector, Map};
use crate::types::sorted::SortedSet;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TrustBundle {
    labels: Map<String>,
    /// In PEM, as it was written.
    text: String,
}

impl TrustBundle {
    /// From the object of any version of its API.
    pub(crate) fn read(object: &Value) -> Self {
        let labels = object.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
        let text = object.pointer("/spec/trustBundle").and_then(Value::as_str).unwrap_or_default();
        Self {
            labels: labels.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?.to_owned()))).collect(),
            text: text.to_owned(),
        }
    }

    pub(super) fn is_in(&self, selector: &LabelSelector) -> bool {
        selector.selects(&self.labels)
    }
}

/// The certificates of all of them in PEM, each once and nothing else. Their order says nothing, and is the same however
/// the bundles are ordered, so that no file is written anew without need.
pub(super) fn anchors(bundles: &[&TrustBundle]) -> String {
    let found = bundles.iter().flat_map(|bundle| pem::certificates(bundle.text.as_bytes()).unwrap_or_default());
    let each: SortedSet<Vec<u8>> = found.map(|certificate| certificate.to_vec()).collect();
    each.iter().map(|der| pem::encode(pem::CERTIFICATE, der)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::types::api::decode;

    fn bundle(labels: &Value, certificates: &[&[u8]]) -> TrustBundle {
        let text: Vec<String> = certificates.iter().map(|der| pem::encode(pem::CERTIFICATE, der)).collect();
        let text = format!("# by hand\n\n{}", text.join("\nand\n"));
        TrustBundle::read(&json!({"metadata": {"labels": labels}, "spec": {"trustBundle": text}}))
    }

    #[test]
    fn each_certificate_is_there_once_in_an_order_of_its_own() {
        let (one, two) = (bundle(&json!({}), &[b"b", b"a", b"b"]), bundle(&json!({}), &[b"c", b"a"]));
        let expected: String = [b"a", b"b", b"c"].iter().map(|der| pem::encode(pem::CERTIFICATE, *der)).collect();
        assert_eq!(anchors(&[&one, &two]), expected);
        assert_eq!(anchors(&[&two, &one]), expected);
        assert_eq!(anchors(&[]), "");
        assert_eq!(anchors(&[&TrustBundle::read(&json!({"spec": {"trustBundle": "nothing"}}))]), "");
    }

    #[test]
    fn a_selector_asks_for_labels_and_an_empty_one_for_nothing() {
        let live = bundle(&json!({"stage": "live", "zone": "a"}), &[]);
        for (selector, expected) in [
            (json!({}), true),
            (json!({"matchLabels": {"stage": "live"}}), true),
            (json!({"matchLabels": {"stage": "test"}}), false),
            (json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}), true),
            (json!({"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}), false),
            (json!({"matchExpressions": [{"key": "none", "operator": "NotIn", "values": ["a"]}]}), true),
            (json!({"matchLabels": {"zone": "a"}, "matchExpressions": [{"key": "x", "operator": "Exists"}]}), false),
        ] {
            let read: LabelSelector = decode(selector.clone()).unwrap().value;
            assert_eq!(live.is_in(&read), expected, "{selector}");
        }
    }
}
