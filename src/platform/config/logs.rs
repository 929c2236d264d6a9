//! Where the logs of containers are, and when they are rotated. Pure.

use std::path::PathBuf;
use std::time::Duration;

use super::fields::Fields;
use crate::types::api::Quantity;

/// Container logs: `podLogsDir`, `containerLogMaxSize`, `containerLogMaxFiles`, `containerLogMaxWorkers` and
/// `containerLogMonitorInterval`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogSettings {
    pub(crate) pods_dir: PathBuf,
    pub(crate) max_bytes: u64,
    pub(crate) max_files: u32,
    pub(crate) max_workers: u32,
    pub(crate) monitor_interval: Duration,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            pods_dir: PathBuf::from("/var/log/pods"),
            max_bytes: 10 << 20,
            max_files: 5,
            max_workers: 1,
            monitor_interval: Duration::from_secs(10),
        }
    }
}

pub(super) fn read(fields: &Fields<'_>) -> LogSettings {
    let mut logs = LogSettings::default();
    if let Some(path) = fields.text("podLogsDir") {
        logs.pods_dir = PathBuf::from(path);
    }
    let size = fields.text("containerLogMaxSize").and_then(|size| size.parse::<Quantity>().ok());
    if let Some(bytes) = size.and_then(|size| u64::try_from(size.value()).ok()).filter(|bytes| *bytes > 0) {
        logs.max_bytes = bytes;
    }
    fields.replace("containerLogMaxFiles", Fields::positive, &mut logs.max_files);
    fields.replace("containerLogMaxWorkers", Fields::positive, &mut logs.max_workers);
    fields.replace("containerLogMonitorInterval", Fields::period, &mut logs.monitor_interval);
    logs
}
