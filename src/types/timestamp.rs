//! Instants with nanoseconds in the years 0 to 9999, which RFC 3339 can express, and that format. Pure.
//!
//! UTC only: reads offsets, and writes none. Without leap seconds, as Unix time; reads second 60 as second 59.

use std::fmt::{self, Write};
use std::str::FromStr;
use std::time::Duration;

/// An instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Since 1970, negative before.
    seconds: i64,
    /// Since that second, less than a second.
    nanos: u32,
}

impl Timestamp {
    /// 0000-01-01T00:00:00Z.
    pub const MIN: Self = Self { seconds: days(0, 1, 1) * DAY_SECONDS, nanos: 0 };
    /// 9999-12-31T23:59:59.999999999Z.
    pub const MAX: Self = Self { seconds: days(10_000, 1, 1) * DAY_SECONDS - 1, nanos: SECOND - 1 };
    /// 1970-01-01T00:00:00Z.
    pub const UNIX_EPOCH: Self = Self { seconds: 0, nanos: 0 };

    /// `None` outside the years 0 to 9999, or if `nanos` is a second or more.
    pub fn new(seconds: i64, nanos: u32) -> Option<Self> {
        let time = Self { seconds, nanos };
        (nanos < SECOND && (Self::MIN..=Self::MAX).contains(&time)).then_some(time)
    }

    pub fn from_second(seconds: i64) -> Option<Self> {
        Self::new(seconds, 0)
    }

    /// `None` if there is no such date or time of day.
    pub fn from_civil(civil: Civil) -> Option<Self> {
        let Civil { year, month, day, hour, minute, second } = civil;
        if !(1..=12).contains(&month) || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let first = days(year.into(), month.into(), 1);
        let length = if month == 12 { 31 } else { days(year.into(), i64::from(month) + 1, 1) - first };
        if day == 0 || i64::from(day) > length {
            return None;
        }
        let time_of_day = (i64::from(hour) * 60 + i64::from(minute)) * 60 + i64::from(second);
        Self::from_second((first + i64::from(day) - 1) * DAY_SECONDS + time_of_day)
    }

    /// The date and time of day in UTC.
    pub fn civil(self) -> Civil {
        let (days, second) = (self.seconds.div_euclid(DAY_SECONDS), self.seconds.rem_euclid(DAY_SECONDS));
        // Years that start in March, in cycles of 400.
        let days = days + DAYS_FROM_MARCH_0;
        let (cycle, day) = (days.div_euclid(CYCLE_DAYS), days.rem_euclid(CYCLE_DAYS));
        let year = (day - day / 1460 + day / 36_524 - day / (CYCLE_DAYS - 1)) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let (year, month) = (year + cycle * 400, month + 3);
        let (year, month) = if month > 12 { (year + 1, month - 12) } else { (year, month) };
        // All values are in range.
        let small = |value: i64| u8::try_from(value).unwrap_or_default();
        Civil {
            year: u16::try_from(year).unwrap_or_default(),
            month: small(month),
            day: small(day),
            hour: small(second / 3600),
            minute: small(second / 60 % 60),
            second: small(second % 60),
        }
    }

    /// Seconds since 1970, rounded down.
    pub fn as_second(self) -> i64 {
        self.seconds
    }

    /// Milliseconds since 1970, rounded down.
    pub fn as_millisecond(self) -> i64 {
        self.seconds * 1000 + i64::from(self.nanos / 1_000_000)
    }

    /// Nanoseconds since 1970; outside the years 1677 to 2262, the nearest that an `i64` holds.
    pub fn as_nanosecond(self) -> i64 {
        // Counts from the next second before 1970, because the first nanoseconds of `i64` are in a second that begins
        // before them.
        let (seconds, nanos) = (self.seconds, i64::from(self.nanos));
        let (seconds, nanos) = if seconds < 0 { (seconds + 1, nanos - i64::from(SECOND)) } else { (seconds, nanos) };
        seconds.saturating_mul(SECOND.into()).saturating_add(nanos)
    }

    /// `None` beyond the year 9999.
    pub fn checked_add(self, duration: Duration) -> Option<Self> {
        let (nanos, carry) = match self.nanos + duration.subsec_nanos() {
            nanos if nanos >= SECOND => (nanos - SECOND, 1),
            nanos => (nanos, 0),
        };
        let seconds = i64::try_from(duration.as_secs()).ok()?;
        Self::new(self.seconds.checked_add(seconds)?.checked_add(carry)?, nanos)
    }

    /// `None` before the year 0.
    pub fn checked_sub(self, duration: Duration) -> Option<Self> {
        let (nanos, borrowed) = match self.nanos.checked_sub(duration.subsec_nanos()) {
            Some(nanos) => (nanos, 0),
            None => (self.nanos + SECOND - duration.subsec_nanos(), 1),
        };
        let seconds = i64::try_from(duration.as_secs()).ok()?;
        Self::new(self.seconds.checked_sub(seconds)?.checked_sub(borrowed)?, nanos)
    }
}

/// A date of the Gregorian calendar with a time of day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Civil {
    pub year: u16,
    pub month: u8,
    pub day: u8,
    pub hour: u8,
    pub minute: u8,
    pub second: u8,
}

/// Days from 1970-01-01 to a day of the Gregorian calendar. The year starts in March, which puts the leap day last.
pub(crate) const fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - DAYS_FROM_MARCH_0
}

/// Nanoseconds of a second.
const SECOND: u32 = 1_000_000_000;

/// Seconds of a day.
pub(crate) const DAY_SECONDS: i64 = 86_400;

/// Days of 400 years.
const CYCLE_DAYS: i64 = 146_097;

/// Days from 0000-03-01 to 1970-01-01.
const DAYS_FROM_MARCH_0: i64 = 719_468;

/// Writes RFC 3339 in UTC, with the fraction's digits up to the last that is not zero, or with as many as the precision
/// says (`{:.6}`), cut off.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Civil { year, month, day, hour, minute, second } = self.civil();
        digits(f, year.into(), 1000)?;
        for (before, value) in [('-', month), ('-', day), ('T', hour), (':', minute), (':', second)] {
            f.write_char(before)?;
            digits(f, value.into(), 10)?;
        }
        let (mut fraction, mut left) = (self.nanos, f.precision().unwrap_or(9).min(9));
        let shortest = f.precision().is_none();
        if left > 0 && !(shortest && fraction == 0) {
            f.write_char('.')?;
        }
        while left > 0 && !(shortest && fraction == 0) {
            digits(f, fraction / (SECOND / 10), 1)?;
            fraction = fraction % (SECOND / 10) * 10;
            left -= 1;
        }
        f.write_char('Z')
    }
}

/// Writes the digits of `value` from that of `unit` on.
fn digits(f: &mut fmt::Formatter<'_>, value: u32, unit: u32) -> fmt::Result {
    let mut unit_value = unit;
    while unit_value > 0 {
        f.write_char(char::from_digit(value / unit_value % 10, 10).unwrap_or('0'))?;
        unit_value /= 10;
    }
    Ok(())
}

/// A text is no RFC 3339 time of the years 0 to 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidTime;

impl fmt::Display for InvalidTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a time such as 2026-01-02T15:04:05Z")
    }
}

/// Reads RFC 3339, with `T` or `t` or a space before the time of day, at most nine digits of a fraction, and `Z`, `z` or
/// an offset.
impl FromStr for Timestamp {
    type Err = InvalidTime;

    fn from_str(text: &str) -> Result<Self, InvalidTime> {
        let mut rest = Rest(text.as_bytes());
        rest.time().filter(|_| rest.0.is_empty()).ok_or(InvalidTime)
    }
}

/// What is not yet read of a time.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn time(&mut self) -> Option<Timestamp> {
        let year = u16::try_from(self.number(4)?).ok()?;
        let month = self.after(b"-")?;
        let day = self.after(b"-")?;
        let hour = self.after(b"Tt ")?;
        let minute = self.after(b":")?;
        let second = match self.after(b":")? {
            60 => 59,
            second => second,
        };
        let nanos = if self.one_of(b".,").is_some() { self.fraction()? } else { 0 };
        let offset = self.offset()?;
        let local = Timestamp::from_civil(Civil { year, month, day, hour, minute, second })?;
        Timestamp::new(local.seconds - offset, nanos)
    }

    /// Seconds that the local time is ahead.
    fn offset(&mut self) -> Option<i64> {
        match self.one_of(b"Zz+-")? {
            sign @ (b'+' | b'-') => {
                let hours = self.number(2).filter(|hours| *hours < 24)?;
                let minutes = self.after(b":").filter(|minutes| *minutes < 60)?;
                let ahead = i64::from(hours) * 3600 + i64::from(minutes) * 60;
                Some(if sign == b'-' { -ahead } else { ahead })
            }
            _ => Some(0),
        }
    }

    fn fraction(&mut self) -> Option<u32> {
        let mut nanos = self.number(1)?;
        for _ in 1..9 {
            nanos = nanos * 10 + self.number(1).unwrap_or(0);
        }
        Some(nanos)
    }

    /// Two digits after one of `separators`.
    fn after(&mut self, separators: &[u8]) -> Option<u8> {
        self.one_of(separators)?;
        self.number(2)?.try_into().ok()
    }

    fn number(&mut self, digits: usize) -> Option<u32> {
        let (number, rest) = self.0.split_at_checked(digits)?;
        let number = number.iter().try_fold(0, |value, digit| match digit {
            b'0'..=b'9' => Some(value * 10 + u32::from(digit - b'0')),
            _ => None,
        })?;
        self.0 = rest;
        Some(number)
    }

    fn one_of(&mut self, bytes: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        if !bytes.contains(first) {
            return None;
        }
        self.0 = rest;
        Some(*first)
    }
}

#[cfg(test)]
mod tests;
