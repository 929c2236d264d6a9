//! What the service manager is told: ready, still alive, stopping. Nothing where there is none.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::sys::stat::fstat;
use sd_notify::NotifyState;

use crate::types::error::ErrorChain;

/// Pods are being looked after.
pub(crate) fn ready() {
    tell(NotifyState::Ready);
}

/// The process is about to end; its pods go on.
pub(crate) fn stopping() {
    tell(NotifyState::Stopping);
}

/// How long the manager waits for a sign of life before it kills and restarts this process; `None` where it does not.
pub(super) fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().filter(|interval| !interval.is_zero())
}

/// A sign of life.
pub(super) fn alive() {
    tell(NotifyState::Watchdog);
}

/// Whether what is written to stderr goes to the journal, which then takes a priority in front of each line.
pub(crate) fn stderr_is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let Ok(stat) = fstat(std::io::stderr().as_fd()) else { return false };
    // Inherited further, the variable may speak of another process's stderr (systemd.exec(5)).
    stream == format!("{}:{}", stat.st_dev, stat.st_ino)
}

/// The manager reads at once what is sent to it: the call does not wait.
fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        log!(warn, "service manager not reached", error = ErrorChain(&error));
    }
}
