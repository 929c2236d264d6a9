//! The API behind the local socket and the other servers: answers from what the sync loop shows.
//!
//! [`NodeLocalApi`] reads [`NodeViews`], which the sync loop writes. The sync loop reports errors to [`RecentErrors`] and
//! observations to [`Followers`]. What changes pods goes to the sync loop as an event.

mod agent_control;
mod agent_fetch;
mod agent_metrics;
mod agent_remote;
mod board_metrics;
mod log_followers;
mod node_local_api;
mod node_stats;
mod own_node;
mod pod_changes;
mod pod_requests;
mod recent_errors;
mod shown_pods;
mod sync_status;
mod views;

pub(crate) use agent_control::AgentControl;
pub(crate) use agent_fetch::ProgramFetch;
pub(crate) use agent_remote::RemoteUpgrades;
pub(crate) use log_followers::Followers;
pub(crate) use node_local_api::NodeLocalApi;
pub(crate) use node_stats::NodeStats;
pub(crate) use recent_errors::RecentErrors;
pub(crate) use views::NodeViews;
