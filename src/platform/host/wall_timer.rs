//! Waits for a time of the wall clock, and notices when that clock is set.
//!
//! A monotonic timer cannot wait for a date: a board may boot in 1970 and get the time later, and a suspended board
//! misses time. The kernel's CLOCK_REALTIME timer handles both.

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use rustix::time::TimerfdClockId as TimerClock;
use rustix::time::{Itimerspec, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime};

use crate::platform::host::clock;
use crate::platform::rt;

/// Returns at this Unix second, or when the clock is set. The caller must then check again whether something is due.
pub(crate) async fn until(second: i64) {
    #[cfg(test)]
    if let Some(world) = rt::world() {
        return world.until_wall_clock(second).await;
    }
    if let Err(error) = wait(second).await {
        // The kernel or a seccomp filter does not allow it. An hourly check notices a clock that was set.
        log!(debug, "failed to create wall-clock timer", error = error);
        let seconds_left = second.saturating_sub(clock::now().unix_seconds()).clamp(1, 3600);
        rt::sleep(Duration::from_secs(seconds_left.unsigned_abs())).await;
    }
}

async fn wait(second: i64) -> io::Result<()> {
    let timer = timerfd_create(TimerClock::Realtime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
    let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
    // A timer of zero would be disarmed.
    let time = Timespec { tv_sec: second.clamp(0, MAX_TIMER_SECONDS), tv_nsec: 1 };
    let never = Timespec { tv_sec: 0, tv_nsec: 0 };
    let armed = timerfd_settime(&timer, flags, &Itimerspec { it_interval: never, it_value: time });
    if !is_armed(armed)? {
        return Ok(());
    }
    rt::Async::new(timer)?.readable().await
}

/// False if the clock was set after the timer was created: the kernel arms it and reports ECANCELED.
fn is_armed<T>(armed: rustix::io::Result<T>) -> io::Result<bool> {
    match armed {
        Ok(_) => Ok(true),
        Err(Errno::CANCELED) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The kernel counts nanoseconds in 64 bits.
const MAX_TIMER_SECONDS: i64 = i64::MAX / 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn past_times_are_due_and_future_ones_are_not() {
        let now = clock::now().unix_seconds();
        let due = |second: i64, limit: u64| rt::block_on(rt::deadline(Duration::from_millis(limit), wait(second)));
        for past in [i64::MIN, 0, now - 60, now] {
            assert!(matches!(due(past, 20_000), Ok(Ok(()))), "{past}");
        }
        for later in [now + 3600, i64::MAX] {
            assert!(due(later, 20).is_err(), "{later}");
        }
    }

    #[test]
    fn clock_set_while_arming_counts_as_set() {
        assert!(matches!(is_armed::<()>(Err(Errno::CANCELED)), Ok(false)));
        assert!(matches!(is_armed(Ok(())), Ok(true)));
        assert!(is_armed::<()>(Err(Errno::PERM)).is_err());
    }
}
