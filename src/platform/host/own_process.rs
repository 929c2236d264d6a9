//! Resource usage of this process.

use std::fs;

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
        let text = |path: &str| fs::read_to_string(format!("/proc/self/{path}")).unwrap_or_default();
        let (stat, status) = (text("stat"), text("status"));
        let (cpu_ms, started_ms) = of_stat(&stat).unzip();
        let now = clock::timestamp().as_millisecond();
        let up = i64::try_from(clock::uptime().as_millis()).unwrap_or(i64::MAX);
        let started_at = started_ms.and_then(|ms| i64::try_from(ms).ok());
        let kib = |key| number_after(&status, key).map(|kib: u64| kib.saturating_mul(1024));
        Self {
            cpu_ms,
            started_at: started_at.map(|ms| now.saturating_sub(up).saturating_add(ms).div_euclid(1000)),
            open_files: fs::read_dir("/proc/self/fd")
                .ok()
                .and_then(|entries| u64::try_from(entries.count()).ok())
                // Without the descriptor of the directory itself.
                .map(|count| count.saturating_sub(1)),
            most_files: number_after(&text("limits"), "Max open files"),
            resident: kib("VmRSS:"),
            virtual_size: kib("VmSize:"),
            written: number_after(&text("io"), "write_bytes:"),
            wakes: wakes(),
        }
    }
}

/// CPU time, and start time since boot, both in milliseconds: fields 14, 15 and 22.
fn of_stat(stat: &str) -> Option<(u64, u64)> {
    let (_, fields) = stat.rsplit_once(')')?;
    let field = |number: usize| fields.split_whitespace().nth(number - 3)?.parse::<u64>().ok();
    let ms = |ticks: u64| ticks.saturating_mul(1000 / TICKS_PER_SECOND);
    Some((ms(field(14)?.saturating_add(field(15)?)), ms(field(22)?)))
}

fn number_after(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Only of threads that still exist.
fn wakes() -> Option<u64> {
    let tasks = fs::read_dir("/proc/self/task").ok()?;
    let of_task = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        number_after(&status, "voluntary_ctxt_switches:")
    };
    Some(tasks.flatten().filter_map(of_task).fold(0, u64::saturating_add))
}

/// `USER_HZ`.
const TICKS_PER_SECOND: u64 = 100;

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

    #[test]
    fn parentheses_in_the_name_do_not_shift_fields() {
        let stat = "7 (a) b ) S 1 7 7 0 -1 4194560 1 2 3 4 50 6 7 8 20 0 1 0 12345 2 3";
        assert_eq!(of_stat(stat), Some((560, 123_450)));
        assert_eq!(of_stat("7 (a"), None);
    }
}
