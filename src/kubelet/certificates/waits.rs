//! Waits for certificate files to change, and for dates.

use std::io;
use std::time::Duration;

use super::rotation::{NextRotation, Seconds};
use crate::platform::host::file_watch::FileWatch;
use crate::platform::host::wall_timer;
use crate::platform::rt;

/// Polling interval where the kernel cannot watch files.
const CREDENTIAL_POLL_INTERVAL: Duration = Duration::from_secs(600);

/// Returns when one of the files may have changed.
pub(super) async fn changed(watch: &io::Result<FileWatch>) {
    match watch {
        Ok(watch) if watch.changed().await.is_ok() => {}
        _ => rt::sleep(CREDENTIAL_POLL_INTERVAL).await,
    }
}

/// Returns when the clock is set.
pub(super) async fn clock_set() {
    wall_timer::until(Seconds::MAX).await;
}

/// Returns when `until` is reached. May return early when the clock is set.
pub(super) async fn due(until: NextRotation) {
    match until {
        NextRotation::Date(second) => wall_timer::until(second).await,
        NextRotation::Span(span) => rt::either(rt::sleep(span), clock_set()).await,
    }
}
