//! The doors to the outside: the kubelet's API, health over HTTP, the local socket, the service manager.

mod connections;
mod container_logs;
pub(crate) mod health;
mod http;
mod images;
mod kubelet_api;
mod listener;
mod local_api;
mod local_socket;
mod log_query;
mod metrics_pages;
mod pod_changes;
mod pulse;
mod relay;
mod status_page;
mod streaming;
mod sync_requests;
pub(crate) mod systemd;
mod watchdog;

pub(crate) use health::SyncHealth;
pub(crate) use http::parse_response;
pub(crate) use images::{ArchiveStatus, ArchivesStatus, ImageEntry, Images, MissingImage};
pub(crate) use kubelet_api::{KubeletApiServer, ReadOnlyServer};
pub(crate) use local_api::{
    Absent, ApiServerStatus, CertificateState, CertificateStatus, ConditionStatus, Found, LocalApi, LocalServer,
    LogSource, NodeStatus, OfflineStatus, PodEntry, PodQuery, PullStatus, RecentError, RuntimeStatus, SourceStatus,
    VersionStatus,
};
pub(crate) use local_socket::LocalError;
pub(crate) use log_query::LogQuery;
pub(crate) use metrics_pages::Page;
pub(crate) use pulse::{Doing, Pulse};
pub(crate) use status_page::StatusPage;
pub(crate) use streaming::Streaming;
pub(crate) use sync_requests::{ExchangeStatus, SyncStatus};
#[cfg(test)]
pub(crate) use watchdog::DeviceStatus;
pub(crate) use watchdog::{Stall, Watchdog, WatchdogStatus};
