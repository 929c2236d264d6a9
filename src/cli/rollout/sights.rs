//! What a rollout sees of each board: its node, and its pod of the DaemonSet. Pure.

use std::collections::HashMap;

use serde_json::Value;

use super::decide::{Progress, Sight};
use super::plan::{Order, Plan, Subject};
use super::state::State;
use crate::cli::fleet::{Board, seconds, text};
use crate::kubelet::node::{CONFIG_ANNOTATION, UPGRADE_ANNOTATION};
use crate::protocol::sha256::sha256;
use crate::types::sorted::SortOnce;

/// A pod of the DaemonSet on a board.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DaemonPod {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) revision: String,
    pub(super) is_terminating: bool,
    pub(super) has_failed: bool,
    /// Status and message of the condition `coracle.dev/Trial`, if the node tries the pod.
    pub(super) trial: Option<(String, String)>,
    /// Since when it is ready, in Unix seconds.
    pub(super) ready_since: Option<i64>,
    pub(super) restarts: u64,
}

/// The pods of a DaemonSet by node.
pub(super) type DaemonPods = HashMap<String, DaemonPod>;

impl DaemonPod {
    /// The node and the pod, if the DaemonSet with this uid owns it.
    pub(super) fn of_pod(pod: &Value, owner: &str) -> Option<(String, Self)> {
        let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        owners?.iter().find(|entry| entry.get("uid").is_some_and(|uid| uid == owner))?;
        let node = text(pod, "/spec/nodeName")?.to_owned();
        let list = |pointer: &str| pod.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        let condition = |kind: &str| list("/status/conditions").find(|entry| text(entry, "/type") == Some(kind));
        let ready = condition("Ready").filter(|ready| text(ready, "/status") == Some("True"));
        let part = |entry: &Value, pointer: &str| text(entry, pointer).unwrap_or_default().to_owned();
        let trial = condition("coracle.dev/Trial").map(|entry| (part(entry, "/status"), part(entry, "/message")));
        let restarts = list("/status/containerStatuses").filter_map(|entry| entry.get("restartCount")?.as_u64());
        let sight = Self {
            name: text(pod, "/metadata/name")?.to_owned(),
            uid: text(pod, "/metadata/uid")?.to_owned(),
            revision: text(pod, "/metadata/labels/controller-revision-hash").unwrap_or_default().to_owned(),
            is_terminating: pod.pointer("/metadata/deletionTimestamp").is_some(),
            has_failed: text(pod, "/status/phase") == Some("Failed"),
            trial,
            ready_since: ready.and_then(|ready| seconds(ready, "/lastTransitionTime")),
            restarts: restarts.sum(),
        };
        Some((node, sight))
    }
}

/// The boards of the rollout in their order. `pods` are those of the DaemonSet.
pub(super) fn sights(
    name: &str,
    plan: &Plan,
    state: &State,
    boards: &[Board],
    pods: &DaemonPods,
    now: i64,
) -> Vec<Sight> {
    let mut sights: Vec<Sight> = boards
        .iter()
        .filter_map(|board| {
            let is_awake = !board.is_asleep(now);
            let (is_unavailable, progress) = match &plan.subject {
                Subject::DaemonSet(set) => {
                    let has_turn = state.boards.contains_key(&board.name);
                    let (is_ready, progress) = match pods.get(&board.name) {
                        Some(pod) => (pod.ready_since.is_some(), pod_progress(pod, &set.revision, plan, now)),
                        // Its pod was deleted, and the next one is not there yet.
                        None if has_turn => (false, Progress::Written),
                        // The DaemonSet does not select this node.
                        None => return None,
                    };
                    (!is_ready, progress)
                }
                Subject::Agent(url) => (!board.is_ready, node_progress(board, UPGRADE_ANNOTATION, "version ", url)),
                Subject::Config(url) => (!board.is_ready, node_progress(board, CONFIG_ANNOTATION, "/", url)),
            };
            Some(Sight { name: board.name.clone(), is_awake, is_unavailable, progress })
        })
        .collect();
    match plan.order {
        Order::Name => sights.sort_once_by(|a, b| a.name.cmp(&b.name)),
        Order::Hash => sights.sort_once_by_cached_key(|sight| sha256(format!("{name}/{}", sight.name).as_bytes())),
    }
    sights
}

fn pod_progress(pod: &DaemonPod, revision: &str, plan: &Plan, now: i64) -> Progress {
    if pod.is_terminating {
        return Progress::Written;
    }
    if pod.revision != revision {
        return Progress::Absent;
    }
    // The time is of the board's clock, which may be ahead.
    let settled = |since: i64| now.saturating_sub(since).unsigned_abs() >= plan.settle.as_secs();
    let trial = pod.trial.as_ref().map(|(status, message)| (status.as_str(), message));
    match (trial, pod.ready_since) {
        _ if pod.has_failed => Progress::Rejected(format!("pod {} has failed", pod.name)),
        (Some(("False", why)), _) => Progress::Rejected(format!("pod {}: {why}", pod.name)),
        // It is not decided, whatever the pod is at the moment.
        (Some(("Unknown", _)), _) => Progress::Written,
        (_, Some(since)) if settled(since) => Progress::Healthy,
        _ => Progress::Written,
    }
}

/// The node reports which URL it has tried in the annotation with `-tried` at its end, and how the last trial ended in the
/// condition. `own` begins a message about a trial of this kind. The condition alone would not do: an older verdict is
/// there before a trial begins, and a board that runs the program already has no trial.
fn node_progress(board: &Board, annotation: &str, key: &str, url: &str) -> Progress {
    if board.annotation(annotation) != url {
        return Progress::Absent;
    }
    if board.annotation(&format!("{annotation}-tried")) != url {
        return Progress::Written;
    }
    match &board.verdict {
        Some((is_accepted, message)) if message.starts_with(key) || message.starts_with(url) => match is_accepted {
            false => Progress::Rejected(message.clone()),
            true if board.is_ready => Progress::Healthy,
            true => Progress::Written,
        },
        // The last trial was one of another kind.
        _ => Progress::Written,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::plan::{DaemonSetName, plan};
    use super::*;
    use crate::cli::fleet::BoardLease;

    fn board(name: &str, annotations: &[(&str, &str)], verdict: Option<(bool, &str)>) -> Board {
        Board {
            name: name.to_owned(),
            is_ready: true,
            annotations: annotations.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect(),
            verdict: verdict.map(|(is_accepted, message)| (is_accepted, message.to_owned())),
            lease: Some(BoardLease { renewed: 1000, seconds: 40 }),
            ..Board::default()
        }
    }

    #[test]
    fn node_tells_by_annotations_and_condition_how_its_update_ended() {
        let (url, other) = ("https://f/c", "https://f/b");
        let written = [("coracle.dev/upgrade", url)];
        let tried = [("coracle.dev/upgrade", url), ("coracle.dev/upgrade-tried", url)];
        let rejected = Progress::Rejected("version 2 (ab) rejected: x".to_owned());
        let refused = Progress::Rejected(format!("{url} rejected: x"));
        for (annotations, verdict, progress) in [
            (&[][..], None, Progress::Absent),
            (&[("coracle.dev/upgrade", other)], Some((true, "version 2 (ab) accepted")), Progress::Absent),
            (&written, Some((true, "version 1 (ab) accepted")), Progress::Written),
            (&tried, Some((true, "version 2 (ab) accepted")), Progress::Healthy),
            (&tried, Some((false, "version 2 (ab) rejected: x")), rejected),
            (&tried, Some((false, "https://f/c rejected: x")), refused),
            (&tried, Some((false, "/etc/k.yaml (cd) rejected: x")), Progress::Written),
            (&tried, Some((false, "runtime's /etc/c.toml rejected: x")), Progress::Written),
            (&tried, None, Progress::Written),
        ] {
            let board = board("b", annotations, verdict);
            let sights = sights("r", &plan(1, "100%", "1"), &State::new(), &[board], &DaemonPods::new(), 1010);
            assert_eq!(sights[0].progress, progress, "{annotations:?} {verdict:?}");
        }
    }

    #[test]
    fn pod_of_the_present_template_is_healthy_once_it_was_ready_for_a_while() {
        let set = DaemonSetName { namespace: "n".to_owned(), name: "d".to_owned(), revision: "new".to_owned() };
        let plan = Plan { subject: Subject::DaemonSet(set), ..plan(1, "100%", "1") };
        let pod = |revision: &str, ready_since| DaemonPod {
            revision: revision.to_owned(),
            ready_since,
            ..Default::default()
        };
        let tried = |status: &str| DaemonPod {
            trial: Some((status.to_owned(), "not ready in time".to_owned())),
            ..pod("new", Some(970))
        };
        let failed = DaemonPod { has_failed: true, name: "p".to_owned(), ..pod("new", None) };
        for (pod, progress, is_unavailable) in [
            (pod("old", Some(5)), Progress::Absent, false),
            (pod("old", None), Progress::Absent, true),
            (DaemonPod { is_terminating: true, ..pod("old", Some(5)) }, Progress::Written, false),
            (pod("new", None), Progress::Written, true),
            (pod("new", Some(990)), Progress::Written, false),
            (pod("new", Some(970)), Progress::Healthy, false),
            (pod("new", Some(9000)), Progress::Healthy, false),
            (failed, Progress::Rejected("pod p has failed".to_owned()), true),
            (tried("Unknown"), Progress::Written, false),
            (tried("False"), Progress::Rejected("pod : not ready in time".to_owned()), false),
            (tried("True"), Progress::Healthy, false),
        ] {
            let pods = DaemonPods::from([("b".to_owned(), pod.clone())]);
            let boards = [board("b", &[], None), board("without", &[], None)];
            let sights = sights("r", &plan, &State::new(), &boards, &pods, 1000);
            assert_eq!(sights.len(), 1, "the DaemonSet does not select the other one");
            assert_eq!((&sights[0].progress, sights[0].is_unavailable), (&progress, is_unavailable), "{pod:?}");
        }
    }

    #[test]
    fn pods_are_those_of_the_daemonset() {
        let pod = json!({
            "metadata": { "name": "d-x", "uid": "u", "labels": { "controller-revision-hash": "h" },
                "ownerReferences": [{ "uid": "set" }] },
            "spec": { "nodeName": "b" },
            "status": { "phase": "Running", "containerStatuses": [{ "restartCount": 2 }, { "restartCount": 1 }],
                "conditions": [{ "type": "coracle.dev/Trial", "status": "Unknown", "message": "m" },
                    { "type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:09Z" }] },
        });
        let (node, own) = DaemonPod::of_pod(&pod, "set").unwrap();
        assert_eq!((node.as_str(), own.revision.as_str(), own.ready_since, own.restarts), ("b", "h", Some(9), 3));
        assert_eq!(own.trial, Some(("Unknown".to_owned(), "m".to_owned())));
        assert_eq!(DaemonPod::of_pod(&pod, "another"), None);
    }

    #[test]
    fn order_is_the_same_at_each_call_and_another_for_another_rollout() {
        let boards: Vec<Board> = (0..50).map(|at| board(&format!("b{at}"), &[], None)).collect();
        let order = |name: &str, order| {
            let plan = Plan { order, ..plan(1, "100%", "1") };
            let sights = sights(name, &plan, &State::new(), &boards, &DaemonPods::new(), 1000);
            sights.into_iter().map(|sight| sight.name).collect::<Vec<_>>()
        };
        assert_eq!(order("a", Order::Hash), order("a", Order::Hash));
        assert_ne!(order("a", Order::Hash), order("b", Order::Hash));
        assert!(order("a", Order::Name).is_sorted());
    }
}
