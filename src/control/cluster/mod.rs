//! What the node tells the cluster of its pods: their statuses, their end, the mirrors of its own pods, and events.
//!
//! The sync loop says what is true now; what is told of it, when and how often, is decided in `reports.rs` and
//! `mirrors.rs`. Nothing here holds up a pod: a server that is away is tried again, and hears the newest then.

mod byte_day;
mod event_sender;
mod exchanges;
mod follower;
mod mirrors;
mod reporter;
mod reports;
mod sync_times;
mod token_dates;
mod tokens;

pub(crate) use event_sender::EventSender;
pub(crate) use exchanges::{Exchange, Exchanges};
pub(crate) use follower::Follower;
pub(crate) use reporter::Reporter;
