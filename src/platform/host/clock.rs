//! The wall clock, for timestamps, and the clocks since boot. A board's wall clock may be wrong and may jump, so
//! nothing else depends on it where that can be avoided.
//!
//! Timeouts use `std::time::Instant`, the kernel's monotonic clock. It stops while the node is suspended, so nothing is
//! overdue when a board wakes up.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::file::read_head;
#[cfg(test)]
use crate::platform::rt;
use crate::types::api::Time;
use crate::types::time::EARLIEST_CLOCK_SECONDS;
use crate::types::timestamp::Timestamp;

/// The current time in whole seconds.
pub(crate) fn now() -> Time {
    Time::from_timestamp(timestamp())
}

/// The current time. A clock beyond the year 9999 yields the epoch.
///
/// Not from std: on 32-bit musl that calls a C function which cannot express times after 2038, and panics.
pub(crate) fn timestamp() -> Timestamp {
    #[cfg(test)]
    if let Some(world) = rt::world() {
        let now = world.wall_clock();
        return Timestamp::new(now.as_secs().cast_signed(), now.subsec_nanos()).unwrap_or_default();
    }
    let now = clock_gettime(ClockId::Realtime);
    let nanos = u32::try_from(now.tv_nsec).unwrap_or_default();
    Timestamp::new(now.tv_sec, nanos).unwrap_or_default()
}

/// Unix time in nanoseconds.
pub(crate) fn unix_nanos() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// The build time in Unix seconds, if the builder set it: a lower bound for the current time.
pub(crate) fn built() -> Option<i64> {
    // The convention of reproducible builds.
    option_env!("SOURCE_DATE_EPOCH")?.parse().ok()
}

/// Whether a clock that shows this time was set: a board without a battery boots in 1970.
pub(crate) fn is_set(time: Time) -> bool {
    time.unix_seconds() >= built().unwrap_or(EARLIEST_CLOCK_SECONDS)
}

/// The latest time that an earlier run of this process or this one has seen, in Unix seconds. The clock may have been
/// wrong then.
static LATEST_SEEN_TIME: AtomicU64 = AtomicU64::new(0);

pub(crate) fn note_latest(seconds: u64) {
    // A simulation shares this process with others.
    #[cfg(test)]
    if rt::world().is_some() {
        return;
    }
    LATEST_SEEN_TIME.fetch_max(seconds, Ordering::Relaxed);
}

/// The latest time that this node has seen; 0 if unknown.
pub(crate) fn latest() -> u64 {
    LATEST_SEEN_TIME.load(Ordering::Relaxed)
}

/// The time since `nanos`, a Unix time in nanoseconds. At least zero and at most the machine's uptime, whatever the
/// wall clock says.
pub(crate) fn since(nanos: i64) -> Duration {
    let passed = timestamp().as_nanosecond().saturating_sub(nanos);
    Duration::from_nanos(u64::try_from(passed).unwrap_or_default()).min(uptime())
}

/// The monotonic clock, comparable between processes of the same boot.
pub(crate) fn since_boot() -> Duration {
    #[cfg(test)]
    if let Some(world) = rt::world() {
        return world.uptime();
    }
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

/// The machine's uptime, including suspended time.
pub(crate) fn uptime() -> Duration {
    #[cfg(test)]
    if let Some(world) = rt::world() {
        return world.uptime();
    }
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

/// How long the machine was suspended since it was booted.
pub(crate) fn suspended() -> Duration {
    #[cfg(test)]
    if let Some(world) = rt::world() {
        return world.suspended.get();
    }
    // The later clock is read last.
    let awake = since_boot();
    uptime().saturating_sub(awake)
}

/// The kernel's random id of this boot.
pub(crate) fn boot_id() -> String {
    #[cfg(test)]
    if let Some(world) = rt::world() {
        return world.boot_id();
    }
    let bytes = read_head(Path::new("/proc/sys/kernel/random/boot_id"), 64).unwrap_or_default();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn it_agrees_with_the_standard_library() {
        let read = || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            Timestamp::UNIX_EPOCH.checked_add(since).unwrap()
        };
        let before = read();
        let now = timestamp();
        let after = read();
        assert!(before <= now && now <= after, "{before} {now} {after}");
    }

    #[test]
    fn since_is_between_zero_and_the_uptime() {
        for nanos in [i64::MIN, -1, 0, 1] {
            let (before, age, after) = (uptime(), since(nanos), uptime());
            assert!(before <= age && age <= after, "{nanos}: {before:?} {age:?} {after:?}");
        }
        assert_eq!(since(i64::MAX), Duration::ZERO);
    }
}
