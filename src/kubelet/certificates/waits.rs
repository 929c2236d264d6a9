//! What those who look after certificates wait for: files, and dates.

use std::io;
use std::time::Duration;

use super::rotation::{Seconds, Until};
use crate::platform::host::file_watch::FileWatch;
use crate::platform::host::wall_timer;
use crate::platform::rt;

/// Where the kernel cannot tell of changes.
const LOOK_AGAIN: Duration = Duration::from_secs(600);

/// Returns when one of the files may have changed.
pub(super) async fn changed(watch: &io::Result<FileWatch>) {
    match watch {
        Ok(watch) if watch.changed().await.is_ok() => {}
        _ => rt::sleep(LOOK_AGAIN).await,
    }
}

/// Returns when somebody sets the clock.
pub(super) async fn clock_set() {
    wall_timer::until(Seconds::MAX).await;
}

/// Returns when it is due, or the clock was set and it may be.
pub(super) async fn due(until: Until) {
    match until {
        Until::Date(second) => wall_timer::until(second).await,
        Until::Span(span) => rt::either(rt::sleep(span), clock_set()).await,
    }
}
