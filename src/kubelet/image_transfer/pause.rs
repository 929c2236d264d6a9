//! Waits of a fetch thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::error::FetchError;

const MAX_PAUSE_SLEEP: Duration = Duration::from_millis(200);

/// Sleeps, until `cancelled`.
pub(super) fn pause(cancelled: &AtomicBool, wait: Duration) -> Result<(), FetchError> {
    let mut left = wait;
    while !left.is_zero() {
        if cancelled.load(Ordering::Relaxed) {
            return Err(FetchError::Cancelled);
        }
        let step = left.min(MAX_PAUSE_SLEEP);
        std::thread::sleep(step);
        left -= step;
    }
    Ok(())
}
