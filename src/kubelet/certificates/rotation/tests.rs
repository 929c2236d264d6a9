use super::*;

const DAY: Seconds = 24 * 3600;
const YEAR: Seconds = 365 * DAY;
/// 2026-01-01.
const MADE: Seconds = 1_767_225_600;
/// 2099.
const FAR: Seconds = 4_080_000_000;

fn held(random: u16) -> HeldCertificate {
    HeldCertificate { not_before: MADE, not_after: MADE + YEAR, age: None, share: share(random) }
}

/// `clock` with no known floor.
fn at(clock: Seconds) -> KnownTime {
    KnownTime { clock, floor: 0 }
}

#[track_caller]
fn check(held: HeldCertificate, present: KnownTime, standing: &str) {
    let found = match held.standing(present) {
        RenewalState::Good { .. } => "good",
        RenewalState::Due => "due",
        RenewalState::Expired => "expired",
    };
    assert_eq!(found, standing, "{held:?} {present:?}");
}

#[test]
fn certificate_is_renewed_between_70_and_90_percent_of_its_life() {
    for random in [0, 1, 100, 32768, 65535] {
        let RenewalState::Good { until } = held(random).standing(at(MADE)) else { panic!("{random}") };
        let part = (until - MADE) as f64 / YEAR as f64;
        assert!((0.6999..=0.9).contains(&part), "{random}: {part}");
        check(held(random), at(until - 1), "good");
        check(held(random), at(until), "due");
        check(held(random), at(MADE + YEAR), "due");
        check(held(random), at(MADE + YEAR + 1), "expired");
    }
}

#[test]
fn renewal_time_differs_between_nodes_and_is_stable() {
    let until = |last: u8| {
        let certificate = Certificate {
            not_before: MADE,
            not_after: MADE + YEAR,
            public_key: vec![1, 7, last],
            ..Default::default()
        };
        match HeldCertificate::new(&certificate, None).standing(at(MADE)) {
            RenewalState::Good { until } => until,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(until(1), until(1));
    assert_ne!(until(1), until(2));
}

#[test]
fn clock_in_the_past_neither_drops_nor_renews_a_certificate() {
    for clock in [0, MADE - YEAR, MADE - DAY, i64::MIN] {
        check(held(0), at(clock), "good");
    }
}

#[test]
fn floor_applies_when_the_clock_is_behind() {
    for (floor, standing) in [(MADE - DAY, "good"), (MADE + YEAR * 95 / 100, "due"), (MADE + 2 * YEAR, "expired")] {
        check(held(0), KnownTime { clock: 0, floor }, standing);
    }
}

#[test]
fn clock_step_of_a_day_does_not_renew_early() {
    let middle = MADE + YEAR / 2;
    for clock in [middle - DAY, middle, middle + DAY] {
        check(held(0), at(clock), "good");
    }
    let end = MADE + YEAR;
    check(held(0), at(end + DAY), "expired");
    check(held(0), at(end - DAY), "due");
}

#[test]
fn clock_in_the_future_keeps_a_certificate_just_issued() {
    for age in [0, 60, 30 * DAY, 250 * DAY] {
        let held = HeldCertificate { age: Some(Duration::from_secs(age.try_into().unwrap())), ..held(0) };
        check(held, at(FAR), "good");
        check(held, at(i64::MAX), "good");
        // A certificate that expires while the clock is wrong is not kept.
        let old = HeldCertificate { age: Some(Duration::from_secs((YEAR * 95 / 100).try_into().unwrap())), ..held };
        check(old, at(FAR), "due");
        check(HeldCertificate { age: Some(Duration::MAX), ..held }, at(FAR), "expired");
    }
}

#[test]
fn clock_that_agrees_with_the_issuer_is_trusted() {
    // The signer backdates by one hour.
    let age = Duration::from_secs(10 * 3600);
    let short = HeldCertificate { not_after: MADE + 12 * 3600, age: Some(age), ..held(0) };
    check(short, at(MADE + 11 * 3600), "due");
    check(short, at(MADE + 13 * 3600), "expired");
}

#[test]
fn extreme_dates_do_not_overflow() {
    for not_before in [i64::MIN, -1, 0, MADE, i64::MAX] {
        for not_after in [i64::MIN, -1, 0, MADE, i64::MAX] {
            for clock in [i64::MIN, 0, MADE, i64::MAX] {
                for age in [None, Some(Duration::ZERO), Some(Duration::MAX)] {
                    let held = HeldCertificate { not_before, not_after, age, share: share(65535) };
                    let _ = held.standing(KnownTime { clock, floor: i64::MIN });
                }
            }
        }
    }
    let backwards = HeldCertificate { not_before: MADE, not_after: MADE - 1, age: None, share: share(0) };
    check(backwards, at(MADE), "expired");
}

#[test]
fn working_credentials_are_used_alone() {
    use Credentials::{Bootstrap, Own};
    let good = Some(RenewalState::Good { until: 0 });
    for (own, has_bootstrap, expected) in [
        (None, false, &[][..]),
        (None, true, &[Bootstrap]),
        (good, true, &[Own]),
        (Some(RenewalState::Due), true, &[Own]),
        (Some(RenewalState::Due), false, &[Own]),
        (Some(RenewalState::Expired), false, &[Own]),
        (Some(RenewalState::Expired), true, &[Own, Bootstrap]),
    ] {
        assert_eq!(credentials(own, has_bootstrap, false), expected, "{own:?} {has_bootstrap}");
    }
}

#[test]
fn backoff_doubles_to_32_seconds_and_to_five_minutes_when_refused() {
    let waits = |failure| (1..=9).map(|failures| wait(failures, failure, 0).as_secs()).collect::<Vec<_>>();
    assert_eq!(waits(Failure::Passing), [2, 4, 8, 16, 32, 32, 32, 32, 32]);
    assert_eq!(waits(Failure::Refused), [2, 4, 8, 16, 32, 64, 128, 256, 300]);
    assert_eq!(wait(u32::MAX, Failure::Refused, 65535).as_secs(), 330);
    assert_eq!(wait(0, Failure::Passing, 0).as_secs(), 2);
}

#[test]
fn waits_by_date_only_when_the_clock_is_plausible() {
    let until = MADE + YEAR / 2;
    assert_eq!(held(0).wait(until, at(MADE + 5)), NextRotation::Date(until));
    let span = |seconds: Seconds| NextRotation::Span(Duration::from_secs(seconds.try_into().unwrap()));
    assert_eq!(held(0).wait(until, at(0)), span(YEAR / 2));
    assert_eq!(held(0).wait(until, KnownTime { clock: 0, floor: until - 7 }), span(7));
    let issued = HeldCertificate { age: Some(Duration::from_secs(3)), ..held(0) };
    assert_eq!(issued.wait(until, at(FAR)), span(YEAR / 2 - 3));
    assert_eq!(issued.wait(MADE, at(FAR)), span(0));
}

#[test]
fn certificate_just_issued_is_kept_whatever_its_dates() {
    // Valid for six minutes, five of which had passed when it was signed.
    let made = MADE - 300;
    let short = |age: u64| HeldCertificate {
        not_before: made,
        not_after: made + 360,
        age: Some(Duration::from_secs(age)),
        share: share(0),
    };
    let RenewalState::Good { until } = short(0).standing(at(MADE)) else { panic!("{:?}", short(0).standing(at(MADE))) };
    assert_eq!(until, MADE + 36);
    check(short(35), at(MADE + 35), "good");
    check(short(36), at(MADE + 36), "due");
    // A clock two hours ahead of the signer's.
    check(short(1), at(MADE + 7200), "good");
    check(short(36), at(MADE + 7200), "expired");
}

#[test]
fn nearness_changes_30_7_and_1_days_before_the_end() {
    let steps: Vec<_> = (0..40 * 24).rev().map(|hours| nearness(hours * 3600)).collect();
    let mut told: Vec<_> = steps.clone();
    told.dedup();
    let words = [None, Some(", in less than 30 days"), Some(", in less than 7 days"), Some(", in less than a day")];
    assert_eq!(told, words);
    let since = |words| steps.iter().filter(|step| **step == words).count();
    assert_eq!((since(words[1]), since(words[2]), since(words[3])), (23 * 24, 6 * 24, 24));
}
