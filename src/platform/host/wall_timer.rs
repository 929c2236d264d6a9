//! Waits for a moment of the wall clock, and notices when somebody sets that clock.
//!
//! What is due on a date cannot be timed by a clock that knows no dates: a board begins in 1970 and is told the time
//! later, and a suspended one sleeps over it. The kernel has a timer that knows of both.

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use rustix::time::TimerfdClockId as TimerClock;
use rustix::time::{Itimerspec, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime};

use crate::platform::rt;

/// Returns when the clock shows this second since 1970, or another time than it would have by itself. Then it is to be
/// asked anew whether something is due.
pub(crate) async fn until(second: i64) {
    if let Err(error) = wait(second).await {
        // A kernel or a filter that does not allow it: the dates here are months apart.
        log!(debug, "no timer for the wall clock", error = error);
        rt::sleep(Duration::from_secs(3600)).await;
    }
}

async fn wait(second: i64) -> io::Result<()> {
    let timer = timerfd_create(TimerClock::Realtime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
    let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
    // Nothing at all would disarm it.
    let moment = Timespec { tv_sec: second.clamp(0, LATEST), tv_nsec: 1 };
    let never = Timespec { tv_sec: 0, tv_nsec: 0 };
    let armed = timerfd_settime(&timer, flags, &Itimerspec { it_interval: never, it_value: moment });
    if !is_armed(armed)? {
        return Ok(());
    }
    rt::Async::new(timer)?.readable().await
}

/// False if the clock was set since the timer was made: the kernel arms it then, and reports ECANCELED.
fn is_armed<T>(armed: rustix::io::Result<T>) -> io::Result<bool> {
    match armed {
        Ok(_) => Ok(true),
        Err(Errno::CANCELED) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The kernel counts nanoseconds in 64 bits.
const LATEST: i64 = i64::MAX / 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::host::clock;

    #[test]
    fn what_is_past_is_due_at_once_and_what_comes_is_not() {
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
    fn a_clock_that_is_set_while_the_timer_is_made_counts_as_set() {
        assert!(matches!(is_armed::<()>(Err(Errno::CANCELED)), Ok(false)));
        assert!(matches!(is_armed(Ok(())), Ok(true)));
        assert!(is_armed::<()>(Err(Errno::PERM)).is_err());
    }
}
