//! Verdicts about pods of the cluster, as the API server gets them.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::{Value, json};

/// By the uid of the pod.
#[derive(Debug, Default)]
pub(super) struct Verdicts(RefCell<BTreeMap<String, String>>);

impl Verdicts {
    /// The API server has this pod after a report. A verdict does not change, and is only about a pod that ran.
    pub(super) fn on_report(&self, pod: &Value) -> Result<(), String> {
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let verdict = verdict_of(pod);
        let mut known = self.0.borrow_mut();
        match known.get(&uid) {
            Some(former) if verdict != Some(former.as_str()) => {
                return Err(format!("pod {uid}: the verdict {former} became {verdict:?}"));
            }
            Some(_) => return Ok(()),
            None => {}
        }
        let Some(verdict) = verdict else { return Ok(()) };
        if !has_run(&pod["status"]) {
            return Err(format!("pod {uid} never ran, and its verdict is {verdict}"));
        }
        known.insert(uid, verdict.to_owned());
        Ok(())
    }

    /// The API server was restored from a backup.
    pub(super) fn forget(&self) {
        self.0.borrow_mut().clear();
    }
}

/// Whether the pods of this revision are judged.
pub(super) fn is_tried(revision: &str) -> bool {
    revision.parse::<u64>().is_ok_and(|number| number % 2 == 0)
}

/// The annotations and the owner of a pod that is judged.
pub(super) fn put_on_trial(metadata: &mut Value) {
    metadata["annotations"] = json!({ "coracle.dev/ready-within": "60s" });
    metadata["ownerReferences"] =
        json!([{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true }]);
}

/// `True` or `False`.
pub(super) fn verdict_of(pod: &Value) -> Option<&str> {
    let conditions = pod["status"]["conditions"].as_array()?;
    let trial = conditions.iter().find(|condition| condition["type"] == "coracle.dev/Trial")?;
    trial["status"].as_str().filter(|status| *status != "Unknown")
}

fn has_run(status: &Value) -> bool {
    let lists = ["initContainerStatuses", "containerStatuses"].into_iter();
    let mut containers = lists.filter_map(|list| status[list].as_array()).flatten();
    containers.any(|container| {
        let [state, last] = [&container["state"], &container["lastState"]];
        !state["running"].is_null() || !state["terminated"].is_null() || !last["terminated"].is_null()
    })
}
