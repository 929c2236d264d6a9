//! One board as the API server shows it: its Node object and its lease. Pure.

use serde_json::{Map, Value, json};

use crate::kubelet::node::UPGRADE_CONDITION;
use crate::types::sorted::SortedMap;
use crate::types::timestamp::Timestamp;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::cli) struct Board {
    pub(in crate::cli) name: String,
    pub(in crate::cli) resource_version: String,
    /// Of the agent; for other kubelets that of Kubernetes.
    pub(in crate::cli) version: String,
    pub(in crate::cli) is_ready: bool,
    /// When `Ready` last changed, in Unix seconds.
    pub(in crate::cli) ready_since: Option<i64>,
    /// The last status.
    pub(in crate::cli) reported: Option<i64>,
    /// Conditions that are true and should not be.
    pub(in crate::cli) problems: Vec<String>,
    pub(in crate::cli) is_cordoned: bool,
    /// Annotations of coracle.dev.
    pub(in crate::cli) annotations: SortedMap<String, String>,
    /// How the last trial ended, of the agent or of a configuration: whether it was accepted, and the message.
    pub(in crate::cli) verdict: Option<(bool, String)>,
    pub(in crate::cli) lease: Option<BoardLease>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) struct BoardLease {
    pub(in crate::cli) renewed: i64,
    pub(in crate::cli) seconds: i64,
}

/// A lease lasts at least as long as the node lifecycle controller waits by default.
const USUAL_LEASE_SECONDS: i64 = 40;
const OWN_ANNOTATIONS: &str = "coracle.dev/";

impl Board {
    /// `None` for an object without a name.
    pub(in crate::cli) fn of_node(node: &Value) -> Option<Self> {
        let mut board = Self {
            name: text(node, "/metadata/name")?.to_owned(),
            resource_version: text(node, "/metadata/resourceVersion").unwrap_or_default().to_owned(),
            is_cordoned: node.pointer("/spec/unschedulable").and_then(Value::as_bool).unwrap_or_default(),
            ..Self::default()
        };
        let version = text(node, "/status/nodeInfo/kubeletVersion").unwrap_or_default();
        board.version =
            version.split_once("+coracle-").map_or(version, |(_, coracle_version)| coracle_version).to_owned();
        let annotations = node.pointer("/metadata/annotations").and_then(Value::as_object);
        for (name, value) in annotations.into_iter().flatten().filter(|(name, _)| name.starts_with(OWN_ANNOTATIONS)) {
            board.annotations.insert(name.clone(), value.as_str().unwrap_or_default().to_owned());
        }
        let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
        for condition in conditions.into_iter().flatten() {
            let (kind, is_true) =
                (text(condition, "/type").unwrap_or_default(), text(condition, "/status") == Some("True"));
            match kind {
                "Ready" => {
                    board.is_ready = is_true;
                    board.ready_since = seconds(condition, "/lastTransitionTime");
                    board.reported = seconds(condition, "/lastHeartbeatTime");
                }
                UPGRADE_CONDITION => {
                    board.verdict = Some((is_true, text(condition, "/message").unwrap_or_default().to_owned()));
                }
                _ if is_true => board.problems.push(kind.to_owned()),
                _ => {}
            }
        }
        Some(board)
    }

    pub(in crate::cli) fn annotation(&self, name: &str) -> &str {
        self.annotations.get(name).map_or("", String::as_str)
    }

    /// Whether the board has not renewed its lease in time. Of a node without a lease, `Ready` tells.
    pub(in crate::cli) fn is_asleep(&self, now: i64) -> bool {
        match self.lease {
            Some(lease) => now.saturating_sub(lease.renewed) > lease.seconds.max(USUAL_LEASE_SECONDS),
            None => !self.is_ready,
        }
    }

    pub(in crate::cli) fn status(&self, now: i64) -> &'static str {
        match (self.is_asleep(now), self.is_ready, self.is_cordoned) {
            (true, _, _) => "Asleep",
            (false, true, false) => "Ready",
            (false, true, true) => "Ready,SchedulingDisabled",
            (false, false, _) => "NotReady",
        }
    }

    /// Whether its lease is longer than a node's that watches.
    pub(in crate::cli) fn has_long_lease(&self) -> bool {
        self.lease.is_some_and(|lease| lease.seconds > USUAL_LEASE_SECONDS)
    }

    pub(in crate::cli) fn to_json(&self, now: i64) -> Value {
        let time = |seconds: Option<i64>| seconds.and_then(Timestamp::from_second).map(|time| time.to_string());
        let annotations = self.annotations.iter().map(|(name, value)| (name.clone(), value.as_str().into()));
        json!({
            "name": self.name,
            "status": self.status(now),
            "ready": self.is_ready,
            "asleep": self.is_asleep(now),
            "version": self.version,
            "lastContact": time(self.lease.map(|lease| lease.renewed)),
            "leaseSeconds": self.lease.map(|lease| lease.seconds),
            "lastStatus": time(self.reported),
            "trial": self.verdict.as_ref().map(|(is_accepted, message)| json!({
                "accepted": is_accepted, "message": message,
            })),
            "problems": self.problems,
            "annotations": annotations.collect::<Map<_, _>>(),
        })
    }
}

impl BoardLease {
    /// The name of its node, and the lease.
    pub(in crate::cli) fn of_lease(lease: &Value) -> Option<(String, Self)> {
        let name = text(lease, "/metadata/name")?.to_owned();
        let renewed = seconds(lease, "/spec/renewTime")?;
        let seconds = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64);
        Some((name, Self { renewed, seconds: seconds.unwrap_or(USUAL_LEASE_SECONDS) }))
    }
}

pub(in crate::cli) fn text<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer).and_then(Value::as_str)
}

/// A time of the API in Unix seconds.
pub(in crate::cli) fn seconds(object: &Value, pointer: &str) -> Option<i64> {
    text(object, pointer)?.parse::<Timestamp>().ok().map(Timestamp::as_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Value {
        json!({
            "metadata": { "name": "b1", "resourceVersion": "7", "annotations": {
                "coracle.dev/upgrade-status": "version 2 (ab) accepted", "other/x": "y",
            } },
            "status": {
                "nodeInfo": { "kubeletVersion": "v1.36.2+coracle-0.2.0" },
                "conditions": [
                    { "type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:01:00Z",
                      "lastHeartbeatTime": "1970-01-01T00:02:00Z" },
                    { "type": "MemoryPressure", "status": "False" },
                    { "type": "ClockUnset", "status": "True" },
                    { "type": "AgentUpgraded", "status": "False", "message": "version 3 (cd) rejected: x" },
                ],
            },
        })
    }

    #[test]
    fn board_has_what_its_node_object_shows() {
        let board = Board::of_node(&node()).unwrap();
        assert_eq!((board.version.as_str(), board.is_ready, board.ready_since), ("0.2.0", true, Some(60)));
        assert_eq!((board.reported, board.problems.as_slice()), (Some(120), &["ClockUnset".to_owned()][..]));
        assert_eq!(board.verdict, Some((false, "version 3 (cd) rejected: x".to_owned())));
        assert_eq!(board.annotations.len(), 1);
        assert_eq!(Board::of_node(&json!({})), None);
    }

    #[test]
    fn board_sleeps_when_its_own_lease_has_ended() {
        let mut board = Board::of_node(&node()).unwrap();
        assert!(!board.is_asleep(1000), "without a lease, Ready tells");
        for (lease_seconds, now, is_asleep) in
            [(40, 140, false), (40, 141, true), (4, 140, false), (3600, 3700, false), (3600, 3701, true)]
        {
            board.lease = Some(BoardLease { renewed: 100, seconds: lease_seconds });
            assert_eq!(board.is_asleep(now), is_asleep, "{lease_seconds} {now}");
        }
        assert_eq!(board.status(3701), "Asleep");
        board.is_cordoned = true;
        assert_eq!(board.status(200), "Ready,SchedulingDisabled");
    }

    #[test]
    fn lease_has_the_name_of_its_node() {
        let lease = json!({ "metadata": { "name": "b1" }, "spec": {
            "renewTime": "1970-01-01T00:00:05.000000Z", "leaseDurationSeconds": 600,
        } });
        assert_eq!(BoardLease::of_lease(&lease), Some(("b1".to_owned(), BoardLease { renewed: 5, seconds: 600 })));
        assert_eq!(BoardLease::of_lease(&json!({ "metadata": { "name": "b1" }, "spec": {} })), None);
    }
}
