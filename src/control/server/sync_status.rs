//! The state of the exchanges with the API server, in `/status` and `/sync`. Pure.

use crate::types::api::record;

record! {
    /// When the node exchanges data with the API server, and its traffic. Also the response to `POST /sync`.
    pub(crate) struct SyncStatus {
        /// The configured mode.
        pub(crate) mode: String,
        /// The gate is open: changes are exchanged as they happen.
        pub(crate) open: bool,
        /// The last exchange, if there was one.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) last: Option<ExchangeStatus>,
        /// Age of the known state of the cluster; absent while it is current, or if there has been no contact since the
        /// start.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) cache_age_seconds: Option<u64>,
        /// Time until the next exchange, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) next_seconds: Option<u64>,
        /// Since the start of the current day of the boot clock.
        pub(crate) bytes_today: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) bytes_per_day: Option<u64>,
        /// Kinds of requests that today's byte budget no longer covers.
        pub(crate) left_out: Vec<String>,
        /// Pods whose status has not been reported.
        pub(crate) pending_statuses: u64,
        pub(crate) pending_events: u64,
    }
}

record! {
    /// The result of an exchange.
    pub(crate) struct ExchangeStatus {
        /// RFC 3339.
        pub(crate) ended: String,
        /// Why the exchange was aborted; empty if it was not.
        pub(crate) message: String,
        /// Responses, such as `events: 3`, in the order of the exchange.
        pub(crate) answered: Vec<String>,
        /// Requests without a response, or rejected.
        pub(crate) failed: u32,
        pub(crate) sent_bytes: u64,
        pub(crate) received_bytes: u64,
    }
}
