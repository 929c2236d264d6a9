//! The state of the exchanges with the cluster, as the local socket shows it.

use crate::control::cluster::{Exchange, SyncScheduler};
use crate::control::server::{ExchangeStatus, SyncStatus};
use crate::platform::config::{Config, SyncMode, go_duration};
use crate::state::pods::EventRing;
use crate::types::api::Time;

pub(super) fn sync_status(
    exchanges: &SyncScheduler,
    config: &Config,
    unreported: usize,
    events: &EventRing,
) -> SyncStatus {
    let state = exchanges.state();
    let mode = match &config.cluster.sync.mode {
        SyncMode::Watch => "watch".to_owned(),
        SyncMode::Poll { every } => format!("poll every {}", go_duration(*every)),
        SyncMode::Windows(_) => "windows".to_owned(),
        SyncMode::Manual => "manual".to_owned(),
    };
    SyncStatus {
        mode,
        open: state.is_open,
        last: state.last.map(exchange_status),
        cache_age_seconds: state.succeeded,
        next_seconds: state.next,
        bytes_today: state.bytes_today,
        bytes_per_day: state.bytes_per_day,
        left_out: state.left_out.into_iter().map(str::to_owned).collect(),
        pending_statuses: u64::try_from(unreported).unwrap_or(u64::MAX),
        pending_events: u64::try_from(events.unsent_count()).unwrap_or(u64::MAX),
    }
}

fn exchange_status(exchange: Exchange) -> ExchangeStatus {
    let answered = exchange.answered.into_iter().filter(|(_, count)| *count > 0);
    ExchangeStatus {
        ended: Time::from_timestamp(exchange.ended).to_string(),
        message: exchange.fault,
        answered: answered.map(|(what, count)| format!("{what}: {count}")).collect(),
        failed: exchange.failed,
        sent_bytes: exchange.sent_bytes,
        received_bytes: exchange.received_bytes,
    }
}
