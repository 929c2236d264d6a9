//! Processor time, which a busy machine does not change. For tests.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// The processor time of this thread.
pub(crate) fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
