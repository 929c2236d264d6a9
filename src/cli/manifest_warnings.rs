//! Parts of valid pods that are hardly meant, for `coracle validate`. Pure.

use crate::types::api::annotations::READY_WITHIN;
use crate::types::api::{MEMORY, Pod, Quantity};

/// One line for each.
pub(super) fn warnings(pod: &Pod) -> Vec<String> {
    let mut lines = Vec::new();
    for (index, container) in pod.spec.containers.iter().enumerate() {
        let resources = &container.resources;
        for (list, amounts) in [("limits", &resources.limits), ("requests", &resources.requests)] {
            for (name, amount) in amounts.iter().filter(|(name, amount)| is_of_bytes(name) && is_in_thousandths(amount))
            {
                lines.push(format!(
                    "spec.containers[{index}].resources.{list}.{name}: {amount} is less than a byte: m means \
                     thousandths, Mi means mebibytes"
                ));
            }
        }
    }
    if pod.annotation(READY_WITHIN).is_some() && !pod.has_readiness_check() {
        lines.push(format!(
            "metadata.annotations: {READY_WITHIN} without a readiness probe: a version is accepted after ten seconds \
             without a restart"
        ));
    }
    lines
}

fn is_of_bytes(resource: &str) -> bool {
    resource == MEMORY || resource == "ephemeral-storage" || resource.starts_with("hugepages-")
}

fn is_in_thousandths(amount: &Quantity) -> bool {
    amount.to_string().ends_with('m')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::types::api::decode;

    #[track_caller]
    fn check(pod: serde_json::Value, expected: &[&str]) {
        let lines = warnings(&decode::<Pod>(pod).unwrap().value);
        assert_eq!(lines.len(), expected.len(), "{lines:?}");
        for (line, start) in lines.iter().zip(expected) {
            assert!(line.starts_with(start), "{line}");
        }
    }

    #[test]
    fn thousandths_of_a_byte_are_doubted() {
        let with = |memory: &str| {
            let limits = json!({ "memory": memory, "cpu": "64m" });
            json!({ "spec": { "containers": [{ "name": "a", "resources": { "limits": limits } }] } })
        };
        check(with("64m"), &["spec.containers[0].resources.limits.memory: 64m"]);
        check(with("64Mi"), &[]);
        check(with("64M"), &[]);
    }

    #[test]
    fn trial_without_readiness_probe_is_doubted() {
        let with = |probe: serde_json::Value| {
            json!({
                "metadata": { "annotations": { READY_WITHIN: "60s" } },
                "spec": { "containers": [{ "name": "a", "readinessProbe": probe }] },
            })
        };
        check(with(json!(null)), &["metadata.annotations: coracle.dev/ready-within"]);
        check(with(json!({ "tcpSocket": { "port": 80 } })), &[]);
    }
}
