//! Windows of the day. Pure: the time is an argument.

/// Minutes of the day in UTC; spans midnight if the end precedes the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeWindow {
    pub(crate) from: u16,
    pub(crate) to: u16,
}

/// Whether a window is open, and how long that lasts by the clock alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) is_open: bool,
    /// In seconds; `None`: forever.
    pub(crate) stays: Option<u64>,
}

/// Minutes per day.
const DAY_MINUTES: u16 = 24 * 60;

impl TimeWindow {
    /// Parses `01:00-03:00`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (from, to) = text.split_once('-')?;
        let window = Self { from: minute(from)?, to: minute(to)? };
        (window.from != window.to).then_some(window)
    }

    fn contains(self, minute: u16) -> bool {
        let Self { from, to } = self;
        if from < to { (from..to).contains(&minute) } else { minute >= from || minute < to }
    }
}

impl Window {
    /// The state of these windows; without any it is closed. `second` is a Unix time.
    pub(crate) fn of(times: &[TimeWindow], second: i64) -> Self {
        let minute = u16::try_from(second.div_euclid(60).rem_euclid(DAY_MINUTES.into())).unwrap_or_default();
        let is_open = times.iter().any(|window| window.contains(minute));
        let edges = times.iter().flat_map(|window| [window.from, window.to]);
        // At least a minute ahead: an edge in this minute has already passed.
        let next = edges.map(|edge| if edge > minute { edge - minute } else { edge + DAY_MINUTES - minute }).min();
        let in_minute = u64::try_from(second.rem_euclid(60)).unwrap_or_default();
        Self { is_open, stays: next.map(|minutes| u64::from(minutes) * 60 - in_minute) }
    }
}

/// The time of the day, such as `01:00`.
pub(crate) fn time_of_day(second: i64) -> String {
    let minutes = second.div_euclid(60).rem_euclid(DAY_MINUTES.into());
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

/// `24:00` is the end of the day.
fn minute(text: &str) -> Option<u16> {
    let (hour, minute) = text.trim().split_once(':')?;
    let digits = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(hour) || !digits(minute) {
        return None;
    }
    let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
    let minutes = hour * 60 + minute;
    (minute < 60 && minutes <= 24 * 60).then_some(minutes % (24 * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_day_is_in_utc() {
        assert_eq!(
            [0, 3_599, 3_600, 86_399, 86_400, -60].map(time_of_day),
            ["00:00", "00:59", "01:00", "23:59", "00:00", "23:59"]
        );
    }
}
