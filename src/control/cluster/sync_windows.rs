//! When the cluster is asked and told: windows, polls, and the waits between them. Pure: the moment is an argument.

use std::time::Duration;

use crate::platform::config::{SyncWindows, TimeWindow};
use crate::types::time::jitter;

/// Minutes of a day.
const DAY: u16 = 24 * 60;
/// Not all of a fleet begin at once: they are spread over so much of a wait, or of a window, and over no more than that.
const SPREAD: f64 = 0.1;
const SPREAD_MOST: Duration = Duration::from_secs(60);

/// Whether a window is open, and for how long that stays so, if only the time decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) is_open: bool,
    /// Seconds; `None`: for ever.
    pub(super) stays: Option<u64>,
}

/// `second` is one since 1970; `is_up`: the interface, if one is named.
pub(super) fn window(windows: &SyncWindows, second: i64, is_up: bool) -> Window {
    if windows.times.is_empty() {
        return Window { is_open: is_up, stays: None };
    }
    let minute = u16::try_from(second.div_euclid(60).rem_euclid(DAY.into())).unwrap_or_default();
    let is_open = windows.times.iter().any(|window| contains(*window, minute));
    let edges = windows.times.iter().flat_map(|window| [window.from, window.to]);
    // In a minute at least: an edge at this one has come.
    let next = edges.map(|edge| if edge > minute { edge - minute } else { edge + DAY - minute }).min();
    let in_minute = u64::try_from(second.rem_euclid(60)).unwrap_or_default();
    Window { is_open: is_open && is_up, stays: next.map(|minutes| u64::from(minutes) * 60 - in_minute) }
}

fn contains(window: TimeWindow, minute: u16) -> bool {
    let TimeWindow { from, to } = window;
    if from < to { (from..to).contains(&minute) } else { minute >= from || minute < to }
}

/// How long a node waits at the beginning of what lasts so long. `random` is any number, evenly spread.
pub(super) fn first_wait(length: Duration, random: u32) -> Duration {
    let most = length.mul_f64(SPREAD).min(SPREAD_MOST);
    most.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

/// From the beginning of a poll to that of the next: around `every`, so that in a day there are as many as were asked for.
pub(super) fn next_wait(every: Duration, random: u32) -> Duration {
    jitter(every.mul_f64(1.0 - SPREAD / 2.0), SPREAD / (1.0 - SPREAD / 2.0), random)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_window_opens_at_its_minute_and_closes_at_the_other() {
        let night = [(60, 180)];
        check(&night, 0, false, 3600);
        check(&night, HOUR - 1, false, 1);
        check(&night, HOUR, true, 7200);
        check(&night, 3 * HOUR - 1, true, 1);
        check(&night, 3 * HOUR, false, 22 * 3600);
        // The days before 1970 have hours, too.
        check(&night, -1, false, 3601);
    }

    #[test]
    fn a_window_may_go_over_midnight_and_several_may_meet() {
        let late = [(1380, 60)];
        check(&late, 23 * HOUR, true, 7200);
        check(&late, 0, true, 3600);
        check(&late, HOUR, false, 22 * 3600);
        let both = [(60, 120), (120, 180)];
        check(&both, 90 * 60, true, 1800);
        check(&both, 120 * 60, true, 3600);
    }

    #[test]
    fn an_interface_that_is_down_keeps_a_window_shut() {
        let both = SyncWindows { interface: Some("wwan0".to_owned()), ..windows(&[(60, 180)]) };
        assert!(window(&both, HOUR, true).is_open && !window(&both, HOUR, false).is_open);
        let only = SyncWindows { times: Vec::new(), ..both };
        assert_eq!(window(&only, 0, true), Window { is_open: true, stays: None });
        assert_eq!(window(&only, 0, false), Window { is_open: false, stays: None });
    }

    /// Every second of two days: whatever is open now is so until the edge that was told, and not a second longer.
    #[test]
    fn what_is_told_to_stay_stays_for_just_that_long() {
        let several = windows(&[(60, 180), (170, 200), (1430, 10)]);
        let open = |second| window(&several, second, true).is_open;
        for second in (0..2 * 24 * HOUR).step_by(7) {
            let Window { is_open, stays } = window(&several, second, true);
            let stays = i64::try_from(stays.unwrap()).unwrap();
            assert!(stays > 0 && open(second + stays - 1) == is_open, "{second}");
        }
    }

    #[test]
    fn polls_are_spread_and_as_many_as_were_asked_for() {
        let every = Duration::from_secs(1000);
        let close = |wait: Duration, seconds: f64| (wait.as_secs_f64() - seconds).abs() < 0.01;
        assert!(close(next_wait(every, 0), 950.0) && close(next_wait(every, u32::MAX), 1050.0));
        assert!(close(first_wait(every, u32::MAX), 60.0) && close(first_wait(every / 10, u32::MAX), 10.0));
        assert_eq!(first_wait(every, 0), Duration::ZERO);
    }
}
