//! The validity period of a self-signed certificate. Pure.
//!
//! No signer's clock is available, and the local clock may be wrong. A clock that is certainly behind gives a long
//! validity, because it may never be set; if it is set later, the certificate is replaced when it does not fit.

use crate::kubelet::certificates::rotation::Seconds;
use crate::protocol::x509::Certificate;

const CERTIFICATE_HOUR_SECONDS: Seconds = 3600;
const CERTIFICATE_DAY_SECONDS: Seconds = 24 * CERTIFICATE_HOUR_SECONDS;
const YEAR: Seconds = 365 * CERTIFICATE_DAY_SECONDS;
/// Earliest plausible time, 2026-01-01. A build that knows its own date uses that.
const EARLIEST_PLAUSIBLE_TIME: Seconds = 1_767_225_600;

/// When a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) not_before: Seconds,
    pub(super) not_after: Seconds,
}

/// `notBefore` and `notAfter` (client-go: from an hour ago, for one year).
pub(super) fn of_new(clock: Seconds, built: Option<Seconds>, years: Seconds) -> Validity {
    let least = least(built);
    match clock < least {
        true => Validity { not_before: least - CERTIFICATE_HOUR_SECONDS, not_after: least + 10 * YEAR },
        false => Validity { not_before: clock - CERTIFICATE_HOUR_SECONDS, not_after: clock + years * YEAR },
    }
}

/// Whether an existing certificate still fits the clock.
pub(super) fn can_stay(made: &Certificate, clock: Seconds, built: Option<Seconds>) -> bool {
    if clock < least(built) {
        return true;
    }
    made.not_before <= clock + CERTIFICATE_DAY_SECONDS && clock <= made.not_after
}

fn least(built: Option<Seconds>) -> Seconds {
    built.unwrap_or(EARLIEST_PLAUSIBLE_TIME).max(EARLIEST_PLAUSIBLE_TIME)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(clock: Seconds) -> Certificate {
        let Validity { not_before, not_after } = of_new(clock, None, 1);
        Certificate { not_before, not_after, ..Certificate::default() }
    }

    #[track_caller]
    fn check(made_at: Seconds, clock: Seconds, stays: bool) {
        assert_eq!(can_stay(&made(made_at), clock, None), stays, "{made_at} {clock}");
    }

    const NOW: Seconds = EARLIEST_PLAUSIBLE_TIME + YEAR;

    #[test]
    fn certificate_is_valid_when_created_and_replaced_when_expired() {
        check(NOW, NOW, true);
        check(NOW, NOW + YEAR - 1, true);
        check(NOW, NOW + YEAR + 1, false);
    }

    #[test]
    fn certificate_from_a_1970_clock_is_valid_today() {
        for clock in [0, EARLIEST_PLAUSIBLE_TIME - 1] {
            check(clock, NOW, true);
            let made = made(clock);
            assert!(made.not_before < NOW && NOW + 5 * YEAR < made.not_after);
        }
        assert_eq!(
            of_new(0, Some(NOW), 1),
            Validity { not_before: NOW - CERTIFICATE_HOUR_SECONDS, not_after: NOW + 10 * YEAR }
        );
        assert_eq!(of_new(0, Some(0), 1), of_new(0, None, 1));
    }

    #[test]
    fn certificate_from_a_2099_clock_is_replaced_when_the_clock_is_set() {
        check(NOW + 70 * YEAR, NOW, false);
        check(NOW + CERTIFICATE_HOUR_SECONDS, NOW, true);
    }

    #[test]
    fn clock_certainly_behind_replaces_nothing() {
        check(NOW, 0, true);
        check(NOW + 70 * YEAR, EARLIEST_PLAUSIBLE_TIME - 1, true);
    }
}
