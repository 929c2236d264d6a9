//! The names of logs that are full: `0.log.20260102-030405`, as the upstream kubelet has them. Pure.
//!
//! The stamp is that of the clock only as long as the clock goes forward. What orders the files is that each stamp is
//! later than all before it: a second later than the last one, where the clock has been set back.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// The stamp in a file's name, if it is what rotation made of `log` (`0.log`).
pub(super) fn stamp_in<'a>(name: &'a str, log: &str) -> Option<&'a str> {
    let stamp = name.strip_prefix(log)?.strip_prefix('.')?;
    moment(stamp.strip_suffix(COMPRESSED).unwrap_or(stamp)).map(|_| stamp)
}

/// Compressed by an upstream kubelet that ran here before.
pub(super) fn is_compressed(stamp: &str) -> bool {
    stamp.ends_with(COMPRESSED)
}

/// The stamp after `last`, at this moment.
pub(super) fn next_stamp(now: Timestamp, last: Option<&str>) -> String {
    let last = last.and_then(|last| moment(last.strip_suffix(COMPRESSED).unwrap_or(last)));
    let next = last.map(|last| Timestamp::from_second(last.as_second().saturating_add(1)).unwrap_or(last));
    let moment = TimeZone::UTC.to_datetime(next.map_or(now, |next| next.max(now)));
    format!(
        "{:04}{:02}{:02}-{:02}{:02}{:02}",
        moment.year().max(0),
        moment.month(),
        moment.day(),
        moment.hour(),
        moment.minute(),
        moment.second()
    )
}

fn moment(stamp: &str) -> Option<Timestamp> {
    let (date, time) = stamp.split_once('-').filter(|(date, time)| date.len() == 8 && time.len() == 6)?;
    if !date.bytes().chain(time.bytes()).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let two = |text: &str, at: usize| text.get(at..at + 2).and_then(|digits| digits.parse::<i8>().ok());
    let year = date.get(..4)?.parse::<i16>().ok()?;
    let moment = DateTime::new(year, two(date, 4)?, two(date, 6)?, two(time, 0)?, two(time, 2)?, two(time, 4)?, 0);
    TimeZone::UTC.to_timestamp(moment.ok()?).ok()
}

const COMPRESSED: &str = ".gz";

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn a_stamp_is_the_moment_of_the_rotation() {
        assert_eq!(next_stamp(at(1_767_323_045), None), "20260102-030405");
        assert_eq!(next_stamp(at(1_767_323_045), Some("20260102-030403")), "20260102-030405");
    }

    #[test]
    fn a_clock_that_stands_or_goes_back_changes_no_order() {
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
    fn only_what_rotation_made_of_this_log_has_a_stamp() {
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
