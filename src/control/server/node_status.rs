//! What `/status` answers: the node as `coracle status` shows it. Pure.

use serde::{Deserialize, Serialize};

use super::image_entries::{ArchivesStatus, MissingImage};
use super::sync_status::SyncStatus;
use super::watchdog::{Stall, WatchdogStatus};

/// The answer of `/status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeStatus {
    pub(crate) version: String,
    pub(crate) node: String,
    pub(crate) addresses: Vec<String>,
    /// Of the machine.
    pub(crate) processors: u32,
    pub(crate) uptime_seconds: u64,
    /// Whether the sync loop moves.
    pub(crate) healthy: bool,
    pub(crate) watchdog: WatchdogStatus,
    /// The newest one, of this process or an earlier one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_stall: Option<Stall>,
    pub(crate) runtime: RuntimeStatus,
    /// As in a node's status; none before the first look.
    pub(crate) conditions: Vec<ConditionStatus>,
    pub(crate) sources: Vec<SourceStatus>,
    pub(crate) pods: u64,
    /// Of the node's own pods.
    pub(crate) versions: Vec<VersionStatus>,
    /// Images on their way, in the order in which they were asked for.
    pub(crate) pulls: Vec<PullStatus>,
    pub(crate) image_archives: ArchivesStatus,
    /// None if the runtime did not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) missing_images: Option<Vec<MissingImage>>,
    /// None without a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) api_server: Option<ApiServerStatus>,
    /// None without a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sync: Option<SyncStatus>,
    /// None without a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) offline: Option<OfflineStatus>,
    /// Those that the node shows to its cluster; none away from one.
    pub(crate) certificates: Vec<CertificateStatus>,
    /// The last errors, oldest first.
    pub(crate) errors: Vec<RecentError>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RuntimeStatus {
    pub(crate) endpoint: String,
    /// Empty until the runtime has answered once.
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) ready: bool,
    pub(crate) network_ready: bool,
    /// Why it is not ready.
    pub(crate) message: String,
}

/// One condition of the node, as a v1.NodeCondition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ConditionStatus {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// `True` or `False`.
    pub(crate) status: String,
    /// RFC 3339.
    pub(crate) last_transition_time: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// One source of pods: a manifest directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SourceStatus {
    pub(crate) name: String,
    pub(crate) pods: u64,
    /// Whether it has reported at least once.
    pub(crate) ready: bool,
    /// What is wrong with it now: each names its file.
    pub(crate) errors: Vec<String>,
}

/// The versions of one of the node's own pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct VersionStatus {
    /// As `default/web-node1`.
    pub(crate) pod: String,
    /// `on trial`, `rejected`, `rolled back` or `held`; empty where what the manifest says runs.
    pub(crate) state: String,
    pub(crate) message: String,
    /// Those before the present one that are kept.
    pub(crate) earlier: u64,
}

/// A pull of an image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PullStatus {
    pub(crate) image: String,
    /// Who wants it.
    pub(crate) pod: String,
    /// False: it waits for its turn.
    pub(crate) begun: bool,
    /// Since it began, or since it was asked for.
    pub(crate) seconds: u64,
}

/// The way to the API server, since this process began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ApiServerStatus {
    /// Host and port; empty until the kubeconfig could be read.
    pub(crate) server: String,
    pub(crate) connected: bool,
    /// Why it is not connected; empty where no try has failed.
    pub(crate) message: String,
    /// Connections that were made.
    pub(crate) connections: u64,
    /// What went over them with TLS, without the headers of TCP and below.
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
}

/// What is stored for a start without the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct OfflineStatus {
    /// Pods and what they need.
    pub(crate) records: u64,
    /// On the disk.
    pub(crate) bytes: u64,
    /// Written since this process began.
    pub(crate) written_bytes: u64,
    /// When something in it last changed, RFC 3339; empty while there is nothing.
    pub(crate) changed: String,
    /// The cluster has not been heard since the start: its pods are those that are stored.
    pub(crate) in_use: bool,
    /// Records that were damaged or of another version, and have been set aside.
    pub(crate) set_aside: u64,
    /// Records that no key opens.
    pub(crate) unopened: u64,
    /// Records that did not fit.
    pub(crate) left_out: u64,
    /// What becomes of Secrets and tokens.
    pub(crate) secrets: String,
    /// Why it cannot be read or written; empty if it can.
    pub(crate) message: String,
}

/// One of the node's own certificates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CertificateStatus {
    /// `client` or `serving`.
    pub(crate) name: String,
    pub(crate) state: CertificateState,
    /// RFC 3339; empty where there is none.
    pub(crate) not_after: String,
    /// Why there is none, or none that is newer.
    pub(crate) message: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CertificateState {
    #[default]
    Missing,
    Good,
    /// Good, and to be replaced.
    Due,
    Expired,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RecentError {
    /// RFC 3339.
    pub(crate) time: String,
    pub(crate) message: String,
}
