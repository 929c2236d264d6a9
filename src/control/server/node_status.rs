//! The response of `/status`: the node as `coracle status` shows it. Pure.

use serde::Serialize;

use super::image_entries::{ArchivesStatus, MissingImage};
use super::node_problems::{NodeHealth, NodeProblem, PodCounts};
use super::sync_status::SyncStatus;
use super::watchdog::{PanicRecord, Stall, WatchdogStatus};
use crate::types::api::{Decode, DecodeContext, DecodeError, Input, decode_word, record};

record! {
    /// The response of `/status`.
    pub(crate) struct NodeStatus {
        pub(crate) version: String,
        pub(crate) node: String,
        pub(crate) addresses: Vec<String>,
        /// CPUs of the machine.
        pub(crate) processors: u32,
        pub(crate) uptime_seconds: u64,
        /// The sync loop is not stalled.
        pub(crate) healthy: bool,
        /// From the problems.
        pub(crate) health: NodeHealth,
        /// What is wrong, worst first.
        pub(crate) problems: Vec<NodeProblem>,
        /// An update of the agent that is on trial, or how the last one ended; absent without updates.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) upgrade: Option<String>,
        /// Why this machine has not joined the cluster of its join file yet; absent without such a file.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) join: Option<String>,
            /// The key with which `coracle seal` seals Secrets for this node; absent if the node keeps no key.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) seal_key: Option<String>,
        pub(crate) watchdog: WatchdogStatus,
        /// The most recent stall, of this process or an earlier one.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) last_stall: Option<Stall>,
        /// The most recent panic, which ended an earlier process.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) last_panic: Option<PanicRecord>,
        pub(crate) runtime: RuntimeStatus,
        /// As in the Node status; empty before the first observation.
        pub(crate) conditions: Vec<ConditionStatus>,
        pub(crate) sources: Vec<SourceStatus>,
        pub(crate) pods: u64,
        pub(crate) pod_counts: PodCounts,
        /// Versions of the node's own pods.
        pub(crate) versions: Vec<VersionStatus>,
        /// The pods that keep the node from stopping them, and the decisions that wait.
        pub(crate) held_pods: Vec<String>,
        /// Queued and running pulls, in the order in which they were requested.
        pub(crate) pulls: Vec<PullStatus>,
        /// Absent without windows and budgets of images.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) pull_budget: Option<PullBudgetStatus>,
        pub(crate) image_archives: ArchivesStatus,
        /// Absent if the runtime did not answer.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) missing_images: Option<Vec<MissingImage>>,
        /// Absent without a cluster.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) api_server: Option<ApiServerStatus>,
        /// Absent without a cluster.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) sync: Option<SyncStatus>,
        /// Absent without a cluster.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) offline: Option<OfflineStatus>,
        /// The node's own certificates in the cluster; empty without a cluster.
        pub(crate) certificates: Vec<CertificateStatus>,
        /// Why directories of former pods could not be removed; each is tried again.
        pub(crate) leftovers: Vec<String>,
        /// The last errors, oldest first.
        pub(crate) errors: Vec<RecentError>,
    }
}

record! {
    pub(crate) struct RuntimeStatus {
        pub(crate) endpoint: String,
        /// Empty until the runtime has answered once.
        pub(crate) name: String,
        pub(crate) version: String,
        pub(crate) ready: bool,
        pub(crate) network_ready: bool,
        /// Why the runtime is not ready.
        pub(crate) message: String,
    }
}

record! {
    /// One condition of the node, as in v1.NodeCondition.
    pub(crate) struct ConditionStatus {
        pub(crate) kind: String = "type",
        /// `True` or `False`.
        pub(crate) status: String,
        /// RFC 3339.
        pub(crate) last_transition_time: String,
        pub(crate) reason: String,
        pub(crate) message: String,
    }
}

impl ConditionStatus {
    /// The others are about the board.
    pub(crate) fn is_pressure(&self) -> bool {
        self.kind.ends_with("Pressure")
    }
}

record! {
    /// One source of pods.
    pub(crate) struct SourceStatus {
        pub(crate) name: String,
        /// The manifest directory or file; empty for other sources.
        pub(crate) path: String,
        pub(crate) pods: u64,
        /// The source has reported at least once.
        pub(crate) ready: bool,
        /// What became of the version of the agent that the source asks for; empty if it asks for none.
        pub(crate) agent: String,
        /// Current errors of the source; each names its file.
        pub(crate) errors: Vec<String>,
    }
}

record! {
    /// The versions of one of the node's own pods.
    pub(crate) struct VersionStatus {
        /// Such as `default/web-node1`.
        pub(crate) pod: String,
        /// `on trial`, `rejected`, `rolled back` or `held`; empty if the manifest's version runs.
        pub(crate) state: String,
        pub(crate) message: String,
        /// Number of versions kept before the current one.
        pub(crate) earlier: u64,
    }
}

record! {
    /// An image pull.
    pub(crate) struct PullStatus {
        pub(crate) image: String,
        /// The pod that needs it.
        pub(crate) pod: String,
        /// False while queued.
        pub(crate) begun: bool,
        /// Since it started, or since it was queued.
        pub(crate) seconds: u64,
        /// Bytes that are here, and all bytes to fetch; absent if the runtime pulls.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) bytes: Option<(u64, u64)>,
    }
}

record! {
    /// What windows and budgets allow image pulls.
    pub(crate) struct PullBudgetStatus {
        pub(crate) bytes_today: u64,
        /// `None` without a budget of images alone.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) bytes_per_day: Option<u64>,
        /// Why pulls that are not urgent wait; empty if they may begin.
        pub(crate) held: String,
    }
}

record! {
    /// The connection to the API server since this process started.
    pub(crate) struct ApiServerStatus {
        /// Host and port; empty until the kubeconfig could be read.
        pub(crate) server: String,
        pub(crate) connected: bool,
        /// Why it is not connected; empty if no attempt has failed.
        pub(crate) message: String,
        /// Number of connections made.
        pub(crate) connections: u64,
        /// Traffic including TLS, without TCP and lower headers.
        pub(crate) sent_bytes: u64,
        pub(crate) received_bytes: u64,
    }
}

record! {
    /// The state stored for a start without the cluster.
    pub(crate) struct OfflineStatus {
        /// Stored pods and their objects.
        pub(crate) records: u64,
        /// Size on disk.
        pub(crate) bytes: u64,
        /// Written since this process started.
        pub(crate) written_bytes: u64,
        /// Time of the last change, RFC 3339; empty if nothing is stored.
        pub(crate) changed: String,
        /// The API server has not been reached since the start: the stored pods are used.
        pub(crate) in_use: bool,
        /// Corrupt records and records of another version, which were set aside.
        pub(crate) set_aside: u64,
        /// Records that no key decrypts.
        pub(crate) unopened: u64,
        /// Records that did not fit.
        pub(crate) left_out: u64,
        /// How Secrets and tokens are stored.
        pub(crate) secrets: String,
        /// Why the store cannot be read or written; empty if it can.
        pub(crate) message: String,
    }
}

record! {
    /// One of the node's own certificates.
    pub(crate) struct CertificateStatus {
        /// `client` or `serving`.
        pub(crate) name: String,
        pub(crate) state: CertificateState,
        /// RFC 3339; empty if there is no certificate.
        pub(crate) not_after: String,
        /// Why there is no certificate, or no newer one.
        pub(crate) message: String,
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) enum CertificateState {
    #[default]
    Missing,
    Good,
    /// Valid, and due for renewal.
    Due,
    Expired,
}

impl Decode for CertificateState {
    fn decode(input: Input<'_>, _context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        decode_word(
            input,
            &[("Missing", Self::Missing), ("Good", Self::Good), ("Due", Self::Due), ("Expired", Self::Expired)],
        )
    }
}

record! {
    pub(crate) struct RecentError {
        /// RFC 3339.
        pub(crate) time: String,
        pub(crate) message: String,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::types::api::decode;

    #[test]
    fn every_field_is_read_under_the_name_that_it_is_written_with() {
        let problem = json!({"severity": "down", "subject": "s", "cause": "c", "advice": "a", "since": "t", "nextRetry": "n", "pod": "u"});
        let thread = json!({"state": "D", "waitChannel": "w", "kernelStack": ["f"]});
        let archive = json!({"file": "f", "sizeBytes": 1, "modifiedNanos": -1, "state": "failed", "images": ["i"], "message": "m"});
        let exchange = json!({
            "ended": "t", "message": "m", "answered": ["a"], "failed": 1, "sentBytes": 2, "receivedBytes": 3,
        });
        let status = json!({
            "version": "v", "node": "n", "addresses": ["a"], "processors": 1, "uptimeSeconds": 2, "healthy": true,
            "health": "degraded", "problems": [problem], "join": "j",
            "watchdog": {
                "serviceManagerSeconds": 1,
                "device": {"path": "p", "armed": true, "timeoutSeconds": 1, "resetTheBoard": true},
            },
            "lastStall": {
                "time": "t", "bootId": "b", "pid": 1, "seconds": 2, "doing": "d", "rounds": 3, "part": "p",
                "thread": thread, "movedAgainAfterSeconds": 4, "nextStart": "n",
            },
            "lastPanic": {
                "time": "t", "bootId": "b", "pid": 1, "version": "v", "thread": "h", "location": "l", "message": "m",
                "nextStart": "n",
            },
            "runtime": {
                "endpoint": "e", "name": "n", "version": "v", "ready": true, "networkReady": true, "message": "m",
            },
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "t", "reason": "r", "message": "m"},
            ],
            "sources": [{"name": "n", "path": "p", "pods": 1, "ready": true, "agent": "a", "errors": ["e"]}],
            "pods": 3, "podCounts": {"running": 1, "failing": 2, "waiting": 3, "done": 4, "stopped": 5},
            "versions": [{"pod": "p", "state": "held", "message": "m", "earlier": 1}],
            "heldPods": ["p"],
            "pulls": [{"image": "i", "pod": "p", "begun": true, "seconds": 1, "bytes": [2, u64::MAX]}],
            "pullBudget": {"bytesToday": 1, "bytesPerDay": 2, "held": "h"},
            "imageArchives": {"directory": "d", "files": [archive], "message": "m"},
            "missingImages": [{"image": "i", "pods": ["p"]}],
            "apiServer": {
                "server": "s", "connected": true, "message": "m", "connections": 1, "sentBytes": 2, "receivedBytes": 3,
            },
            "sync": {
                "mode": "watch", "open": true, "last": exchange, "cacheAgeSeconds": 1, "nextSeconds": 2, "bytesToday": 3,
                "bytesPerDay": 4, "leftOut": ["l"], "pendingStatuses": 5, "pendingEvents": 6,
            },
            "offline": {
                "records": 1, "bytes": 2, "writtenBytes": 3, "changed": "t", "inUse": true, "setAside": 4, "unopened": 5,
                "leftOut": 6, "secrets": "s", "message": "m",
            },
            "certificates": [{"name": "client", "state": "Due", "notAfter": "t", "message": "m"}],
            "leftovers": ["l"],
            "errors": [{"time": "t", "message": "m"}],
        });
        let read = decode::<NodeStatus>(status.clone()).unwrap().value;
        assert_eq!(serde_json::to_value(&read).unwrap(), status);
    }

    #[test]
    fn absent_field_has_its_default_and_a_wrong_one_its_path() {
        assert_eq!(decode::<NodeStatus>(json!({"later": 1})).unwrap().value, NodeStatus::default());
        let wrong = decode::<NodeStatus>(json!({"problems": [{"severity": "mild"}]})).unwrap_err();
        assert_eq!(wrong.to_string(), r#"problems[0].severity: expected "down", "failing" or "warning", found "mild""#);
    }
}
