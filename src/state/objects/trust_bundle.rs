//! ClusterTrustBundles. Pure.

use serde_json::Value;

use crate::protocol::pem;
use crate::types::api::{LabelSelector, Map};
use crate::types::sorted::SortedSet;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TrustBundle {
    labels: Map<String>,
    /// PEM as in the object.
    text: String,
}

impl TrustBundle {
    /// Reads the object of any API version.
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

/// The certificates of all bundles in PEM, without duplicates or other text. Sorted, so that the result does not
/// depend on the order of the bundles and files are not rewritten without need.
pub(super) fn anchors(bundles: &[&TrustBundle]) -> String {
    let certificates = bundles.iter().flat_map(|bundle| pem::certificates(bundle.text.as_bytes()).unwrap_or_default());
    let each: SortedSet<Vec<u8>> = certificates.map(|certificate| certificate.to_vec()).collect();
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
    fn each_certificate_appears_once_in_sorted_order() {
        let (one, two) = (bundle(&json!({}), &[b"b", b"a", b"b"]), bundle(&json!({}), &[b"c", b"a"]));
        let expected: String = [b"a", b"b", b"c"].iter().map(|der| pem::encode(pem::CERTIFICATE, *der)).collect();
        assert_eq!(anchors(&[&one, &two]), expected);
        assert_eq!(anchors(&[&two, &one]), expected);
        assert_eq!(anchors(&[]), "");
        assert_eq!(anchors(&[&TrustBundle::read(&json!({"spec": {"trustBundle": "nothing"}}))]), "");
    }

    #[test]
    fn selector_matches_labels_and_empty_one_matches_all() {
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
