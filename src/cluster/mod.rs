//! What the node tells the cluster of its pods: their statuses, their end, and the mirrors of its own pods.
//!
//! The sync loop says what is true now; what is told of it, when and how often, is decided in `reports.rs` and
//! `mirrors.rs`. Nothing here holds up a pod: a server that is away is tried again, and hears the newest then.

mod mirrors;
mod reporter;
mod reports;

pub(crate) use reporter::Reporter;
