//! Time zones as TZif files (RFC 9636) describe them: offsets from UTC. Pure.
//!
//! Times before the first transition have the first type that is not daylight saving time; times after the last follow the
//! footer, a POSIX TZ string.

use crate::types::timestamp::{DAY_SECONDS, Timestamp, days};

/// Offsets in seconds east of UTC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimeZone {
    before: i64,
    /// Each Unix time with the offset from then on, in order.
    transitions: Vec<(i64, i64)>,
    rule: Option<PosixZone>,
}

/// `CET-1CEST,M3.5.0,M10.5.0/3`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PosixZone {
    standard: i64,
    /// The offset of daylight saving time, its begin and its end.
    daylight: Option<(i64, YearDay, YearDay)>,
}

/// A second of a year in local time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct YearDay {
    date: Date,
    second: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Date {
    /// `Jn`: from 1, without the leap day.
    Julian(i64),
    /// `n`: from 0.
    Day(i64),
    /// `Mm.w.d`: month, week (5: the last), day of the week from Sunday.
    Month(i64, i64, i64),
}

impl TimeZone {
    pub(crate) fn utc() -> Self {
        Self::default()
    }

    /// Parses a TZif file of version 2 or newer.
    pub(crate) fn parse(file: &[u8]) -> Option<Self> {
        let (first, _) = Header::parse(file)?;
        if first.version < b'2' {
            return None;
        }
        let (header, body) = Header::parse(file.get(TZIF_HEADER_BYTES.checked_add(first.length(4)?)?..)?)?;
        let (block, footer) = body.split_at_checked(header.length(8)?)?;
        let (times, rest) = block.split_at_checked(header.times.checked_mul(8)?)?;
        let (indexes, rest) = rest.split_at_checked(header.times)?;
        let types = rest.get(..header.types.checked_mul(6)?)?;
        let offset = |index: usize| -> Option<i64> {
            let bytes = types.get(index.checked_mul(6)?..)?.first_chunk::<4>()?;
            Some(i32::from_be_bytes(*bytes).into())
        };
        let is_standard = |index: &usize| types.get(index * 6 + 4) == Some(&0);
        let before = offset((0..header.types).find(is_standard).unwrap_or(0))?;
        let mut transitions = Vec::with_capacity(header.times);
        for (time, index) in times.chunks_exact(8).zip(indexes) {
            transitions.push((i64::from_be_bytes(*time.first_chunk()?), offset((*index).into())?));
        }
        if !transitions.is_sorted_by_key(|(time, _)| *time) {
            return None;
        }
        let footer = footer.strip_prefix(b"\n")?;
        let footer = footer.get(..footer.iter().position(|byte| *byte == b'\n')?)?;
        let rule = if footer.is_empty() { None } else { Some(PosixZone::parse(std::str::from_utf8(footer).ok()?)?) };
        Some(Self { before, transitions, rule })
    }

    /// Seconds east of UTC at this Unix time.
    pub(crate) fn offset(&self, time: i64) -> i64 {
        let after = self.transitions.partition_point(|(from, _)| *from <= time);
        match (&self.rule, self.transitions.len()) {
            (Some(rule), count) if after == count => rule.offset(time),
            _ => {
                after.checked_sub(1).and_then(|at| self.transitions.get(at)).map_or(self.before, |(_, offset)| *offset)
            }
        }
    }

    /// The Unix time of a local time, given in seconds as if it were UTC. As Go's `time.Date`: a skipped time becomes the
    /// one before or after, a doubled one the first or the second, as the offset of the neighbouring times says.
    pub(crate) fn unix(&self, local: i64) -> i64 {
        let offset = self.offset(local);
        local - self.offset(local - offset)
    }
}

const TZIF_HEADER_BYTES: usize = 44;

#[derive(Clone, Copy)]
struct Header {
    version: u8,
    is_ut: usize,
    is_std: usize,
    leaps: usize,
    times: usize,
    types: usize,
    letters: usize,
}

impl Header {
    /// And what follows it.
    fn parse(file: &[u8]) -> Option<(Self, &[u8])> {
        let (head, body) = file.split_first_chunk::<TZIF_HEADER_BYTES>()?;
        let rest = head.strip_prefix(b"TZif")?;
        let mut counts = rest.get(16..)?.chunks_exact(4).map(|bytes| {
            let count = u32::from_be_bytes(*bytes.first_chunk()?);
            // A file of the largest zones has a few hundred.
            usize::try_from(count).ok().filter(|count| *count <= MAX_ZONE_COUNT)
        });
        let mut next = || counts.next().flatten();
        let header = Self {
            version: *rest.first()?,
            is_ut: next()?,
            is_std: next()?,
            leaps: next()?,
            times: next()?,
            types: next()?,
            letters: next()?,
        };
        Some((header, body))
    }

    /// Bytes of the block with times of `size` bytes.
    fn length(&self, size: usize) -> Option<usize> {
        let times = self.times.checked_mul(size.checked_add(1)?)?;
        let leaps = self.leaps.checked_mul(size.checked_add(4)?)?;
        let others = self.types.checked_mul(6)?.checked_add(self.letters)?.checked_add(self.is_std)?;
        times.checked_add(leaps)?.checked_add(others)?.checked_add(self.is_ut)
    }
}

const MAX_ZONE_COUNT: usize = 100_000;

impl PosixZone {
    fn parse(text: &str) -> Option<Self> {
        let (standard, rest) = offset(name(text)?)?;
        if rest.is_empty() {
            return Some(Self { standard, daylight: None });
        }
        let rest = name(rest)?;
        let (daylight, rest) = if rest.starts_with(',') { (standard + 3600, rest) } else { offset(rest)? };
        let (begin, end) = rest.strip_prefix(',')?.split_once(',')?;
        Some(Self { standard, daylight: Some((daylight, YearDay::parse(begin)?, YearDay::parse(end)?)) })
    }

    fn offset(&self, time: i64) -> i64 {
        let Some((daylight, begin, end)) = &self.daylight else { return self.standard };
        let local = Timestamp::from_second(time.saturating_add(self.standard)).unwrap_or_default();
        let year = local.civil().year.into();
        // The begin is in standard time, the end in daylight saving time.
        let (begin, end) = (begin.local(year) - self.standard, end.local(year) - *daylight);
        let is_daylight = if begin < end { (begin..end).contains(&time) } else { !(end..begin).contains(&time) };
        if is_daylight { *daylight } else { self.standard }
    }
}

impl YearDay {
    /// `M3.5.0/3`, at 02:00 unless it says otherwise.
    fn parse(text: &str) -> Option<Self> {
        let (date, second) = match text.split_once('/') {
            Some((date, time)) => {
                let (west, rest) = offset(time)?;
                if !rest.is_empty() {
                    return None;
                }
                (date, -west)
            }
            None => (text, 7200),
        };
        let number = |text: &str, most: i64| text.parse::<i64>().ok().filter(|number| (0..=most).contains(number));
        let date = if let Some(day) = date.strip_prefix('J') {
            Date::Julian(number(day, 365).filter(|day| *day > 0)?)
        } else if let Some(date) = date.strip_prefix('M') {
            let (month, rest) = date.split_once('.')?;
            let (week, day) = rest.split_once('.')?;
            let positive = |number: &i64| *number > 0;
            Date::Month(number(month, 12).filter(positive)?, number(week, 5).filter(positive)?, number(day, 6)?)
        } else {
            Date::Day(number(date, 365)?)
        };
        Some(Self { date, second })
    }

    /// In seconds as if local time were UTC.
    fn local(&self, year: i64) -> i64 {
        let day = match self.date {
            // 2001 has no leap day.
            Date::Julian(day) => {
                let leap = i64::from(day > 59) * (days(year, 3, 1) - days(year, 2, 28) - 1);
                days(year, 1, 1) + day - 1 + leap
            }
            Date::Day(day) => days(year, 1, 1) + day,
            Date::Month(month, week, weekday) => {
                let first = days(year, month, 1);
                let next = if month == 12 { days(year + 1, 1, 1) } else { days(year, month + 1, 1) };
                let day = first + (weekday - weekday_of(first)).rem_euclid(7) + (week - 1) * 7;
                if day >= next { day - 7 } else { day }
            }
        };
        day * DAY_SECONDS + self.second
    }
}

/// Whether this may be the name of a zone: no path out of the directory of zones, and not the zone of another machine.
pub(crate) fn is_zone_name(name: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'_'))
    };
    name.len() <= MAX_ZONE_NAME_BYTES && !name.eq_ignore_ascii_case("local") && name.split('/').all(is_part)
}

const MAX_ZONE_NAME_BYTES: usize = 64;

/// From Sunday, 0. The first day of 1970 was a Thursday.
pub(crate) fn weekday_of(day: i64) -> i64 {
    (day + 4).rem_euclid(7)
}

/// What follows the name of a zone: `CET` or `<+03>`.
fn name(text: &str) -> Option<&str> {
    if let Some(quoted) = text.strip_prefix('<') {
        return quoted.split_once('>').map(|(_, rest)| rest);
    }
    let rest = text.trim_start_matches(|letter: char| letter.is_ascii_alphabetic());
    (text.len() >= rest.len() + 3).then_some(rest)
}

/// `-1:30:00` in seconds east of UTC, which is the opposite of its sign, and what follows.
fn offset(text: &str) -> Option<(i64, &str)> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (1, rest),
        None => (-1, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != ':').unwrap_or(rest.len());
    let (digits, rest) = rest.split_at_checked(end)?;
    let (mut seconds, mut unit) = (0, 3600);
    for part in digits.split(':') {
        let number = part.parse::<i64>().ok().filter(|number| *number <= 167)?;
        (seconds, unit) = (seconds + number * unit, unit / 60);
    }
    Some((sign * seconds, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_those_of_jiff() {
        let mut compared = 0;
        for name in [
            "Europe/Berlin",
            "America/New_York",
            "America/Sao_Paulo",
            "Australia/Lord_Howe",
            "Asia/Kolkata",
            "Africa/Casablanca",
            "Asia/Gaza",
            "Europe/Dublin",
            "Pacific/Apia",
            "Etc/UTC",
            "America/Nuuk",
        ] {
            let Ok(file) = std::fs::read(format!("/usr/share/zoneinfo/{name}")) else { continue };
            let judge = jiff::tz::TimeZone::tzif(name, &file).unwrap();
            let zone = TimeZone::parse(&file).unwrap();
            // Every 31 hours of a century, and every half hour of two years.
            let century = (days(1960, 1, 1) * DAY_SECONDS..days(2075, 1, 1) * DAY_SECONDS).step_by(31 * 3600);
            let years = (days(2026, 1, 1) * DAY_SECONDS..days(2028, 1, 1) * DAY_SECONDS).step_by(1800);
            for time in century.chain(years).flat_map(|time| [time - 1, time]) {
                let expected = judge.to_offset(jiff::Timestamp::from_second(time).unwrap()).seconds();
                assert_eq!(zone.offset(time), i64::from(expected), "{name} {time}");
                compared += 1;
            }
        }
        assert!(compared > 0, "no zones on this machine");
    }

    #[test]
    fn names_of_zones_stay_in_their_directory() {
        for (name, expected) in [
            ("UTC", true),
            ("Europe/Berlin", true),
            ("America/Argentina/Buenos_Aires", true),
            ("Etc/GMT+3", true),
            ("", false),
            ("/etc/localtime", false),
            ("../../etc/shadow", false),
            ("Europe//Berlin", false),
            ("Local", false),
            ("Europe/Berlin ", false),
        ] {
            assert_eq!(is_zone_name(name), expected, "{name:?}");
        }
    }

    #[test]
    fn damaged_files_are_refused() {
        assert_eq!(TimeZone::parse(b""), None);
        let Ok(file) = std::fs::read("/usr/share/zoneinfo/Europe/Berlin") else { return };
        (0..file.len()).for_each(|end| assert_eq!(TimeZone::parse(&file[..end]), None, "{end}"));
    }
}
