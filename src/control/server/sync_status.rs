//! What `/status` and `/sync` show of the exchanges with the API server. Pure.

use serde::{Deserialize, Serialize};

/// When the cluster is asked and told, and what that costs; the answer of `POST /sync`, too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SyncStatus {
    /// As it is configured.
    pub(crate) mode: String,
    /// Whatever happens is exchanged as it does.
    pub(crate) open: bool,
    /// The last exchange; none while there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last: Option<ExchangeStatus>,
    /// So old is what is known of the cluster; none where it is of now, or nothing was heard since the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cache_age_seconds: Option<u64>,
    /// Until the next exchange, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_seconds: Option<u64>,
    /// Of the last day, by the clock of this boot, since this process began.
    pub(crate) bytes_today: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes_per_day: Option<u64>,
    /// For what today's bytes do not last.
    pub(crate) left_out: Vec<String>,
    /// Pods and events that the cluster has something to hear of.
    pub(crate) pending_statuses: u64,
    pub(crate) pending_events: u64,
}

/// What has come of an exchange.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ExchangeStatus {
    /// RFC 3339.
    pub(crate) ended: String,
    /// Why it was broken off; empty if it was not.
    pub(crate) message: String,
    /// Answers, as `events: 3`, in the order of the exchange.
    pub(crate) answered: Vec<String>,
    /// Requests that got no answer, or a refusal.
    pub(crate) failed: u32,
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
}
