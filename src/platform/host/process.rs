//! Process information from procfs.

use std::time::Duration;

use super::procfs::Procfs;
use crate::platform::host::clock;

/// How long a process has run, by the boot clock. `None` if it does not exist in this PID namespace.
pub(crate) fn age(pid: u32) -> Option<Duration> {
    clock::uptime().checked_sub(Procfs::host().process(pid).stat()?.started_after_boot)
}

/// The number of tasks, threads included, and the maximum: the lower of two kernel limits.
pub(crate) fn tasks() -> Option<(u64, u64)> {
    let procfs = Procfs::host();
    Some((procfs.tasks()?, procfs.most_tasks()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_is_between_zero_and_the_uptime() {
        let age = age(std::process::id()).expect("procfs is there");
        let up = clock::uptime();
        assert!(age <= up, "{age:?} of {up:?}");
        assert!(age < Duration::from_secs(3600), "{age:?}");
    }
}
