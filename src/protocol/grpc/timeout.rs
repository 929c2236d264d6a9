//! The grpc-timeout header: at most eight digits and a unit. Pure.

use std::time::Duration;

/// Writes `timeout` in the finest unit, from milliseconds up, that fits into eight digits, rounded up.
pub fn write_timeout(timeout: Duration) -> String {
    let millis = timeout.as_nanos().div_ceil(1_000_000);
    let units = [(1, 'm'), (1_000, 'S'), (3_600_000, 'H')];
    let fitting = units.into_iter().map(|(length, unit)| (millis.div_ceil(length), unit));
    match fitting.into_iter().find(|(count, _)| *count <= MAX_TIMEOUT_VALUE) {
        Some((count, unit)) => format!("{count}{unit}"),
        // Eleven thousand years: effectively no timeout.
        None => format!("{MAX_TIMEOUT_VALUE}H"),
    }
}

/// `None` if the header is malformed.
pub fn read_timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if !matches!(digits.len(), 1..=8) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count = digits.iter().fold(0, |count, digit| count * 10 + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(count * 3600),
        b'M' => Duration::from_secs(count * 60),
        b'S' => Duration::from_secs(count),
        b'm' => Duration::from_millis(count),
        b'u' => Duration::from_micros(count),
        b'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

const MAX_TIMEOUT_VALUE: u128 = 99_999_999;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn written(timeout: Duration, text: &str) {
        assert_eq!(write_timeout(timeout), text);
        assert!(read_timeout(text.as_bytes()).unwrap() >= timeout.min(Duration::from_secs(99_999_999 * 3600)));
    }

    #[test]
    fn timeouts_have_eight_digits_and_never_shrink() {
        written(Duration::ZERO, "0m");
        written(Duration::from_nanos(1), "1m");
        written(Duration::from_secs(2), "2000m");
        written(Duration::from_millis(99_999_999), "99999999m");
        written(Duration::from_millis(100_000_001), "100001S");
        written(Duration::from_secs(100_000_000), "27778H");
        written(Duration::MAX, "99999999H");
    }

    #[test]
    fn every_unit_is_parsed() {
        let read = |text: &str| read_timeout(text.as_bytes());
        assert_eq!(read("1H"), Some(Duration::from_secs(3600)));
        assert_eq!(read("2M"), Some(Duration::from_secs(120)));
        assert_eq!(read("3S"), Some(Duration::from_secs(3)));
        assert_eq!(read("4m"), Some(Duration::from_millis(4)));
        assert_eq!(read("5u"), Some(Duration::from_micros(5)));
        assert_eq!(read("6n"), Some(Duration::from_nanos(6)));
    }

    #[test]
    fn malformed_timeout_is_none() {
        for text in ["", "S", "1", "1s", "-1S", "1.5S", "123456789S", " 1S"] {
            assert_eq!(read_timeout(text.as_bytes()), None, "{text:?}");
        }
    }
}
