//! Judged by `jiff`, which knows the years -9999 to 9999 without the last day.

use jiff::SignedDuration;
use jiff::tz::TimeZone;

use super::*;

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Seconds and nanoseconds, often in this century, and often with few digits.
    fn instant(&mut self) -> (i64, u32) {
        let seconds = match self.below(3) {
            0 => self.below(4_102_444_800).cast_signed(),
            _ => MIN + self.below((MAX - MIN).cast_unsigned()).cast_signed(),
        };
        let unit = 10_u64.pow(u32::try_from(self.below(10)).unwrap());
        (seconds, u32::try_from(self.below(u64::from(SECOND) / unit) * unit).unwrap())
    }
}

/// The range that both know.
const MIN: i64 = -62_167_219_200;
const MAX: i64 = 253_402_207_200;

const INSTANTS: u32 = 200_000;

fn judge(seconds: i64, nanos: u32) -> jiff::Timestamp {
    jiff::Timestamp::new(seconds, nanos.try_into().unwrap()).unwrap()
}

fn same(ours: Timestamp, judge: jiff::Timestamp) -> bool {
    i128::from(ours.seconds) * i128::from(SECOND) + i128::from(ours.nanos) == judge.as_nanosecond()
}

fn civil(year: u16, month: u8, day: u8, hour: u8, minute: u8, second: u8) -> Civil {
    Civil { year, month, day, hour, minute, second }
}

#[test]
fn random_instants_are_written_and_read_as_by_jiff() {
    let mut random = Random(1);
    for _ in 0..INSTANTS {
        let (seconds, of_second) = random.instant();
        let (ours, judge) = (Timestamp::new(seconds, of_second).unwrap(), judge(seconds, of_second));
        assert!(same(ours, judge), "{judge}");
        assert_eq!(ours.to_string(), judge.to_string());
        let places = usize::try_from(random.below(12)).unwrap();
        assert_eq!(format!("{ours:.places$}"), format!("{judge:.0$}", places.min(9)));
        assert_eq!(ours.to_string().parse(), Ok(ours), "{judge}");
        assert_eq!(ours.as_second(), i64::try_from(judge.as_nanosecond().div_euclid(SECOND.into())).unwrap());
        assert_eq!(i128::from(ours.as_millisecond()), judge.as_nanosecond().div_euclid(1_000_000));
        let nanos = judge.as_nanosecond().clamp(i64::MIN.into(), i64::MAX.into());
        assert_eq!(i128::from(ours.as_nanosecond()), nanos, "{judge}");
        let other = random.instant();
        assert_eq!(ours.cmp(&Timestamp::new(other.0, other.1).unwrap()), (seconds, of_second).cmp(&other), "{judge}");
    }
}

#[test]
fn every_day_has_the_date_that_jiff_gives_it() {
    for day in MIN / DAY_SECONDS..=MAX / DAY_SECONDS - 1 {
        let seconds = day * DAY_SECONDS + day.rem_euclid(DAY_SECONDS);
        let ours = Timestamp::from_second(seconds).unwrap();
        let date = TimeZone::UTC.to_datetime(judge(seconds, 0));
        let small = |value: i8| u8::try_from(value).unwrap();
        let of_judge = Civil {
            year: date.year().try_into().unwrap(),
            month: small(date.month()),
            day: small(date.day()),
            hour: small(date.hour()),
            minute: small(date.minute()),
            second: small(date.second()),
        };
        assert_eq!(ours.civil(), of_judge);
        assert_eq!(Timestamp::from_civil(of_judge), Some(ours), "{of_judge:?}");
    }
}

/// Every day and month that two digits hold, in years with and without a leap day.
#[test]
fn dates_that_do_not_exist_are_refused() {
    for year in [0, 1, 4, 1900, 1999, 2000, 2023, 2024, 2100, 9998] {
        for (month, day) in (0..100).flat_map(|month| (0..100).map(move |day| (month, day))) {
            let ours = Timestamp::from_civil(civil(year, month, day, 1, 2, 3));
            let date =
                jiff::civil::Date::new(year.try_into().unwrap(), month.try_into().unwrap(), day.try_into().unwrap());
            assert_eq!(ours.is_some(), date.is_ok(), "{year} {month} {day}");
        }
    }
    for (hour, minute, second) in [(24, 0, 0), (0, 60, 0), (0, 0, 60), (255, 255, 255)] {
        assert_eq!(Timestamp::from_civil(civil(2000, 1, 1, hour, minute, second)), None);
    }
    assert_eq!(Timestamp::from_civil(civil(10_000, 1, 1, 0, 0, 0)), None);
    assert_eq!(Timestamp::from_civil(civil(u16::MAX, 255, 255, 0, 0, 0)), None);
}

#[test]
fn extreme_instants_are_refused_or_the_nearest() {
    for seconds in [i64::MIN, i64::MIN + 1, -62_167_219_201, 253_402_300_800, i64::MAX] {
        for nanos in [0, 1, SECOND - 1] {
            assert_eq!(Timestamp::new(seconds, nanos), None);
        }
    }
    for nanos in [SECOND, u32::MAX] {
        assert_eq!(Timestamp::new(0, nanos), None);
    }
    assert_eq!(Timestamp::MIN.to_string(), "0000-01-01T00:00:00Z");
    assert_eq!(Timestamp::MAX.to_string(), "9999-12-31T23:59:59.999999999Z");
    assert_eq!(Timestamp::MIN.to_string().parse(), Ok(Timestamp::MIN));
    assert_eq!(Timestamp::MAX.to_string().parse(), Ok(Timestamp::MAX));
    assert_eq!(Timestamp::MIN.as_nanosecond(), i64::MIN);
    assert_eq!(Timestamp::MAX.as_nanosecond(), i64::MAX);
    for text in ["0000-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01", "9999-12-31T23:59:60-00:01"] {
        assert_eq!(text.parse::<Timestamp>(), Err(InvalidTime), "{text}");
    }
    // The first and last that an `i64` of nanoseconds holds, and their neighbours.
    for nanos in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX] {
        let rest = nanos.rem_euclid(SECOND.into()).try_into().unwrap();
        let time = Timestamp::new(nanos.div_euclid(SECOND.into()), rest).unwrap();
        assert_eq!(time.as_nanosecond(), nanos);
        let beside = Duration::from_nanos(1);
        assert_eq!(time.checked_add(beside).unwrap().as_nanosecond(), nanos.saturating_add(1));
        assert_eq!(time.checked_sub(beside).unwrap().as_nanosecond(), nanos.saturating_sub(1));
    }
}

#[test]
fn sums_and_differences_are_those_of_jiff() {
    let mut random = Random(2);
    for _ in 0..INSTANTS {
        let (seconds, nanos) = random.instant();
        let (ours, judge) = (Timestamp::new(seconds, nanos).unwrap(), judge(seconds, nanos));
        let (passed, nanos) = random.instant();
        let passed = Duration::new(passed.unsigned_abs() >> random.below(36), nanos);
        let signed = SignedDuration::try_from(passed).unwrap();
        let in_range = |judge: &jiff::Timestamp| (MIN..MAX).contains(&judge.as_second());
        for (sum, judge) in [
            (ours.checked_add(passed), judge.checked_add(signed)),
            (ours.checked_sub(passed), judge.checked_sub(signed)),
        ] {
            match judge.ok().filter(in_range) {
                Some(judge) => assert!(same(sum.unwrap(), judge), "{judge}"),
                None => assert!(sum.is_none_or(|sum| sum.seconds >= MAX - 1 || sum.seconds <= MIN), "{sum:?}"),
            }
        }
    }
    for time in [Timestamp::MIN, Timestamp::UNIX_EPOCH, Timestamp::MAX] {
        assert_eq!(time.checked_add(Duration::MAX), None);
        assert_eq!(time.checked_sub(Duration::MAX), None);
        assert_eq!(time.checked_add(Duration::ZERO), Some(time));
    }
}

/// Whether RFC 3339 has this form. `jiff` also reads other forms of ISO 8601, such as dates without a time.
fn has_the_form(text: &str) -> bool {
    let is = |text: &str, pattern: &str| {
        text.len() == pattern.len()
            && text.bytes().zip(pattern.bytes()).all(|(byte, pattern)| match pattern {
                b'0' => byte.is_ascii_digit(),
                b'T' => b"Tt ".contains(&byte),
                other => byte == other,
            })
    };
    let Some((time, rest)) = text.split_at_checked(19) else { return false };
    let zone = rest.strip_prefix(['.', ',']).map_or(rest, |fraction| {
        let zone = fraction.trim_start_matches(|digit: char| digit.is_ascii_digit());
        if (1..10).contains(&(fraction.len() - zone.len())) { zone } else { "" }
    });
    // `jiff` reads offsets of up to 25 hours.
    let hours = zone.get(1..3).and_then(|hours| hours.parse().ok()).unwrap_or(0);
    let is_zone = ["Z", "z", "+00:00", "-00:00"].iter().any(|pattern| is(zone, pattern)) && hours < 24;
    is(time, "0000-00-00T00:00:00") && is_zone
}

fn agrees(text: &str) -> bool {
    let ours = text.parse::<Timestamp>().ok();
    let judge = text.parse::<jiff::Timestamp>().ok().filter(|_| has_the_form(text));
    match (ours, judge) {
        (Some(ours), Some(judge)) => same(ours, judge),
        (Some(ours), None) => has_the_form(text) && ours.seconds >= MAX,
        (None, Some(judge)) => !(MIN..MAX).contains(&judge.as_second()),
        (None, None) => true,
    }
}

#[test]
fn times_with_offsets_are_read_as_by_jiff() {
    let mut random = Random(3);
    for _ in 0..INSTANTS {
        let (seconds, nanos) = random.instant();
        let written = judge(seconds, nanos).to_string();
        let written = written.trim_end_matches('Z');
        let sign = if random.below(2) == 0 { '+' } else { '-' };
        let text = format!("{written}{sign}{:02}:{:02}", random.below(26), random.below(62));
        assert!(agrees(&text), "{text}");
    }
}

/// Changes, removes, doubles and inserts bytes of valid times.
#[test]
fn damaged_times_are_refused_as_by_jiff() {
    const BYTES: &[u8] = b"0123456789-+:.,TtZz [] \n/WPuX\xc3\xa9";
    let mut random = Random(4);
    let seeds = ["2026-01-02T15:04:05Z", "2024-02-29t23:59:60.123456789+01:30", "1999-12-31 00:00:00,5-08:00"];
    let mut valid = 0;
    for _ in 0..INSTANTS * 2 {
        let seed = seeds[usize::try_from(random.below(3)).unwrap()];
        let mut bytes = seed.as_bytes().to_vec();
        for _ in 0..=random.below(3) {
            let at = usize::try_from(random.below(bytes.len() as u64)).unwrap();
            let byte = BYTES[usize::try_from(random.below(BYTES.len() as u64)).unwrap()];
            match random.below(5) {
                0 if bytes.len() > 1 => drop(bytes.remove(at)),
                1 => bytes.insert(at, byte),
                2 => bytes.truncate(at + 1),
                _ => bytes[at] = byte,
            }
        }
        let Ok(text) = String::from_utf8(bytes) else { continue };
        assert!(agrees(&text), "{text:?}: {:?}, {:?}", text.parse::<Timestamp>(), text.parse::<jiff::Timestamp>());
        valid += u32::from(text.parse::<Timestamp>().is_ok());
    }
    assert!(valid > 10_000, "{valid}");
}

#[test]
fn texts_of_other_forms_are_refused() {
    for text in [
        "",
        " ",
        "yesterday",
        "2026",
        "2026-01-02",
        "2026-01-02T15:04",
        "2026-01-02T15:04Z",
        "2026-01-02T15:04:05",
        "2026-01-02T15:04:05.Z",
        "2026-01-02T15:04:05.1234567890Z",
        "2026-01-02T15:04:05 Z",
        "2026-01-02T15:04:05Z ",
        " 2026-01-02T15:04:05Z",
        "2026-01-02T15:04:05+01",
        "2026-01-02T15:04:05+0100",
        "2026-01-02T15:04:05+24:00",
        "2026-01-02T15:04:05+01:60",
        "2026-01-02T15:04:05Z[UTC]",
        "2026-01-02T15:04:61Z",
        "2026-01-02T24:00:00Z",
        "2026-02-29T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-1-2T15:04:05Z",
        "20260102T150405Z",
        "+002026-01-02T15:04:05Z",
        "-0001-01-02T15:04:05Z",
        "２026-01-02T15:04:05Z",
        "2026-01-02T15:04:05é",
    ] {
        assert_eq!(text.parse::<Timestamp>(), Err(InvalidTime), "{text:?}");
    }
}
