//! When a certificate is replaced, with which credentials it is asked for, and when again after a failure. Pure.
//!
//! The moment is an argument, and may be wrong: a board without a clock of its own begins in 1970, and a battery that
//! fails shows any year. What is certain is that no moment lies before a certificate that is in use was made, so the
//! moment is never taken to be earlier; and that a certificate that has just been issued is new, whatever the clock
//! says, so that a clock from the future does not have one after the other replaced.

use std::time::Duration;

use crate::protocol::x509::Certificate;

/// A moment, in seconds since 1970.
pub(crate) type Seconds = i64;

/// The present, as far as it can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Present {
    /// What the clock says.
    pub(crate) clock: Seconds,
    /// When it certainly is later than: the newest of what is known to have been made before.
    pub(crate) floor: Seconds,
}

impl Present {
    pub(crate) fn now(self) -> Seconds {
        self.clock.max(self.floor)
    }
}

/// A certificate that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) not_before: Seconds,
    pub(crate) not_after: Seconds,
    /// How long ago it was issued, where this process asked for it: by a clock that nobody sets.
    pub(crate) age: Option<Duration>,
    /// Which part of its life it is used for, in 65536ths: from 70 to 90 percent, and the same after a restart.
    share: u16,
}

/// Where a certificate is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Good, and to be replaced from this moment on.
    Good {
        until: Seconds,
    },
    /// Good, and old enough to be replaced.
    Due,
    Expired,
}

/// When something is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// When the clock shows this.
    Date(Seconds),
    /// After so long: what the clock shows is certainly wrong. When it is set, everything is to be decided anew.
    Span(Duration),
}

/// Signers date a certificate back, so that clocks which are a little late take it.
const BACKDATED: Seconds = 24 * 3600;

impl Held {
    /// `issued`: how long ago this process got it.
    pub(crate) fn new(certificate: &Certificate, issued: Option<Duration>) -> Self {
        // The key is as good a random number as any: nodes do not all come at once, and each has its own.
        let key = certificate.public_key.iter().rev().take(2);
        let random = key.fold(0_u16, |number, byte| number << 8 | u16::from(*byte));
        Self { not_before: certificate.not_before, not_after: certificate.not_after, age: issued, share: share(random) }
    }

    /// Where it is in its life.
    pub(crate) fn standing(&self, present: Present) -> Standing {
        let now = self.moment(present);
        let life = self.not_after.saturating_sub(self.not_before).max(0);
        // In 128 bits there is room for any life.
        let used = (i128::from(life) * i128::from(self.share)) >> 16;
        let until = self.not_before.saturating_add(i64::try_from(used).unwrap_or(life));
        // What has just been issued is kept for a while, however short its life is or late the clock says it is: signers
        // date back by some minutes, and clocks differ by some more.
        let fresh = i64::try_from(self.age.map_or(u64::MAX, |age| age.as_secs())).unwrap_or(i64::MAX);
        if fresh < life / 10 {
            return Standing::Good { until: until.max(now.saturating_add(life / 10 - fresh)) };
        }
        if now > self.not_after {
            Standing::Expired
        } else if now >= until {
            Standing::Due
        } else {
            Standing::Good { until }
        }
    }

    /// How to wait for a moment of its life: by the clock, or where that is wrong, by counting.
    pub(crate) fn wait(&self, until: Seconds, present: Present) -> Until {
        let now = self.moment(present);
        if now == present.clock {
            return Until::Date(until);
        }
        Until::Span(Duration::from_secs(u64::try_from(until.saturating_sub(now)).unwrap_or_default()))
    }

    /// The present. The one who has issued it knew the time, and since then a clock has counted that nobody sets.
    fn moment(&self, present: Present) -> Seconds {
        let now = Present { floor: present.floor.max(self.not_before), ..present }.now();
        let Some(age) = self.age else { return now };
        let counted = self.not_before.saturating_add(i64::try_from(age.as_secs()).unwrap_or(i64::MAX));
        if now.saturating_sub(counted) > BACKDATED { counted } else { now }
    }
}

/// How near the end is, for who is told that a newer certificate is not to be had: with each step he is told once more.
pub(crate) fn nearness(left: Seconds) -> Option<&'static str> {
    const DAY: Seconds = 24 * 3600;
    let steps = [(1, ", in less than a day"), (7, ", in less than 7 days"), (30, ", in less than 30 days")];
    steps.into_iter().find(|(days, _)| left < days * DAY).map(|(_, words)| words)
}

/// From 70 to 90 percent, evenly.
fn share(random: u16) -> u16 {
    const LEAST: u32 = 65536 * 7 / 10;
    const SPAN: u32 = 65536 * 2 / 10;
    u16::try_from(LEAST + ((SPAN * u32::from(random)) >> 16)).unwrap_or(u16::MAX)
}

/// What a request for a certificate is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Credentials {
    Bootstrap,
    /// The client certificate, or whatever else the kubeconfig has.
    Own,
}

/// With what to ask, one after the other, as long as they are refused.
///
/// A certificate that seems to have expired is still tried: the clock may be wrong, and the server alone decides.
pub(crate) fn credentials(own: Option<Standing>, has_bootstrap: bool) -> &'static [Credentials] {
    match (own, has_bootstrap) {
        (Some(Standing::Expired), true) => &[Credentials::Own, Credentials::Bootstrap],
        (Some(_), _) => &[Credentials::Own],
        (None, true) => &[Credentials::Bootstrap],
        (None, false) => &[],
    }
}

/// How a request came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Nobody answered, or what was answered will pass: a look from time to time costs little.
    Passing,
    /// The answer was no. Only another credential or somebody's act changes that.
    Refused,
}

/// The wait before the next try: 2 s, doubled up to 32 s (client-go: `rotateCerts`). Who is refused asks less and less,
/// down to every five minutes: each time is a handshake that somebody pays for. `failures` counts from 1; `random` is
/// any number, evenly spread.
pub(crate) fn wait(failures: u32, failure: Failure, random: u16) -> Duration {
    let doubled = 2_u64.saturating_pow(failures.max(1));
    let most = match failure {
        Failure::Passing => 32,
        Failure::Refused => 300,
    };
    let wait = Duration::from_secs(doubled.min(most));
    // Up to a tenth more, so that nodes which lost one server do not come back as one.
    wait + wait.mul_f64(0.1 * f64::from(random) / 65535.0)
}

/// How long it is waited for the answer to one request (client-go: `certificateWaitTimeout`).
pub(crate) const REQUEST_WAIT: Duration = Duration::from_secs(15 * 60);

#[cfg(test)]
mod tests;
