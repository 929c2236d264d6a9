//! Volume expansion by the node, and the patches of the claim. Pure.

use serde_json::{Map, Value, json};

use crate::types::api::{Quantity, Time};

/// What the node must do about the size of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExpansionDue {
    /// The volume has the right size, or the controller must act first.
    Nothing,
    /// Expand to this size.
    To(Target),
    /// Expand to the size of the PersistentVolume: the controller that resized it recorded no size in the claim.
    AsLargeAsVolume,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// A quantity in the cluster's notation.
    pub(crate) size: String,
    /// The claim already has the status NodeResizeInProgress.
    pub(crate) is_marked: bool,
    /// Whether to update the claim. For a shared volume, only the first node does.
    pub(crate) updates_claim: bool,
}

const STATUSES: &str = "allocatedResourceStatuses";
const ALLOCATED_STORAGE_STATUS_PATH: &str = "/status/allocatedResourceStatuses/storage";
const NODE_RESIZE_PENDING: &str = "NodeResizePending";
const IN_PROGRESS: &str = "NodeResizeInProgress";
const INFEASIBLE: &str = "NodeResizeInfeasible";
const FAILED: &str = "NodeResizeError";
const WAITS_FOR_NODE: &str = "FileSystemResizePending";
/// Conditions removed after the expansion (`knownResizeConditions`).
const OF_GROWTH: [&str; 4] = ["Resizing", "ControllerResizeError", FAILED, WAITS_FOR_NODE];
const NOT_REQUIRED: &str = "volume.kubernetes.io/node-expansion-not-required";

/// `known_capacity`: the claim's capacity in bytes when this node last saw it.
pub(crate) fn growth_due(claim: &Value, known_capacity: Option<i64>) -> ExpansionDue {
    let text = |path: &str| claim.pointer(path).and_then(Value::as_str);
    let allocated = text("/status/allocatedResources/storage");
    let target = |size: &str, is_marked, updates_claim| {
        ExpansionDue::To(Target { size: size.to_owned(), is_marked, updates_claim })
    };
    match (text(ALLOCATED_STORAGE_STATUS_PATH), allocated) {
        (Some(status @ (NODE_RESIZE_PENDING | IN_PROGRESS)), Some(size)) => target(size, status == IN_PROGRESS, true),
        (None, None) if conditions(claim).any(|kind| kind == WAITS_FOR_NODE) => ExpansionDue::AsLargeAsVolume,
        (None, _) if has_grown(claim, known_capacity) && is_shared(claim) => {
            text("/status/capacity/storage").map_or(ExpansionDue::Nothing, |size| target(size, true, false))
        }
        _ => ExpansionDue::Nothing,
    }
}

/// The claim's capacity in bytes.
pub(crate) fn capacity(claim: &Value) -> Option<i64> {
    size_in_bytes(claim.pointer("/status/capacity/storage")?.as_str()?)
}

pub(crate) fn size_in_bytes(size: &str) -> Option<i64> {
    size.parse::<Quantity>().ok().map(Quantity::value)
}

fn has_grown(claim: &Value, known_capacity: Option<i64>) -> bool {
    known_capacity.zip(capacity(claim)).is_some_and(|(before, now)| before < now)
}

/// The volume is ReadWriteMany and every node must expand it.
fn is_shared(claim: &Value) -> bool {
    let modes = claim.pointer("/spec/accessModes").and_then(Value::as_array);
    let annotations = claim.pointer("/metadata/annotations");
    modes.into_iter().flatten().any(|mode| mode == "ReadWriteMany")
        && annotations.is_none_or(|all| all.get(NOT_REQUIRED).is_none())
}

fn conditions(claim: &Value) -> impl Iterator<Item = &str> {
    let all = claim.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    all.filter_map(|condition| condition.get("type")?.as_str())
}

/// Marks the expansion as in progress. Fails if the claim has changed since.
pub(crate) fn begun_patch(claim: &Value) -> Value {
    let version = claim.pointer("/metadata/resourceVersion");
    let status = json!({"allocatedResourceStatuses": {"storage": IN_PROGRESS}});
    json!({"metadata": {"resourceVersion": version}, "status": status})
}

/// Marks the expansion as done. Fails if the claim has changed since: a larger size may be wanted by then.
pub(crate) fn done_patch(claim: &Value, size: &str) -> Value {
    let gone = conditions(claim).filter(|kind| OF_GROWTH.contains(kind));
    let gone: Vec<Value> = gone.map(|kind| json!({"type": kind, "$patch": "delete"})).collect();
    let mut status = Map::from_iter([("capacity".to_owned(), json!({"storage": size}))]);
    if claim.pointer(ALLOCATED_STORAGE_STATUS_PATH).is_some() {
        status.insert(STATUSES.to_owned(), json!({"storage": null}));
    }
    if !gone.is_empty() {
        status.insert("conditions".to_owned(), gone.into());
    }
    json!({"metadata": {"resourceVersion": claim.pointer("/metadata/resourceVersion")}, "status": status})
}

/// Marks the expansion as failed. `can_never_be`: infeasible, so that the controller takes over.
pub(crate) fn failed_patch(why: &str, can_never_be: bool, now: Time) -> Value {
    let condition = json!({
        "type": FAILED, "status": "True", "lastTransitionTime": now.to_string(),
        "message": format!("failed to expand pvc with {why}"),
    });
    if can_never_be {
        return json!({"status": {"conditions": [condition], STATUSES: {"storage": INFEASIBLE}}});
    }
    json!({"status": {"conditions": [condition]}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(status: &Value) -> Value {
        json!({"metadata": {"resourceVersion": "7"}, "spec": {"accessModes": ["ReadWriteOnce"]}, "status": status})
    }

    fn due(status: &Value) -> ExpansionDue {
        growth_due(&claim(status), Some(1))
    }

    #[test]
    fn volume_is_expanded_when_the_claim_waits_for_the_node() {
        let status = |status: &str| json!({"allocatedResources": {"storage": "2Gi"}, "allocatedResourceStatuses": {"storage": status}});
        let to = |is_marked| ExpansionDue::To(Target { size: "2Gi".to_owned(), is_marked, updates_claim: true });
        assert_eq!(due(&status(NODE_RESIZE_PENDING)), to(false));
        assert_eq!(due(&status(IN_PROGRESS)), to(true));
        for other in ["ControllerResizeInProgress", INFEASIBLE, ""] {
            assert_eq!(due(&status(other)), ExpansionDue::Nothing, "{other}");
        }
        assert_eq!(due(&json!({"capacity": {"storage": "1Gi"}})), ExpansionDue::Nothing);
        let waits = json!({"conditions": [{"type": WAITS_FOR_NODE, "status": "True"}]});
        assert_eq!(due(&waits), ExpansionDue::AsLargeAsVolume);
    }

    #[test]
    fn volume_expanded_by_another_node_is_expanded_here() {
        let mut shared = claim(&json!({"capacity": {"storage": "2"}}));
        shared["spec"]["accessModes"] = json!(["ReadWriteMany"]);
        let target = Target { size: "2".to_owned(), is_marked: true, updates_claim: false };
        assert_eq!(growth_due(&shared, Some(1)), ExpansionDue::To(target));
        for seen in [None, Some(2), Some(3)] {
            assert_eq!(growth_due(&shared, seen), ExpansionDue::Nothing);
        }
        shared["metadata"]["annotations"] = json!({NOT_REQUIRED: "true"});
        assert_eq!(growth_due(&shared, Some(1)), ExpansionDue::Nothing);
    }

    #[test]
    fn progress_patches_keep_unrelated_conditions() {
        let other = json!({"type": "Other", "status": "True"});
        let mut waiting = claim(&json!({
            "allocatedResourceStatuses": {"storage": NODE_RESIZE_PENDING},
            "conditions": [other, {"type": WAITS_FOR_NODE, "status": "True"}],
        }));
        assert_eq!(begun_patch(&waiting)["metadata"]["resourceVersion"], "7");
        let status = json!({
            "capacity": {"storage": "2Gi"}, "allocatedResourceStatuses": {"storage": null},
            "conditions": [{"type": WAITS_FOR_NODE, "$patch": "delete"}],
        });
        let metadata = json!({"resourceVersion": "7"});
        assert_eq!(done_patch(&waiting, "2Gi"), json!({"metadata": metadata, "status": status}));
        waiting["status"] = json!({});
        let status = json!({"capacity": {"storage": "2Gi"}});
        assert_eq!(done_patch(&waiting, "2Gi"), json!({"metadata": metadata, "status": status}));
    }

    #[test]
    fn failed_patch_marks_infeasible_expansion() {
        let patch = |never| failed_patch("no room", never, Time::from_unix_nanos(0));
        let condition = &patch(false)["status"]["conditions"][0];
        assert_eq!(
            (&condition["type"], &condition["message"]),
            (&json!(FAILED), &json!("failed to expand pvc with no room"))
        );
        assert_eq!(patch(false).pointer(ALLOCATED_STORAGE_STATUS_PATH), None);
        assert_eq!(patch(true).pointer(ALLOCATED_STORAGE_STATUS_PATH), Some(&json!(INFEASIBLE)));
    }
}
