//! Decides when to renew a certificate and with which credentials; back-off after failures. Pure.
//!
//! The clock may be wrong: a board without a real-time clock starts in 1970, and one with a failing battery shows any
//! year. Two facts hold anyway. The current time is never earlier than the issue of a certificate in use, so an earlier
//! clock is corrected to that time. And a certificate that was just issued is new even if the clock disagrees, so a
//! clock in the future does not cause one renewal after another.

use std::time::Duration;

use crate::protocol::x509::Certificate;

/// Seconds since 1970.
pub(crate) type Seconds = i64;

/// The current time, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownTime {
    pub(crate) clock: Seconds,
    /// The latest time that is certainly past.
    pub(crate) floor: Seconds,
}

impl KnownTime {
    pub(crate) fn now(self) -> Seconds {
        self.clock.max(self.floor)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldCertificate {
    pub(crate) not_before: Seconds,
    pub(crate) not_after: Seconds,
    /// Time since this process obtained it, by the monotonic clock; `None` if an earlier process did.
    pub(crate) age: Option<Duration>,
    /// The part of its lifetime after which it is renewed, in 65536ths: 70 to 90 percent, stable across restarts.
    share: u16,
}

/// The renewal state of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RenewalState {
    /// Valid; due for renewal at `until`.
    Good {
        until: Seconds,
    },
    /// Valid and due for renewal.
    Due,
    Expired,
}

/// When to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextRotation {
    /// When the clock shows this time.
    Date(Seconds),
    /// After this duration: the clock is certainly wrong. When it is set, the decision is made again.
    Span(Duration),
}

/// Signers backdate certificates for clients whose clocks are behind.
const BACKDATED: Seconds = 24 * 3600;

impl HeldCertificate {
    /// `issued`: the time since this process obtained it.
    pub(crate) fn new(certificate: &Certificate, issued: Option<Duration>) -> Self {
        // The public key serves as the random number: nodes renew at different times, and each node always at the
        // same.
        let key = certificate.public_key.iter().rev().take(2);
        let random = key.fold(0_u16, |number, byte| number << 8 | u16::from(*byte));
        Self { not_before: certificate.not_before, not_after: certificate.not_after, age: issued, share: share(random) }
    }

    pub(crate) fn standing(&self, present: KnownTime) -> RenewalState {
        let now = self.current_time(present);
        let life = self.not_after.saturating_sub(self.not_before).max(0);
        // 128 bits hold the product for any lifetime.
        let used = (i128::from(life) * i128::from(self.share)) >> 16;
        let until = self.not_before.saturating_add(i64::try_from(used).unwrap_or(life));
        // A certificate that was just issued is kept for a while, even with a short lifetime or a wrong clock: signers
        // backdate by some minutes, and clocks differ.
        let fresh = i64::try_from(self.age.map_or(u64::MAX, |age| age.as_secs())).unwrap_or(i64::MAX);
        if fresh < life / 10 {
            return RenewalState::Good { until: until.max(now.saturating_add(life / 10 - fresh)) };
        }
        if now > self.not_after {
            RenewalState::Expired
        } else if now >= until {
            RenewalState::Due
        } else {
            RenewalState::Good { until }
        }
    }

    /// The wait until `until`: by the clock, or by duration if the clock is wrong.
    pub(crate) fn wait(&self, until: Seconds, present: KnownTime) -> NextRotation {
        let now = self.current_time(present);
        if now == present.clock {
            return NextRotation::Date(until);
        }
        NextRotation::Span(Duration::from_secs(u64::try_from(until.saturating_sub(now)).unwrap_or_default()))
    }

    /// The current time: if this process obtained it, at least the issue time plus the time counted since.
    fn current_time(&self, present: KnownTime) -> Seconds {
        let now = KnownTime { floor: present.floor.max(self.not_before), ..present }.now();
        let Some(age) = self.age else { return now };
        let counted = self.not_before.saturating_add(i64::try_from(age.as_secs()).unwrap_or(i64::MAX));
        if now.saturating_sub(counted) > BACKDATED { counted } else { now }
    }
}

/// The remaining time in words. While renewals fail, the failure is reported again with each change of the words.
pub(crate) fn nearness(lifetime_left: Seconds) -> Option<&'static str> {
    const DAY: Seconds = 24 * 3600;
    let steps = [(1, ", in less than a day"), (7, ", in less than 7 days"), (30, ", in less than 30 days")];
    steps.into_iter().find(|(days, _)| lifetime_left < days * DAY).map(|(_, words)| words)
}

/// 70 to 90 percent, evenly distributed.
fn share(random: u16) -> u16 {
    // client-go's certificate manager rotates in this range, so that the nodes of a fleet do not renew together.
    const ROTATION_EARLIEST_65536THS: u32 = 65536 * 7 / 10;
    const ROTATION_SPAN_65536THS: u32 = 65536 * 2 / 10;
    u16::try_from(ROTATION_EARLIEST_65536THS + ((ROTATION_SPAN_65536THS * u32::from(random)) >> 16)).unwrap_or(u16::MAX)
}

/// The credentials that a signing request is sent with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Credentials {
    Bootstrap,
    /// The client certificate, or whatever the kubeconfig has.
    Own,
    /// The token for requests that the re-enrolment key signs.
    Reenrolment,
}

/// The credentials to try, in order, until one is not rejected.
///
/// A certificate that seems expired is still tried: the clock may be wrong, and only the server decides.
/// A re-enrolment waits for an approval, so bootstrap credentials come first.
pub(crate) fn credentials(
    certificate: Option<RenewalState>,
    has_bootstrap: bool,
    has_reenrolment: bool,
) -> &'static [Credentials] {
    use Credentials::{Bootstrap, Own, Reenrolment};
    match (certificate, has_bootstrap, has_reenrolment) {
        (Some(RenewalState::Expired), true, true) => &[Own, Bootstrap, Reenrolment],
        (Some(RenewalState::Expired), true, false) => &[Own, Bootstrap],
        (Some(RenewalState::Expired), false, true) => &[Own, Reenrolment],
        (Some(_), _, _) => &[Own],
        (None, true, true) => &[Bootstrap, Reenrolment],
        (None, true, false) => &[Bootstrap],
        (None, false, true) => &[Reenrolment],
        (None, false, false) => &[],
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No answer, or a transient one. Retrying at intervals is cheap.
    Passing,
    /// Rejected. Only other credentials or an administrator can change that.
    Refused,
}

/// The back-off: 2 s, doubled up to 32 s (client-go: `rotateCerts`). After rejections it grows to five minutes,
/// because each attempt costs a handshake. `failures` counts from 1; `random` is uniformly distributed.
pub(crate) fn wait(failures: u32, failure: Failure, random: u16) -> Duration {
    let doubled = 2_u64.saturating_pow(failures.max(1));
    let most = match failure {
        Failure::Passing => 32,
        Failure::Refused => 300,
    };
    let wait = Duration::from_secs(doubled.min(most));
    // Up to 10% jitter, so that nodes which lost the same server do not return at once.
    wait + wait.mul_f64(0.1 * f64::from(random) / 65535.0)
}

/// How long to wait for one request to be signed (client-go: `certificateWaitTimeout`).
pub(crate) const REQUEST_WAIT: Duration = Duration::from_secs(15 * 60);

#[cfg(test)]
mod tests;
