//! Where the logs of containers are, and when they are rotated. Pure.

use std::path::PathBuf;
use std::time::Duration;

use super::fields::Fields;

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

const MAX_SIZE_FIELD: &str = "containerLogMaxSize";

/// Upstream does not rotate with a negative size, and rotates at each check with 0: a log would fill the disk, or wear it.
pub(super) fn warning(fields: &Fields<'_>) -> Option<String> {
    let is_unusable = fields.bytes(MAX_SIZE_FIELD) == Some(0);
    is_unusable.then(|| format!("{MAX_SIZE_FIELD}: expected a size above 0, 10Mi is used"))
}

pub(super) fn read(fields: &Fields<'_>) -> LogSettings {
    let mut logs = LogSettings::default();
    if let Some(path) = fields.text("podLogsDir") {
        logs.pods_dir = PathBuf::from(path);
    }
    if let Some(bytes) = fields.bytes(MAX_SIZE_FIELD).filter(|bytes| *bytes > 0) {
        logs.max_bytes = bytes;
    }
    fields.replace("containerLogMaxFiles", Fields::positive, &mut logs.max_files);
    fields.replace("containerLogMaxWorkers", Fields::positive, &mut logs.max_workers);
    fields.replace("containerLogMonitorInterval", Fields::period, &mut logs.monitor_interval);
    logs
}
