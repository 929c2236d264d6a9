//! What the node reports to the API server about its pods: statuses, deletions, mirror pods and events.
//!
//! The sync loop passes the current state. `status_queue.rs` and `mirror_pods.rs` decide what is sent, when and how
//! often. No pod waits for this: an unreachable API server is retried, and gets the newest state then.

mod byte_budget;
mod event_sender;
mod lookups;
mod mirror_pods;
mod next_step;
mod object_watcher;
mod pod_certificate_status;
mod pod_certificates;
mod service_list;
mod status_manager;
mod status_queue;
mod sync_scheduler;
mod sync_windows;
mod token_lifetime;
mod token_work;
mod topic_content;
mod topic_queue;
mod topic_requests;
mod topic_work;
mod trust_bundles;
mod watch_budget;
mod watch_context;

pub(crate) use event_sender::EventSender;
pub(crate) use object_watcher::ObjectWatcher;
pub(crate) use status_manager::{StaticPods, StatusManager};
pub(crate) use sync_scheduler::{Exchange, SyncScheduler};
