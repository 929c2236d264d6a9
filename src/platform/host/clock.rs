//! The wall clock, for what people read. A board may have it wrong, and it may jump: nothing is decided by it that can
//! be decided otherwise. And the clocks of this boot, which all of its processes share.
//!
//! What is timed goes by `std::time::Instant`, the kernel's monotonic clock, which stands still while the node is
//! suspended: a board that wakes up is not late for anything.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

use super::file::read_head;
#[cfg(test)]
use crate::platform::rt;
use crate::types::api::Time;

/// This second.
pub(crate) fn now() -> Time {
    Time::from_timestamp(timestamp())
}

/// This moment. A clock beyond the year 9999 says nothing: that is the epoch.
///
/// Not from the standard library: on 32 bits with musl that asks a C function which cannot tell years after 2038, and
/// panics.
pub(crate) fn timestamp() -> Timestamp {
    #[cfg(test)]
    if let Some(world) = rt::world() {
        let now = world.wall_clock();
        return Timestamp::new(now.as_secs().cast_signed(), now.subsec_nanos().cast_signed()).unwrap_or_default();
    }
    let now = clock_gettime(ClockId::Realtime);
    let nanos = i32::try_from(now.tv_nsec).unwrap_or_default();
    Timestamp::new(now.tv_sec, nanos).unwrap_or_default()
}

/// When this program was built, in seconds since 1970, where its builder has said so. Now is later.
pub(crate) fn built() -> Option<i64> {
    // The convention of reproducible builds.
    option_env!("SOURCE_DATE_EPOCH")?.parse().ok()
}

/// What has gone by since something that still goes on began, by the wall clock in nanoseconds since 1970. Nothing if
/// that is yet to come, and no more than the machine has been up.
pub(crate) fn since(nanos: i64) -> Duration {
    let passed = timestamp().as_nanosecond().saturating_sub(i128::from(nanos)).max(0);
    let passed = u64::try_from(passed).map_or(Duration::MAX, Duration::from_nanos);
    passed.min(uptime())
}

/// The monotonic clock, as another process of this boot reads it too.
pub(crate) fn since_boot() -> Duration {
    #[cfg(test)]
    if let Some(world) = rt::world() {
        return world.uptime();
    }
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

/// How long the machine has been up, suspended or not.
pub(crate) fn uptime() -> Duration {
    #[cfg(test)]
    if let Some(world) = rt::world() {
        return world.uptime();
    }
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

/// Which boot this is.
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
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn it_tells_what_the_standard_library_tells() {
        let before = Timestamp::try_from(SystemTime::now()).unwrap();
        let now = timestamp();
        let after = Timestamp::try_from(SystemTime::now()).unwrap();
        assert!(before <= now && now <= after, "{before} {now} {after}");
    }

    #[test]
    fn nothing_that_goes_on_is_older_than_the_machine_or_from_the_future() {
        for nanos in [i64::MIN, -1, 0, 1] {
            let (before, age, after) = (uptime(), since(nanos), uptime());
            assert!(before <= age && age <= after, "{nanos}: {before:?} {age:?} {after:?}");
        }
        assert_eq!(since(i64::MAX), Duration::ZERO);
    }
}
