//! Waits of a fetch thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::error::FetchError;

/// A sleeping thread cannot be notified: it looks this often whether it is cancelled.
const MAX_PAUSE_SLEEP: Duration = Duration::from_millis(200);

/// Sleeps, until `cancelled`.
pub(super) fn pause(cancelled: &AtomicBool, wait: Duration) -> Result<(), FetchError> {
    let mut remaining = wait;
    while !remaining.is_zero() {
        if cancelled.load(Ordering::Relaxed) {
            return Err(FetchError::Cancelled);
        }
        let step = remaining.min(MAX_PAUSE_SLEEP);
        std::thread::sleep(step);
        remaining -= step;
    }
    Ok(())
}
