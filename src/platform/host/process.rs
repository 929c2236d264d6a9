//! What the kernel knows of a process, and of all of them.

use std::time::Duration;

use super::procfs::Procfs;
use crate::platform::host::clock;

/// How long a process has run, by a clock that nobody sets. `None`: it has ended, or is in another PID namespace.
pub(crate) fn age(pid: u32) -> Option<Duration> {
    clock::uptime().checked_sub(Procfs::host().process(pid).stat()?.started_after_boot)
}

/// Number of tasks, threads among them, and the highest number that there can be.
pub(crate) fn tasks() -> Option<(u64, u64)> {
    let procfs = Procfs::host();
    Some((procfs.tasks()?, procfs.most_tasks()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_not_older_than_the_machine_and_not_from_the_future() {
        let age = age(std::process::id()).expect("procfs is there");
        let up = clock::uptime();
        assert!(age <= up, "{age:?} of {up:?}");
        assert!(age < Duration::from_secs(3600), "{age:?}");
    }
}
