//! Windows and budgets of image pulls. Pure: the moment is an argument.

use std::time::Duration;

use crate::types::time_windows::{TimeWindow, Window, time_of_day};

/// The present by all clocks.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    /// The id of this boot.
    pub(crate) boot: String,
    /// The boot clock.
    pub(crate) uptime: Duration,
    /// The wall clock, in Unix seconds.
    pub(crate) second: i64,
}

/// A day's use. The day lasts 24 hours by the boot clock; after a reboot by the wall clock too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BudgetDay {
    boot: String,
    begun: Duration,
    begun_second: i64,
    pub(crate) used: u64,
}

/// Why images are not pulled now, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) why: String,
    pub(crate) wait: Duration,
}

/// What is left of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) bytes: u64,
    /// Until the next day.
    pub(crate) day: Duration,
}

const PULL_BUDGET_DAY: Duration = Duration::from_secs(24 * 3600);
/// No pull begins with less: connections and manifests need some.
const MIN_PULL_BYTES: u64 = 8 << 10;
/// The day's record is written after each of this many parts of the budget.
const PULL_BUDGET_PARTS: u64 = 32;

impl BudgetDay {
    pub(crate) fn new(now: &Moment) -> Self {
        let Moment { boot, uptime, second } = now.clone();
        Self { boot, begun: uptime, begun_second: second, used: 0 }
    }

    /// How long the day still lasts. After a reboot at least the uptime has passed, even if the clock has no battery.
    pub(crate) fn left(&self, now: &Moment) -> Duration {
        let passed = if self.boot == now.boot {
            now.uptime.saturating_sub(self.begun)
        } else {
            let seconds = u64::try_from(now.second.saturating_sub(self.begun_second)).unwrap_or_default();
            Duration::from_secs(seconds).max(now.uptime)
        };
        PULL_BUDGET_DAY.saturating_sub(passed)
    }

    /// Parses `BOOT-ID UPTIME SECOND BYTES`.
    pub(crate) fn read(record: &str) -> Option<Self> {
        let mut words = record.strip_suffix('\n')?.split(' ');
        let boot = words.next()?.to_owned();
        let begun = Duration::from_secs(words.next()?.parse().ok()?);
        Some(Self { boot, begun, begun_second: words.next()?.parse().ok()?, used: words.next()?.parse().ok()? })
    }

    /// The record with this many bytes.
    pub(crate) fn write(&self, used: u64) -> String {
        format!("{} {} {} {used}\n", self.boot, self.begun.as_secs(), self.begun_second)
    }
}

/// The number of bytes to record before `used` bytes of `limit` are used, so that a power cut forgets none.
pub(crate) fn reserve(used: u64, limit: u64) -> u64 {
    used.saturating_add(limit / PULL_BUDGET_PARTS).min(limit).max(used)
}

/// Why no pull may begin or go on at this Unix time. `own` is `images.bytesPerDay`, `cluster` is `sync.bytesPerDay`.
/// A fetch under way may use all that is left.
pub(crate) fn hold(
    windows: &[TimeWindow],
    second: i64,
    image_budget: Option<Left>,
    sync_budget: Option<Left>,
    is_under_way: bool,
) -> Option<Hold> {
    let until = |why: &str, wait: Duration| {
        let end = second.saturating_add(i64::try_from(wait.as_secs()).unwrap_or(i64::MAX));
        Some(Hold { why: format!("{why} until {} UTC", time_of_day(end)), wait })
    };
    let window = Window::of(windows, second);
    if !windows.is_empty() && !window.is_open {
        return until("outside images.windows", Duration::from_secs(window.stays.unwrap_or_default()));
    }
    for (name, budget) in [("images.bytesPerDay", image_budget), ("sync.bytesPerDay", sync_budget)] {
        let spent = budget.filter(|budget_left| budget_left.bytes < MIN_PULL_BYTES && !is_under_way);
        if let Some(budget_left) = spent {
            return until(&[name, " is used up"].concat(), budget_left.day);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn moment(boot: &str, hours: u32, second: i64) -> Moment {
        Moment { boot: boot.to_owned(), uptime: hours * HOUR, second }
    }

    #[test]
    fn day_goes_by_the_boot_clock_and_after_a_reboot_by_the_later_of_both() {
        let begun = moment("a", 1, 1_000_000);
        let day = BudgetDay::new(&begun);
        assert_eq!(day.left(&moment("a", 3, 9_000_000)), 22 * HOUR, "a set clock changes no day");
        assert_eq!(day.left(&moment("a", 25, 0)), Duration::ZERO);
        assert_eq!(day.left(&moment("b", 1, 1_000_000 + 7200)), 22 * HOUR);
        // Without a battery the clock begins in 1970.
        assert_eq!(day.left(&moment("b", 1, 5)), 23 * HOUR);
        assert_eq!(day.left(&moment("b", 30, 5)), Duration::ZERO);
    }

    #[test]
    fn record_survives_and_damage_is_noticed() {
        let mut day = BudgetDay::new(&moment("a", 1, -5));
        day.used = 7;
        let record = day.write(7);
        assert_eq!(record, "a 3600 -5 7\n");
        assert_eq!(BudgetDay::read(&record), Some(day));
        for damaged in ["", "\n", "a 1 2\n", "a 1 2 3", "a -1 2 3\n", "a 1 2 x\n"] {
            assert_eq!(BudgetDay::read(damaged), None, "{damaged:?}");
        }
    }

    #[test]
    fn reserve_is_a_part_ahead_and_at_most_the_budget() {
        assert_eq!([0, 3_000, 3_199, 5_000].map(|used| reserve(used, 3_200)), [100, 3_100, 3_200, 5_000]);
    }

    #[test]
    fn pulls_are_held_outside_windows_and_without_budget() {
        let windows = [TimeWindow { from: 60, to: 180 }];
        let left = |bytes| Some(Left { bytes, day: 5 * HOUR });
        let why = |second, own, cluster| hold(&windows, second, own, cluster, false).map(|hold| (hold.why, hold.wait));
        let closed = ("outside images.windows until 01:00 UTC".to_owned(), HOUR / 2);
        assert_eq!(why(1800, left(0), None), Some(closed));
        assert_eq!(why(3600, left(MIN_PULL_BYTES), left(MIN_PULL_BYTES)), None);
        let spent = ("images.bytesPerDay is used up until 06:00 UTC".to_owned(), 5 * HOUR);
        assert_eq!(why(3600, left(MIN_PULL_BYTES - 1), None), Some(spent));
        let spent = ("sync.bytesPerDay is used up until 06:00 UTC".to_owned(), 5 * HOUR);
        assert_eq!(why(3600, None, left(0)), Some(spent));
        assert_eq!(hold(&windows, 3600, left(1), None, true), None, "a fetch under way uses the rest");
        assert_eq!(hold(&[], 0, None, None, false), None);
    }
}
