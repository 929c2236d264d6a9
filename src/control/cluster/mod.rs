//! What the node tells the cluster of its pods: their statuses, their end, the mirrors of its own pods, and events.
//!
//! The sync loop says what is true now; what is told of it, when and how often, is decided in `reports.rs` and
//! `mirrors.rs`. Nothing here holds up a pod: a server that is away is tried again, and hears the newest then.

mod byte_budget;
mod event_sender;
mod mirror_pods;
mod object_watcher;
mod status_manager;
mod status_queue;
mod sync_scheduler;
mod sync_windows;
mod token_lifetime;
mod tokens;
mod watch_context;

pub(crate) use event_sender::EventSender;
pub(crate) use object_watcher::Follower;
pub(crate) use status_manager::StatusManager;
pub(crate) use sync_scheduler::{Exchange, SyncScheduler};
