//! The doors to the outside: the kubelet's API, health over HTTP, the local socket, the service manager.

mod connections;
mod container_logs;
pub(crate) mod health;
mod http;
mod images;
mod local;
mod local_socket;
mod log_query;
mod node_door;
mod page;
mod pod_changes;
mod pulse;
mod relay;
mod status_page;
mod streaming;
mod sync;
pub(crate) mod systemd;
mod tcp_door;
mod watchdog;

pub(crate) use health::SyncHealth;
pub(crate) use http::parse_response;
pub(crate) use images::{ArchiveStatus, ArchivesStatus, ImageEntry, Images, MissingImage};
pub(crate) use local::{
    Absent, ApiServerStatus, CertificateState, CertificateStatus, ConditionStatus, Found, LocalApi, LocalServer,
    LogSource, NodeStatus, OfflineStatus, PodAsked, PodEntry, PullStatus, RecentError, RuntimeStatus, SourceStatus,
    VersionStatus,
};
pub(crate) use log_query::LogQuery;
pub(crate) use node_door::{NodeDoor, ReadOnlyDoor};
pub(crate) use page::Page;
pub(crate) use pulse::{Doing, Pulse};
pub(crate) use status_page::StatusPage;
pub(crate) use streaming::Streaming;
pub(crate) use sync::{ExchangeStatus, SyncStatus};
#[cfg(test)]
pub(crate) use watchdog::DeviceStatus;
pub(crate) use watchdog::{Stall, Watchdog, WatchdogStatus};
