//! The strategic merge patch from the status at the API server to the wanted one. Pure.

use serde_json::{Map, Value, json};

use super::generate::is_own;
use crate::types::api::{PodStatus, encode};
use crate::types::sorted::SortedMap;

/// The `status` of the patch; `None` if nothing differs. Lists that the server merges by key have only the entries
/// that differ; conditions of other controllers stay.
pub(crate) fn status_patch(shown: &PodStatus, wanted: &PodStatus) -> Option<Value> {
    // Frequent, as every change of a pod brings back the status that was sent; spares encoding both.
    if shown == wanted {
        return None;
    }
    let (mut old, mut new) = (object(shown), object(wanted));
    for foreign in FOREIGN {
        old.remove(foreign);
        new.remove(foreign);
    }
    let mut patch = Map::new();
    let conditions = [&mut old, &mut new].map(|status| match status.remove("conditions") {
        Some(Value::Array(conditions)) => conditions,
        _ => Vec::new(),
    });
    let conditions = condition_patch(&conditions[0], &conditions[1]);
    if !conditions.is_empty() {
        patch.insert("conditions".to_owned(), Value::Array(conditions));
    }
    for list in MERGED_BY_SERVER {
        // The server would merge the old addresses into the new list.
        if let (Some(Value::Array(_)), Some(Value::Array(items))) = (old.get(list), new.get_mut(list)) {
            if old.get(list).and_then(Value::as_array) != Some(items) {
                items.insert(0, json!({"$patch": "replace"}));
            }
        }
    }
    patch.extend(difference(&old, new));
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Fields that other controllers write.
const FOREIGN: [&str; 3] = ["nominatedNodeName", "resourceClaimStatuses", "extendedResourceClaimStatus"];
const MERGED_BY_SERVER: [&str; 2] = ["hostIPs", "podIPs"];

fn object(status: &PodStatus) -> Map<String, Value> {
    match encode(status) {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

fn condition_patch(old: &[Value], new: &[Value]) -> Vec<Value> {
    let kind = |condition: &Value| condition.get("type").cloned().unwrap_or_default();
    let (shown, wanted) = (by_kind(old), by_kind(new));
    let changed = new.iter().filter_map(|condition| match kind_of(condition).and_then(|kind| shown.get(kind)) {
        None => Some(condition.clone()),
        Some(shown_condition) if *shown_condition == condition => None,
        Some(shown_condition) => {
            let (Value::Object(shown_condition), Value::Object(wanted)) = (shown_condition, condition.clone()) else {
                return None;
            };
            let mut changes = difference(shown_condition, wanted);
            changes.insert("type".to_owned(), kind(condition));
            Some(Value::Object(changes))
        }
    });
    let gone = old.iter().filter_map(kind_of).filter(|kind| is_own(kind) && !wanted.contains_key(kind));
    changed.chain(gone.map(|kind| json!({"type": kind, "$patch": "delete"}))).collect()
}

fn kind_of(condition: &Value) -> Option<&str> {
    condition.get("type").and_then(Value::as_str)
}

/// Of two of a type, the first one counts.
fn by_kind(conditions: &[Value]) -> SortedMap<&str, &Value> {
    conditions.iter().rev().filter_map(|condition| Some((kind_of(condition)?, condition))).collect()
}

/// The merge patch from `old` to `new`: objects key by key, other values whole, `null` for removed keys.
fn difference(old: &Map<String, Value>, new: Map<String, Value>) -> Map<String, Value> {
    let gone = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let mut changes: Map<String, Value> = gone.collect();
    for (key, value) in new {
        match (old.get(&key), value) {
            (Some(old_value), value) if *old_value == value => {}
            (Some(Value::Object(old_value)), Value::Object(value)) => {
                changes.insert(key, Value::Object(difference(old_value, value)));
            }
            (_, value) => drop(changes.insert(key, value)),
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::{ConditionStatus, Ip, PodCondition, PodPhase, conditions};

    fn condition(kind: &'static str, status: ConditionStatus) -> PodCondition {
        PodCondition { kind: kind.into(), status, ..PodCondition::default() }
    }

    fn with_conditions(conditions: Vec<PodCondition>) -> PodStatus {
        PodStatus { conditions, ..PodStatus::default() }
    }

    fn ips(ips: &[&str]) -> Vec<Ip> {
        ips.iter().map(|ip| Ip { ip: (*ip).to_owned() }).collect()
    }

    #[test]
    fn equal_statuses_give_no_patch() {
        let status = with_conditions(vec![condition(conditions::READY, ConditionStatus::True)]);
        assert_eq!(status_patch(&status, &status), None);
    }

    #[test]
    fn patch_has_only_differences_and_null_for_removed_fields() {
        let old = PodStatus { message: "m".to_owned(), host_ip: "h".to_owned(), ..PodStatus::default() };
        let new = PodStatus { phase: PodPhase::Running, host_ip: "h".to_owned(), ..PodStatus::default() };
        assert_eq!(status_patch(&old, &new), Some(json!({"phase": "Running", "message": null})));
    }

    #[test]
    fn patch_has_only_changed_conditions() {
        let [yes, no] = [ConditionStatus::True, ConditionStatus::False];
        let old = with_conditions(vec![
            condition("example.com/gate", yes),
            condition(conditions::READY, no),
            condition(conditions::INITIALIZED, yes),
            condition(conditions::POD_RESIZE_PENDING, yes),
        ]);
        let new = with_conditions(vec![condition(conditions::READY, yes), condition(conditions::INITIALIZED, yes)]);
        let pending = json!({"type": "PodResizePending", "$patch": "delete"});
        let ready = json!({"type": "Ready", "status": "True"});
        assert_eq!(status_patch(&old, &new), Some(json!({"conditions": [ready, pending]})));
    }

    #[test]
    fn changed_addresses_replace_the_old_ones() {
        let old = PodStatus { pod_ips: ips(&["10.0.0.1"]), ..PodStatus::default() };
        let new = PodStatus { pod_ips: ips(&["10.0.0.2"]), ..PodStatus::default() };
        let all = json!([{"$patch": "replace"}, {"ip": "10.0.0.2"}]);
        assert_eq!(status_patch(&old, &new), Some(json!({"podIPs": all})));
        assert_eq!(status_patch(&PodStatus::default(), &new), Some(json!({"podIPs": [{"ip": "10.0.0.2"}]})));
    }

    #[test]
    fn foreign_fields_are_never_removed() {
        let old = PodStatus { nominated_node_name: "n".to_owned(), ..PodStatus::default() };
        assert_eq!(status_patch(&old, &PodStatus::default()), None);
    }
}
