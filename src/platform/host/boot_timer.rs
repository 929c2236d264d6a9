//! A timer on CLOCK_BOOTTIME, which cannot be set and runs on while the machine is suspended.

use std::io;
use std::time::Duration;

use rustix::time::TimerfdClockId as TimerClock;
use rustix::time::{Itimerspec, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime};

use crate::platform::rt;

pub(crate) async fn sleep(wait: Duration) {
    #[cfg(test)]
    if rt::world().is_some() {
        return rt::sleep(wait).await;
    }
    if let Err(error) = timer(wait).await {
        // The kernel or a seccomp filter does not allow it. A suspended machine is late then.
        log!(debug, "failed to create boot-time timer", error = error);
        rt::sleep(wait).await;
    }
}

async fn timer(wait: Duration) -> io::Result<()> {
    let timer = timerfd_create(TimerClock::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
    // A timer of zero would be disarmed.
    let wait = wait.max(Duration::from_nanos(1));
    let time = Timespec { tv_sec: wait.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: wait.subsec_nanos().into() };
    let never = Timespec { tv_sec: 0, tv_nsec: 0 };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: never, it_value: time })?;
    rt::Async::new(timer)?.readable().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_for_the_given_time() {
        let due = |wait, limit| rt::block_on(rt::deadline(Duration::from_millis(limit), timer(wait)));
        for wait in [Duration::ZERO, Duration::from_millis(1)] {
            assert!(matches!(due(wait, 20_000), Ok(Ok(()))), "{wait:?}");
        }
        for wait in [Duration::from_secs(3600), Duration::MAX] {
            assert!(!matches!(due(wait, 20), Ok(Ok(()))), "{wait:?}");
        }
    }
}
