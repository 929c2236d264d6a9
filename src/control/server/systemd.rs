//! Notifies the service manager, if there is one: ready, alive, stopping.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::sys::stat::fstat;
use sd_notify::NotifyState;

use crate::types::error::ErrorChain;

/// Notifies the service manager that the agent is ready.
pub(crate) fn ready() {
    sd_notify(NotifyState::Ready);
}

/// Notifies the service manager that the process is about to end. Its pods keep running.
pub(crate) fn stopping() {
    sd_notify(NotifyState::Stopping);
}

/// The service manager's watchdog interval, after which it kills and restarts this process; `None` if it is off.
pub(super) fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().filter(|interval| !interval.is_zero())
}

/// Pets the service manager's watchdog.
pub(super) fn alive() {
    sd_notify(NotifyState::Watchdog);
}

/// Whether stderr goes to the journal, which parses a priority at the start of each line.
pub(crate) fn stderr_is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let Ok(stat) = fstat(std::io::stderr().as_fd()) else { return false };
    // An inherited variable may describe another process's stderr (systemd.exec(5)).
    stream == format!("{}:{}", stat.st_dev, stat.st_ino)
}

/// Does not wait: the service manager reads its messages at once.
fn sd_notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        log!(warn, "failed to notify the service manager", error = ErrorChain(&error));
    }
}
