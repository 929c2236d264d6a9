//! The servers: the kubelet API, health, the local socket, the status page; and the service manager and watchdogs.

mod agent_requests;
mod api_endpoint;
mod connection_shares;
mod connections;
mod container_logs;
pub(crate) mod health;
mod http;
mod image_entries;
mod images;
mod json_list;
mod kubelet_api;
mod listener;
mod local_api;
mod local_server;
mod local_socket;
mod log_query;
mod metrics_pages;
mod node_health;
mod node_problems;
mod node_status;
mod open_connections;
mod peer_buckets;
mod pod_changes;
mod pulse;
mod relay;
mod status_page;
mod stream_slots;
mod streaming;
mod sync_requests;
mod sync_status;
pub(crate) mod systemd;
mod unread_responses;
mod watchdog;
mod web_sockets;

pub(crate) use api_endpoint::{ApiEndpoint, OwnNodeSource};
pub(crate) use health::SyncHealth;
pub(crate) use http::parse_response;
pub(crate) use image_entries::{ArchiveStatus, ArchivesStatus, ImageEntry, Images, MissingImage};
pub(crate) use kubelet_api::{KubeletApiServer, ReadOnlyServer};
pub(crate) use local_api::{
    AgentRequest, AnswerFuture, CronJobRow, DeviceEntries, DeviceEntry, JobRow, JobRows, LocalApi, LogSource, NotFound,
    PodEntry, PodQuery,
};
pub(crate) use local_server::LocalServer;
pub(crate) use local_socket::{LocalError, readers_group};
pub(crate) use log_query::LogQuery;
pub(crate) use metrics_pages::Page;
pub(crate) use node_health::PodVerdict;
pub(crate) use node_problems::{NodeHealth, NodeProblem, PodCounts};
pub(crate) use node_status::{
    ApiServerStatus, CertificateState, CertificateStatus, ConditionStatus, NodeStatus, OfflineStatus, PullBudgetStatus,
    PullStatus, RecentError, RuntimeStatus, SourceStatus, VersionStatus,
};
pub(crate) use pulse::{Activity, Pulse};
pub(crate) use status_page::{PAGE_TOKEN, StatusPage};
pub(crate) use streaming::Streaming;
pub(crate) use sync_status::{ExchangeStatus, SyncStatus};
#[cfg(test)]
pub(crate) use watchdog::DeviceStatus;
pub(crate) use watchdog::{PanicRecord, Stall, Watchdog, WatchdogStatus, record_panics};
