//! Windows, polls and the waits between exchanges with the cluster. Pure: the moment is an argument.

use std::time::Duration;

use crate::platform::config::SyncWindows;
use crate::types::time::jitter;
use crate::types::time_windows::Window;

/// The nodes of a fleet start spread over this share of a wait or window, and over [`MAX_WINDOW_SPREAD`] at most.
const WINDOW_START_SPREAD: f64 = 0.1;
const MAX_WINDOW_SPREAD: Duration = Duration::from_secs(60);

/// `second` is a Unix time. `is_up`: the state of the configured interface, if any.
pub(super) fn window(windows: &SyncWindows, second: i64, is_up: bool) -> Window {
    if windows.times.is_empty() {
        return Window { is_open: is_up, stays: None };
    }
    let by_time = Window::of(&windows.times, second);
    Window { is_open: by_time.is_open && is_up, ..by_time }
}

/// How long a node waits at the start of a window or wait of this length. `random` is uniformly distributed.
pub(super) fn first_wait(length: Duration, random: u32) -> Duration {
    let most = length.mul_f64(WINDOW_START_SPREAD).min(MAX_WINDOW_SPREAD);
    most.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

/// From the start of one poll to the next: jittered around `every`, so that the number of polls per day is as
/// configured.
pub(super) fn next_wait(every: Duration, random: u32) -> Duration {
    jitter(
        every.mul_f64(1.0 - WINDOW_START_SPREAD / 2.0),
        WINDOW_START_SPREAD / (1.0 - WINDOW_START_SPREAD / 2.0),
        random,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::time_windows::TimeWindow;

    const HOUR: i64 = 3600;

    fn windows(times: &[(u16, u16)]) -> SyncWindows {
        let times = times.iter().map(|&(from, to)| TimeWindow { from, to }).collect();
        SyncWindows { times, interface: None }
    }

    #[track_caller]
    fn check(times: &[(u16, u16)], second: i64, is_open: bool, stays: u64) {
        assert_eq!(window(&windows(times), second, true), Window { is_open, stays: Some(stays) }, "{second}");
    }

    #[test]
    fn window_opens_and_closes_at_its_minutes() {
        let night = [(60, 180)];
        check(&night, 0, false, 3600);
        check(&night, HOUR - 1, false, 1);
        check(&night, HOUR, true, 7200);
        check(&night, 3 * HOUR - 1, true, 1);
        check(&night, 3 * HOUR, false, 22 * 3600);
        // Times before 1970 have a time of day, too.
        check(&night, -1, false, 3601);
    }

    #[test]
    fn windows_may_cross_midnight_and_overlap() {
        let late = [(1380, 60)];
        check(&late, 23 * HOUR, true, 7200);
        check(&late, 0, true, 3600);
        check(&late, HOUR, false, 22 * 3600);
        let both = [(60, 120), (120, 180)];
        check(&both, 90 * 60, true, 1800);
        check(&both, 120 * 60, true, 3600);
    }

    #[test]
    fn interface_that_is_down_keeps_the_window_closed() {
        let both = SyncWindows { interface: Some("wwan0".to_owned()), ..windows(&[(60, 180)]) };
        assert!(window(&both, HOUR, true).is_open && !window(&both, HOUR, false).is_open);
        let only = SyncWindows { times: Vec::new(), ..both };
        assert_eq!(window(&only, 0, true), Window { is_open: true, stays: None });
        assert_eq!(window(&only, 0, false), Window { is_open: false, stays: None });
    }

    /// Every second of two days: the state lasts exactly until the returned edge.
    #[test]
    fn state_lasts_exactly_until_the_returned_edge() {
        let several = windows(&[(60, 180), (170, 200), (1430, 10)]);
        let open = |second| window(&several, second, true).is_open;
        for second in (0..2 * 24 * HOUR).step_by(7) {
            let Window { is_open, stays } = window(&several, second, true);
            let stays = i64::try_from(stays.unwrap()).unwrap();
            assert!(stays > 0 && open(second + stays - 1) == is_open, "{second}");
        }
    }

    #[test]
    fn polls_are_jittered_around_the_configured_interval() {
        let every = Duration::from_secs(1000);
        let close = |wait: Duration, seconds: f64| (wait.as_secs_f64() - seconds).abs() < 0.01;
        assert!(close(next_wait(every, 0), 950.0) && close(next_wait(every, u32::MAX), 1050.0));
        assert!(close(first_wait(every, u32::MAX), 60.0) && close(first_wait(every / 10, u32::MAX), 10.0));
        assert_eq!(first_wait(every, 0), Duration::ZERO);
    }
}
