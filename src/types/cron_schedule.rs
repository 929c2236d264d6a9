//! Schedules of CronJobs: five fields, `@daily` and such, `@every 90s`. Pure.
//!
//! As the standard parser of robfig/cron v3, which upstream uses, also where the clocks change.

use std::time::Duration;

use crate::types::time_zone::{TimeZone, weekday_of};
use crate::types::timestamp::{Civil, DAY_SECONDS, Timestamp, days};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CronSchedule {
    Every { seconds: i64 },
    Fields(CronFields),
}

/// Bit sets of the numbers that match. [`ANY_NUMBER`] marks a field that does not restrict the day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CronFields {
    minute: u64,
    hour: u64,
    day: u64,
    month: u64,
    weekday: u64,
}

const ANY_NUMBER: u64 = 1 << 63;

/// Upstream searches so far for the next time.
const SEARCHED_YEARS: i64 = 5;

struct Bounds {
    name: &'static str,
    least: u32,
    most: u32,
    /// Of the numbers from `least` on.
    words: &'static [&'static str],
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const BOUNDS: [Bounds; 5] = [
    Bounds { name: "minute", least: 0, most: 59, words: &[] },
    Bounds { name: "hour", least: 0, most: 23, words: &[] },
    Bounds { name: "day of month", least: 1, most: 31, words: &[] },
    Bounds { name: "month", least: 1, most: 12, words: &MONTHS },
    Bounds { name: "day of week", least: 0, most: 6, words: &WEEKDAYS },
];

impl CronSchedule {
    /// `duration` parses what follows `@every`.
    pub(crate) fn parse(text: &str, duration: fn(&str) -> Option<Duration>) -> Result<Self, String> {
        if let Some(every) = text.strip_prefix("@every ") {
            let duration =
                duration(every).ok_or_else(|| format!("expected a duration such as 1h30m, found {every:?}"))?;
            // As upstream: at least a second, and whole ones.
            return Ok(Self::Every { seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX).max(1) });
        }
        let text = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            _ if text.contains("TZ") => {
                return Err("cannot use TZ or CRON_TZ in schedule, use timeZone field instead".to_owned());
            }
            _ if text.starts_with('@') => return Err(format!("expected five fields, @hourly or such, found {text:?}")),
            _ => text,
        };
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else {
            return Err(format!("expected 5 fields, found {}: {text:?}", fields.len()));
        };
        let [minutes, hours, days, months, weekdays] = &BOUNDS;
        Ok(Self::Fields(CronFields {
            minute: minutes.field(minute)?,
            hour: hours.field(hour)?,
            day: days.field(day)?,
            month: months.field(month)?,
            weekday: weekdays.field(weekday)?,
        }))
    }

    /// The first scheduled time after a Unix time; `None` if there is none in five years.
    pub(crate) fn next(&self, after: i64, zone: &TimeZone) -> Option<i64> {
        match self {
            Self::Every { seconds } => after.checked_add(*seconds),
            Self::Fields(fields) => fields.next(after, zone),
        }
    }

    /// The last scheduled time in `(after, now]`.
    pub(crate) fn latest(&self, after: i64, now: i64, zone: &TimeZone) -> Option<i64> {
        self.next(after, zone).filter(|first| *first <= now)?;
        if let Self::Every { seconds } = self {
            return Some(now - (now - after).rem_euclid(*seconds));
        }
        // The last moment whose next time has come: a search in halves, because years may have been missed.
        let (mut has_come, mut has_not) = (after, now);
        while has_not - has_come > 1 {
            let middle = has_come + (has_not - has_come) / 2;
            let comes = self.next(middle, zone).is_some_and(|time| time <= now);
            *(if comes { &mut has_come } else { &mut has_not }) = middle;
        }
        self.next(has_come, zone)
    }
}

impl Bounds {
    fn field(&self, text: &str) -> Result<u64, String> {
        let mut bits = 0;
        for part in text.split(',').filter(|part| !part.is_empty()) {
            bits |= self.range(part).map_err(|why| format!("{}: {why}: {part:?}", self.name))?;
        }
        if bits == 0 { Err(format!("{}: expected a number, found {text:?}", self.name)) } else { Ok(bits) }
    }

    fn range(&self, part: &str) -> Result<u64, String> {
        let (range, step) = part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
        let (low, high) = range.split_once('-').map_or((range, None), |(low, high)| (low, Some(high)));
        let is_any = matches!(low, "*" | "?");
        let (first, last) = match (is_any, high) {
            (true, _) => (self.least, self.most),
            (false, Some(high)) => (self.number(low)?, self.number(high)?),
            // `N/STEP` goes on to the end.
            (false, None) if step.is_some() => (self.number(low)?, self.most),
            (false, None) => (self.number(low)?, self.number(low)?),
        };
        let step = step.map_or(Some(1), |step| step.parse::<u8>().ok()).filter(|step| *step > 0);
        let Some(step) = step else { return Err("expected a step from 1 to 255".to_owned()) };
        if first < self.least || last > self.most || first > last {
            return Err(format!("expected a range within {}-{}", self.least, self.most));
        }
        let numbers = (first..=last).step_by(step.into());
        Ok(numbers.fold(if is_any && step == 1 { ANY_NUMBER } else { 0 }, |bits, number| bits | 1 << number))
    }

    fn number(&self, text: &str) -> Result<u32, String> {
        let word = self.words.iter().position(|word| word.eq_ignore_ascii_case(text));
        let number = match word.and_then(|at| u32::try_from(at).ok()) {
            Some(at) => Some(at + self.least),
            None => text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit())),
        };
        number.ok_or_else(|| "expected a number".to_owned())
    }
}

impl CronFields {
    /// `SpecSchedule.Next` of robfig/cron, step by step, with Go's rules for local times that are skipped or doubled.
    fn next(&self, after: i64, zone: &TimeZone) -> Option<i64> {
        let mut time = after.checked_add(1)?;
        let last_year = i64::from(civil(time, zone)?.year) + SEARCHED_YEARS;
        // The first field that does not match resets the smaller ones.
        let mut is_moved = false;
        'wrap: loop {
            let mut now = civil(time, zone)?;
            if i64::from(now.year) > last_year {
                return None;
            }
            while !has(self.month, now.month) {
                if !std::mem::replace(&mut is_moved, true) {
                    now = midnight(now);
                }
                let (year, month) = (i64::from(now.year), i64::from(now.month));
                let first = if month == 12 { days(year + 1, 1, 1) } else { days(year, month + 1, 1) };
                time = zone.unix(first * DAY_SECONDS + second_of_day(now));
                now = civil(time, zone)?;
                if now.month == 1 {
                    continue 'wrap;
                }
            }
            while !self.matches_day(now) {
                if !std::mem::replace(&mut is_moved, true) {
                    now = midnight(now);
                }
                time = zone.unix((day_of(now) + 1) * DAY_SECONDS + second_of_day(now));
                now = civil(time, zone)?;
                // Midnight does not exist where the clocks change then.
                let hour = i64::from(now.hour);
                if hour != 0 {
                    time += if hour > 12 { 24 - hour } else { -hour } * 3600;
                    now = civil(time, zone)?;
                }
                if now.day == 1 {
                    continue 'wrap;
                }
            }
            while !has(self.hour, now.hour) {
                if !std::mem::replace(&mut is_moved, true) {
                    let hour = Civil { minute: 0, second: 0, ..now };
                    time = zone.unix(day_of(hour) * DAY_SECONDS + second_of_day(hour));
                }
                time += 3600;
                now = civil(time, zone)?;
                if now.hour == 0 {
                    continue 'wrap;
                }
            }
            while !has(self.minute, now.minute) {
                if !std::mem::replace(&mut is_moved, true) {
                    time -= time.rem_euclid(60);
                }
                time += 60;
                now = civil(time, zone)?;
                if now.minute == 0 {
                    continue 'wrap;
                }
            }
            if now.second == 0 {
                return Some(time);
            }
            is_moved = true;
            time += i64::from(60 - now.second);
        }
    }

    /// If both days are restricted, one of them is enough.
    fn matches_day(&self, date: Civil) -> bool {
        let weekday = u8::try_from(weekday_of(day_of(date))).unwrap_or_default();
        let (day, weekday) = (has(self.day, date.day), has(self.weekday, weekday));
        if (self.day | self.weekday) & ANY_NUMBER == 0 { day || weekday } else { day && weekday }
    }
}

fn has(bits: u64, number: u8) -> bool {
    bits >> number & 1 == 1
}

fn civil(time: i64, zone: &TimeZone) -> Option<Civil> {
    Some(Timestamp::from_second(time.checked_add(zone.offset(time))?)?.civil())
}

fn midnight(date: Civil) -> Civil {
    Civil { hour: 0, minute: 0, second: 0, ..date }
}

fn day_of(date: Civil) -> i64 {
    days(date.year.into(), date.month.into(), date.day.into())
}

fn second_of_day(time: Civil) -> i64 {
    (i64::from(time.hour) * 60 + i64::from(time.minute)) * 60 + i64::from(time.second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn duration(text: &str) -> Option<Duration> {
        let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        let unit = match unit {
            "s" => 1,
            "m" => 60,
            _ => return None,
        };
        Some(Duration::from_secs(number.parse::<u64>().ok()? * unit))
    }

    fn parse(text: &str) -> CronSchedule {
        CronSchedule::parse(text, duration).expect(text)
    }

    fn zone(name: &str) -> TimeZone {
        if name == "UTC" {
            return TimeZone::utc();
        }
        TimeZone::parse(&std::fs::read(format!("/usr/share/zoneinfo/{name}")).unwrap()).unwrap()
    }

    fn time(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_second()
    }

    /// The first times after `after`, in UTC.
    #[track_caller]
    fn check(schedule: &str, name: &str, after: &str, expected: &[&str]) {
        let (schedule, zone, mut at) = (parse(schedule), zone(name), time(after));
        for expected in expected {
            at = schedule.next(at, &zone).expect(expected);
            assert_eq!(Timestamp::from_second(at).unwrap().to_string(), *expected, "{schedule:?}");
        }
    }

    #[test]
    fn schedules_have_the_times_that_upstream_gives_them() {
        // Most of these are rows of spec_test.go of robfig/cron.
        for (schedule, after, expected) in [
            ("0/15 * * * *", "2012-07-09T14:45:00Z", "2012-07-09T15:00:00Z"),
            ("0/15 * * * *", "2012-07-09T14:59:59Z", "2012-07-09T15:00:00Z"),
            ("20-35/15 * * * *", "2012-07-09T15:45:00Z", "2012-07-09T16:20:00Z"),
            ("20-35/15 * * * *", "2012-07-09T23:46:00Z", "2012-07-10T00:20:00Z"),
            ("20-35/15 1/2 * * *", "2012-07-09T23:35:51Z", "2012-07-10T01:20:00Z"),
            ("20-35/15 10-12 * * *", "2012-07-09T23:35:51Z", "2012-07-10T10:20:00Z"),
            ("20-35/15 1/2 */2 * *", "2012-07-09T23:35:51Z", "2012-07-11T01:20:00Z"),
            ("20-35/15 * 9-20 Jul *", "2012-07-09T23:35:51Z", "2012-07-10T00:20:00Z"),
            ("0 0 */3 * *", "2012-07-10T00:00:00Z", "2012-07-13T00:00:00Z"),
            ("0 0 9 Apr-Oct ?", "2012-07-09T23:35:00Z", "2012-08-09T00:00:00Z"),
            ("0 0 */5 Apr,Aug,Oct Mon", "2012-07-09T23:35:00Z", "2012-08-01T00:00:00Z"),
            ("0 0 */5 Oct Mon", "2012-07-09T23:35:00Z", "2012-10-01T00:00:00Z"),
            ("0 0 * Feb Mon", "2012-07-09T23:35:00Z", "2013-02-04T00:00:00Z"),
            ("0 0 * Feb Mon/2", "2012-07-09T23:35:00Z", "2013-02-01T00:00:00Z"),
            ("0 0 29 Feb ?", "2012-07-09T23:35:00Z", "2016-02-29T00:00:00Z"),
            ("0 0 13 * Fri", "2012-07-09T00:00:00Z", "2012-07-13T00:00:00Z"),
            ("0 0 13 * Fri", "2012-07-13T00:00:00Z", "2012-07-20T00:00:00Z"),
            ("@yearly", "2026-11-28T00:00:00Z", "2027-01-01T00:00:00Z"),
            ("@monthly", "2026-11-28T00:00:00Z", "2026-12-01T00:00:00Z"),
            ("@weekly", "2026-11-28T00:00:00Z", "2026-11-29T00:00:00Z"),
            ("@midnight", "2026-11-28T00:00:00Z", "2026-11-29T00:00:00Z"),
            ("@hourly", "2026-11-28T00:00:00Z", "2026-11-28T01:00:00Z"),
            ("@every 90s", "2026-11-28T00:00:01Z", "2026-11-28T00:01:31Z"),
        ] {
            check(schedule, "UTC", after, &[expected]);
        }
    }

    #[test]
    fn skipped_and_doubled_local_times_are_those_of_upstream() {
        // Rows of spec_test.go, with America/New_York.
        for (schedule, after, expected) in [
            ("0 * * * ?", "2012-03-11T05:00:00Z", &["2012-03-11T06:00:00Z", "2012-03-11T07:00:00Z"][..]),
            ("0 0 * * ?", "2012-03-11T03:00:00Z", &["2012-03-11T05:00:00Z", "2012-03-12T04:00:00Z"]),
            // 02:30 does not exist that day.
            ("30 2 11 Mar ?", "2012-03-11T05:00:00Z", &["2013-03-11T06:30:00Z"]),
            (
                "0 * * * ?",
                "2012-11-04T04:00:00Z",
                &["2012-11-04T05:00:00Z", "2012-11-04T06:00:00Z", "2012-11-04T07:00:00Z"],
            ),
            // 01:30 comes twice.
            ("30 1 4 Nov ?", "2012-11-04T04:00:00Z", &["2012-11-04T05:30:00Z", "2012-11-04T06:30:00Z"]),
        ] {
            check(schedule, "America/New_York", after, expected);
        }
        check("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", &["2026-03-28T01:30:00Z", "2026-03-30T00:30:00Z"]);
        check("30 2 * * *", "Europe/Berlin", "2026-10-24T22:00:00Z", &["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"]);
        check("0 4 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", &["2026-03-29T02:00:00Z", "2026-03-30T02:00:00Z"]);
    }

    #[test]
    fn latest_time_is_the_last_of_all_next_times() {
        for text in ["*/7 * * * *", "30 2 * * *", "0 0 29 2 *", "* 3 1 * Mon", "@every 97s"] {
            let (schedule, zone) = (parse(text), zone("Europe/Berlin"));
            for (after, now) in [
                ("2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z"),
                ("2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z"),
                ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"),
                ("2024-01-01T00:00:00Z", "2024-03-02T03:17:00Z"),
            ] {
                let (after, now) = (time(after), time(now));
                let all = std::iter::successors(schedule.next(after, &zone), |last| schedule.next(*last, &zone));
                assert_eq!(schedule.latest(after, now, &zone), all.take_while(|time| *time <= now).last(), "{text}");
            }
        }
    }

    #[test]
    fn schedules_that_never_come_have_no_next_time() {
        assert_eq!(parse("0 0 31 Feb ?").next(0, &TimeZone::utc()), None);
    }

    #[test]
    fn bad_schedules_are_refused_with_the_field() {
        for (text, expected) in [
            ("", "expected 5 fields, found 0"),
            ("* * * *", "expected 5 fields, found 4"),
            ("60 * * * *", "minute: expected a range within 0-59: \"60\""),
            ("5-2 * * * *", "minute: expected a range within 0-59"),
            ("* 1-2-3 * * *", "hour: expected a number: \"1-2-3\""),
            ("* * 0 * *", "day of month: expected a range within 1-31"),
            ("* * * foo *", "month: expected a number: \"foo\""),
            ("* * * * 7", "day of week: expected a range within 0-6"),
            ("*/0 * * * *", "minute: expected a step"),
            ("1/2/3 * * * *", "minute: expected a step"),
            (", * * * *", "minute: expected a number"),
            ("+1 * * * *", "minute: expected a number"),
            ("@reboot", "expected five fields"),
            ("@every x", "expected a duration"),
            ("TZ=UTC * * * * *", "cannot use TZ or CRON_TZ in schedule"),
            ("CRON_TZ=UTC @daily", "cannot use TZ or CRON_TZ in schedule"),
        ] {
            let error = CronSchedule::parse(text, duration).expect_err(text);
            assert!(error.starts_with(expected), "{text:?}: {error}");
        }
    }
}
