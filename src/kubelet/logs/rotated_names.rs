//! Names of rotated logs, `0.log.20260102-030405`, as in the upstream kubelet. Pure.
//!
//! Stamps are strictly increasing, which orders the files. A stamp is the current time only while the clock moves
//! forward; after the clock was set back, it is one second after the last stamp.

use crate::types::timestamp::{Civil, Timestamp};

/// The stamp in a file's name, if it is a rotated file of `log` (`0.log`).
pub(super) fn stamp_in<'a>(name: &'a str, log: &str) -> Option<&'a str> {
    let stamp = name.strip_prefix(log)?.strip_prefix('.')?;
    parse_stamp(stamp.strip_suffix(COMPRESSED).unwrap_or(stamp)).map(|_| stamp)
}

/// Compressed by an upstream kubelet that ran here before.
pub(super) fn is_compressed(stamp: &str) -> bool {
    stamp.ends_with(COMPRESSED)
}

/// The stamp of a rotation at `now`, later than `last`.
pub(super) fn next_stamp(now: Timestamp, last: Option<&str>) -> String {
    let last = last.and_then(|last| parse_stamp(last.strip_suffix(COMPRESSED).unwrap_or(last)));
    let next = last.map(|last| Timestamp::from_second(last.as_second().saturating_add(1)).unwrap_or(last));
    let Civil { year, month, day, hour, minute, second } = next.map_or(now, |next| next.max(now)).civil();
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

fn parse_stamp(stamp: &str) -> Option<Timestamp> {
    let (date, time) = stamp.split_once('-').filter(|(date, time)| date.len() == 8 && time.len() == 6)?;
    if !date.bytes().chain(time.bytes()).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let two = |text: &str, at: usize| text.get(at..at + 2).and_then(|digits| digits.parse::<u8>().ok());
    Timestamp::from_civil(Civil {
        year: date.get(..4)?.parse().ok()?,
        month: two(date, 4)?,
        day: two(date, 6)?,
        hour: two(time, 0)?,
        minute: two(time, 2)?,
        second: two(time, 4)?,
    })
}

const COMPRESSED: &str = ".gz";

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn stamp_is_the_rotation_time() {
        assert_eq!(next_stamp(at(1_767_323_045), None), "20260102-030405");
        assert_eq!(next_stamp(at(1_767_323_045), Some("20260102-030403")), "20260102-030405");
    }

    #[test]
    fn stamps_increase_when_the_clock_stops_or_goes_back() {
        assert_eq!(next_stamp(at(1_767_323_045), Some("20260102-030405")), "20260102-030406");
        assert_eq!(next_stamp(at(0), Some("20991231-235959.gz")), "21000101-000000");
        assert_eq!(next_stamp(Timestamp::MIN, None).len(), 15);
        let mut stamps = vec![next_stamp(at(100), None)];
        for now in [100, 50, 50, 101, 0, 5000, 4000] {
            stamps.push(next_stamp(at(now), stamps.last().map(String::as_str)));
        }
        assert!(stamps.is_sorted_by(|a, b| a < b), "{stamps:?}");
    }

    #[test]
    fn only_rotated_files_of_this_log_have_a_stamp() {
        assert_eq!(stamp_in("0.log.20260102-030405", "0.log"), Some("20260102-030405"));
        assert_eq!(stamp_in("0.log.20260102-030405.gz", "0.log"), Some("20260102-030405.gz"));
        for other in [
            "0.log",
            "10.log.20260102-030405",
            "0.log.20260102-030405.tmp",
            "0.log.20261302-030405",
            "0.log.2026010é-030405",
            "0.log.x",
            "0.logs.20260102-030405",
        ] {
            assert_eq!(stamp_in(other, "0.log"), None, "{other}");
        }
    }
}
