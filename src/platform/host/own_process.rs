//! Resource usage of this process.

use std::time::Duration;

use super::procfs::{Process, ProcessStat, Procfs};
use crate::platform::host::clock;

/// Fields that cannot be read are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnProcess {
    /// Milliseconds.
    pub(crate) cpu_ms: Option<u64>,
    /// Unix seconds.
    pub(crate) started_at: Option<i64>,
    pub(crate) open_files: Option<u64>,
    pub(crate) most_files: Option<u64>,
    /// Bytes.
    pub(crate) resident: Option<u64>,
    pub(crate) virtual_size: Option<u64>,
    /// Bytes written to disks.
    pub(crate) written: Option<u64>,
    /// Voluntary context switches of all threads, each of which ends in a wake-up.
    pub(crate) wakes: Option<u64>,
}

impl OwnProcess {
    pub(crate) fn read() -> Self {
        let process = Procfs::host().this_process();
        let (stat, status) = (process.stat(), process.status());
        let now = clock::timestamp().as_millisecond();
        let booted_at = now.saturating_sub(milliseconds(clock::uptime()));
        let started_at = |stat: ProcessStat| booted_at.saturating_add(milliseconds(stat.started_after_boot));
        Self {
            cpu_ms: stat.and_then(|stat| u64::try_from(stat.cpu_time.as_millis()).ok()),
            started_at: stat.map(|stat| started_at(stat).div_euclid(1000)),
            open_files: process.open_files(),
            most_files: process.open_files_limit().filter(|files| *files < u64::MAX),
            resident: status.as_ref().and_then(|status| status.resident_bytes),
            virtual_size: status.as_ref().and_then(|status| status.virtual_bytes),
            written: process.written_bytes(),
            wakes: wakes(&process),
        }
    }
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Counts only threads that still exist.
fn wakes(process: &Process) -> Option<u64> {
    let of_thread = |thread: Process| thread.status()?.voluntary_context_switches;
    Some(process.threads().ok()?.filter_map(of_thread).fold(0, u64::saturating_add))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_start_time_files_and_memory() {
        let own = OwnProcess::read();
        let now = clock::timestamp().as_second();
        let age = now - own.started_at.unwrap();
        assert!((-1..3600).contains(&age), "{age} s old");
        assert!(own.open_files.unwrap() > 0 && own.open_files < own.most_files, "{own:?}");
        assert!(own.resident.unwrap() > 1 << 20 && own.resident < own.virtual_size, "{own:?}");
        assert!(own.wakes.is_some() && own.cpu_ms.is_some(), "{own:?}");
    }
}
