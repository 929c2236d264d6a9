//! Durations in Go's format: `1m30s`. Pure.

use std::fmt;
use std::time::Duration;

/// Formats as Go does, truncated to milliseconds.
pub(crate) fn go_duration(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    SignedDuration { negative: false, size: Duration::from_millis(millis) }.to_string()
}

/// Parses a duration that is not negative.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    parse(text).filter(|duration| !duration.negative).map(|duration| duration.size)
}

/// Parses what Go's `time.ParseDuration` accepts; `None` for anything else, and for more than 64 bits of nanoseconds.
pub(super) fn parse(text: &str) -> Option<SignedDuration> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let nanos = if rest == "0" { 0 } else { nanos(rest)? };
    i64::try_from(nanos).ok()?;
    Some(SignedDuration { negative: negative && nanos > 0, size: Duration::from_nanos(nanos) })
}

/// A signed duration: a few settings are disabled by a negative one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SignedDuration {
    pub(super) negative: bool,
    pub(super) size: Duration,
}

impl fmt::Display for SignedDuration {
    /// As in Go: hours and minutes if there are any, and the rest in the largest unit that gives at least 1.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.negative {
            f.write_str("-")?;
        }
        let (seconds, nanos) = (self.size.as_secs(), u64::from(self.size.subsec_nanos()));
        if seconds == 0 {
            return match nanos {
                0 => f.write_str("0s"),
                1..1_000 => decimal(f, nanos, 0, 1, "ns"),
                1_000..1_000_000 => decimal(f, nanos / 1_000, nanos % 1_000, 3, "\u{b5}s"),
                _ => decimal(f, nanos / 1_000_000, nanos % 1_000_000, 6, "ms"),
            };
        }
        if seconds >= 3600 {
            write!(f, "{}h", seconds / 3600)?;
        }
        if seconds >= 60 {
            write!(f, "{}m", seconds / 60 % 60)?;
        }
        decimal(f, seconds % 60, nanos, 9, "s")
    }
}

/// `whole.part` without trailing zeros; `part` has `digits` digits.
fn decimal(f: &mut fmt::Formatter<'_>, whole: u64, part: u64, digits: usize, unit: &str) -> fmt::Result {
    if part == 0 {
        return write!(f, "{whole}{unit}");
    }
    let part = format!("{part:0digits$}");
    write!(f, "{whole}.{}{unit}", part.trim_end_matches('0'))
}

/// The sum of one or more pairs of a decimal number and a unit.
fn nanos(mut rest: &str) -> Option<u64> {
    let mut total: u64 = 0;
    loop {
        let (number, after) = rest.split_at_checked(rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?)?;
        let (unit, after) = unit(after)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()? };
        total = total.checked_add(whole.checked_mul(unit)?)?.checked_add(part_of(unit, fraction)?)?;
        if after.is_empty() {
            return Some(total);
        }
        rest = after;
    }
}

/// `.fraction` of a unit; drops digits below a nanosecond.
fn part_of(unit: u64, fraction: &str) -> Option<u64> {
    let mut part = 0;
    let mut scale = unit;
    for digit in fraction.chars() {
        // Truncating `scale` loses less than a nanosecond per digit.
        let digit = u64::from(digit.to_digit(10)?);
        part += digit * scale / 10;
        scale /= 10;
    }
    Some(part)
}

/// The leading unit in nanoseconds, and the rest.
fn unit(text: &str) -> Option<(u64, &str)> {
    let (_, scale, after) = UNITS
        .iter()
        .filter_map(|(name, scale)| Some((name, *scale, text.strip_prefix(name)?)))
        .max_by_key(|(name, _, _)| name.len())?;
    Some((scale, after))
}

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, nanos: u64) {
        assert_eq!(parse(text), Some(SignedDuration { negative: false, size: Duration::from_nanos(nanos) }), "{text}");
    }

    #[test]
    fn numbers_with_units_are_summed() {
        check("0", 0);
        check("0s", 0);
        check("20s", 20_000_000_000);
        check("1m30s", 90_000_000_000);
        check("2h45m0.5s", 9_900_500_000_000);
        check("100ms", 100_000_000);
        check("1.5h", 5_400_000_000_000);
        check(".5s", 500_000_000);
        check("5.s", 5_000_000_000);
        check("+5s", 5_000_000_000);
        check("3us", 3_000);
        check("3\u{b5}s", 3_000);
        check("3\u{3bc}s", 3_000);
        check("1.000000001s", 1_000_000_001);
        check("0.0000000001s", 0);
    }

    #[test]
    fn minus_sign_makes_durations_negative_except_zero() {
        assert_eq!(parse("-1m"), Some(SignedDuration { negative: true, size: Duration::from_secs(60) }));
        assert_eq!(parse("-0s"), Some(SignedDuration { negative: false, size: Duration::ZERO }));
    }

    #[test]
    fn durations_are_printed_as_in_go() {
        for (text, printed) in [
            ("0", "0s"),
            ("5ns", "5ns"),
            ("1500ns", "1.5\u{b5}s"),
            ("2.5ms", "2.5ms"),
            ("1s", "1s"),
            ("1.05s", "1.05s"),
            ("60s", "1m0s"),
            ("4h", "4h0m0s"),
            ("-90s", "-1m30s"),
        ] {
            assert_eq!(parse(text).unwrap().to_string(), printed);
        }
    }

    #[test]
    fn invalid_durations_are_refused() {
        for text in
            ["", "-", "5", "s", ".s", "1.2.3s", "5 s", "5S", "1d", "5sm", "--5s", "9999999999h", "1e3s", "\u{b5}s"]
        {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
