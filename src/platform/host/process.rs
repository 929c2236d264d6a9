//! Process information from procfs.

use std::fs;
use std::time::Duration;

use crate::platform::host::clock;

/// How long a process has run, by the boot clock. `None` if it does not exist in this PID namespace.
pub(crate) fn age(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    clock::uptime().checked_sub(started_after_boot(&stat)?)
}

/// The number of tasks, threads included, and the maximum: the lower of two kernel limits.
pub(crate) fn tasks() -> Option<(u64, u64)> {
    let number = |path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let bounds = ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"];
    let most = bounds.into_iter().filter_map(number).min()?;
    Some((tasks_of(&fs::read_to_string("/proc/loadavg").ok()?)?, most))
}

/// Parses `/proc/loadavg`: `0.20 0.18 0.12 1/80 11206`.
fn tasks_of(loadavg: &str) -> Option<u64> {
    loadavg.split(' ').nth(3)?.split_once('/')?.1.parse().ok()
}

/// The start time after boot, from field 22 of `/proc/PID/stat`, in ticks. Field 2 is the program's name in parentheses
/// and may contain anything.
fn started_after_boot(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: u64 = fields.split_whitespace().nth(19)?.parse().ok()?;
    Some(Duration::from_millis(ticks.checked_mul(1000 / TICKS_PER_SECOND)?))
}

/// `USER_HZ`: 100 on every architecture, whatever the kernel's own frequency is.
const TICKS_PER_SECOND: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_is_between_zero_and_the_uptime() {
        let age = age(std::process::id()).expect("procfs is there");
        let up = clock::uptime();
        assert!(age <= up, "{age:?} of {up:?}");
        assert!(age < Duration::from_secs(3600), "{age:?}");
    }

    #[test]
    fn loadavg_has_tasks_after_the_slash() {
        assert_eq!(tasks_of("0.20 0.18 0.12 1/80 11206\n"), Some(80));
        assert_eq!(tasks_of("nonsense"), None);
        let (now, most) = tasks().expect("procfs is there");
        assert!(0 < now && now < most, "{now} of {most}");
    }

    #[test]
    fn program_names_may_contain_anything() {
        let stat = "7 (a) b ) 1 (c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 2 3";
        assert_eq!(started_after_boot(stat), Some(Duration::from_millis(123_450)));
        let late = stat.replace("12345", "5000000000");
        assert_eq!(started_after_boot(&late), Some(Duration::from_secs(50_000_000)), "after 497 days");
        for bad in ["", "7 (a", "7 (a) S", "7 (a) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 x"] {
            assert_eq!(started_after_boot(bad), None, "{bad}");
        }
    }
}
