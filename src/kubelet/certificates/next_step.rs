//! Decides what to do about the client certificate. Pure.

use super::rotation::{Credentials, HeldCertificate, KnownTime, NextRotation, RenewalState, credentials};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CredentialState {
    pub(super) credentials: OwnCredentials,
    pub(super) has_bootstrap: bool,
    /// A request can be made with the token of the re-enrolment, and signed with its key.
    pub(super) has_reenrolment: bool,
    /// `rotateCertificates`.
    pub(super) rotates: bool,
    /// The API server rejects this client (401), even if its certificate seems valid.
    pub(super) is_stranger: bool,
}

/// The node's own credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnCredentials {
    /// There is no usable kubeconfig.
    None,
    /// A token, which is managed elsewhere.
    Token,
    Certificate(OwnCertificate),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OwnCertificate {
    pub(super) certificate: HeldCertificate,
    /// It has the node's name and group. A kubeconfig may have a certificate with other rights.
    pub(super) is_for_node: bool,
    /// It is embedded in the kubeconfig, as kubeadm writes it at first.
    pub(super) is_embedded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing to do before this time or a change.
    Rest { until: Option<NextRotation> },
    /// The server rejected the credentials, and there are no others.
    Wait,
    /// Request a certificate with these credentials, in order, until one is accepted.
    Ask(&'static [Credentials]),
}

impl CredentialState {
    pub(super) fn step(&self, present: KnownTime) -> Step {
        let renewal = match self.credentials {
            OwnCredentials::None if self.has_bootstrap => return Step::Ask(&[Credentials::Bootstrap]),
            OwnCredentials::None | OwnCredentials::Token => return Step::Rest { until: None },
            OwnCredentials::Certificate(renewal) => renewal,
        };
        let standing = match renewal.certificate.standing(present) {
            _ if self.is_stranger => RenewalState::Expired,
            standing => standing,
        };
        let is_provisional = renewal.is_embedded || !renewal.is_for_node;
        match (standing, self.rotates) {
            (RenewalState::Expired, true) => {
                Step::Ask(credentials(Some(standing), self.has_bootstrap, self.has_reenrolment))
            }
            (RenewalState::Expired, false) if self.has_bootstrap || self.has_reenrolment => {
                Step::Ask(credentials(None, self.has_bootstrap, self.has_reenrolment))
            }
            (RenewalState::Expired, false) if self.is_stranger => Step::Wait,
            (RenewalState::Expired, false) => Step::Rest { until: None },
            (RenewalState::Due, true) => Step::Ask(&[Credentials::Own]),
            (RenewalState::Good { .. }, true) if is_provisional => Step::Ask(&[Credentials::Own]),
            (RenewalState::Good { until }, true) => {
                Step::Rest { until: Some(renewal.certificate.wait(until, present)) }
            }
            // When the certificate expires, the failure is reported and the bootstrap credentials are tried.
            (RenewalState::Good { .. } | RenewalState::Due, false) => {
                let end = renewal.certificate.not_after.saturating_add(1);
                // A certificate that was just issued counts as good past its end if the clock is ahead of the
                // signer's.
                let until = if let RenewalState::Good { until } = standing { end.max(until) } else { end };
                Step::Rest { until: Some(renewal.certificate.wait(until, present)) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::kubelet::certificates::rotation::Seconds;
    use crate::protocol::x509::Certificate;

    const MADE: Seconds = 1_767_225_600;
    const YEAR: Seconds = 365 * 24 * 3600;
    const GOOD: Seconds = MADE + 1;
    const DUE: Seconds = MADE + YEAR * 95 / 100;
    const EXPIRED: Seconds = MADE + YEAR + 1;

    fn certificate() -> OwnCertificate {
        let read = Certificate { not_before: MADE, not_after: MADE + YEAR, ..Certificate::default() };
        OwnCertificate { certificate: HeldCertificate::new(&read, None), is_for_node: true, is_embedded: false }
    }

    fn situation(own: OwnCredentials) -> CredentialState {
        CredentialState {
            credentials: own,
            has_bootstrap: true,
            has_reenrolment: false,
            rotates: true,
            is_stranger: false,
        }
    }

    #[track_caller]
    fn check(situation: CredentialState, clock: Seconds, step: Step) {
        assert_eq!(situation.step(KnownTime { clock, floor: 0 }), step, "{situation:?}");
    }

    const REST: Step = Step::Rest { until: None };
    const ASK_OWN: Step = Step::Ask(&[Credentials::Own]);
    const ASK_BOOTSTRAP: Step = Step::Ask(&[Credentials::Bootstrap]);
    const ASK_BOTH: Step = Step::Ask(&[Credentials::Own, Credentials::Bootstrap]);

    #[test]
    fn node_without_credentials_uses_bootstrap_credentials() {
        check(situation(OwnCredentials::None), GOOD, ASK_BOOTSTRAP);
        check(CredentialState { rotates: false, ..situation(OwnCredentials::None) }, GOOD, ASK_BOOTSTRAP);
        check(CredentialState { has_bootstrap: false, ..situation(OwnCredentials::None) }, GOOD, REST);
    }

    #[test]
    fn expired_certificate_is_renewed_with_the_token_of_the_reenrolment() {
        let own = situation(OwnCredentials::Certificate(certificate()));
        let own = CredentialState { has_bootstrap: false, has_reenrolment: true, ..own };
        check(own, EXPIRED, Step::Ask(&[Credentials::Own, Credentials::Reenrolment]));
        check(own, DUE, ASK_OWN);
        check(CredentialState { rotates: false, ..own }, EXPIRED, Step::Ask(&[Credentials::Reenrolment]));
        check(
            CredentialState { is_stranger: true, ..own },
            GOOD,
            Step::Ask(&[Credentials::Own, Credentials::Reenrolment]),
        );
        // Its cluster is that of the kubeconfig.
        check(CredentialState { credentials: OwnCredentials::None, ..own }, GOOD, REST);
        let all = [Credentials::Own, Credentials::Bootstrap, Credentials::Reenrolment];
        let both = CredentialState { has_bootstrap: true, ..own }.step(KnownTime { clock: EXPIRED, floor: 0 });
        assert!(matches!(both, Step::Ask(asked) if *asked == all), "{both:?}");
    }

    #[test]
    fn token_is_left_alone() {
        check(situation(OwnCredentials::Token), GOOD, REST);
        check(CredentialState { is_stranger: true, ..situation(OwnCredentials::Token) }, GOOD, REST);
    }

    #[test]
    fn certificate_is_replaced_when_due() {
        let own = situation(OwnCredentials::Certificate(certificate()));
        let step = own.step(KnownTime { clock: GOOD, floor: 0 });
        assert!(matches!(step, Step::Rest { until: Some(NextRotation::Date(until)) } if until > GOOD), "{step:?}");
        let step = own.step(KnownTime { clock: 0, floor: 0 });
        assert!(matches!(step, Step::Rest { until: Some(NextRotation::Span(_)) }), "{step:?}");
        check(own, DUE, ASK_OWN);
        check(own, EXPIRED, ASK_BOTH);
        check(CredentialState { has_bootstrap: false, ..own }, EXPIRED, ASK_OWN);
    }

    #[test]
    fn without_rotation_only_expiry_matters() {
        let own = CredentialState { rotates: false, ..situation(OwnCredentials::Certificate(certificate())) };
        let end = Step::Rest { until: Some(NextRotation::Date(EXPIRED)) };
        check(own, GOOD, end);
        check(own, DUE, end);
        check(own, EXPIRED, ASK_BOOTSTRAP);
        check(CredentialState { has_bootstrap: false, ..own }, EXPIRED, REST);
    }

    #[test]
    fn rest_ends_in_the_future_when_the_clock_is_ahead() {
        let hour = Certificate { not_before: MADE, not_after: MADE + 3600, ..Certificate::default() };
        for (age, clock) in [(0, MADE + 2 * 3600), (359, MADE + 2 * 3600), (10, MADE + 3601), (400, MADE + 1800)] {
            let held = HeldCertificate::new(&hour, Some(Duration::from_secs(age)));
            let own = OwnCredentials::Certificate(OwnCertificate { certificate: held, ..certificate() });
            let step = CredentialState { rotates: false, ..situation(own) }.step(KnownTime { clock, floor: 0 });
            assert!(
                matches!(step, Step::Rest { until: Some(NextRotation::Date(until)) } if until > clock),
                "{age}: {step:?}"
            );
        }
    }

    #[test]
    fn certificate_for_another_identity_is_replaced_at_once() {
        for lent in [
            OwnCertificate { is_embedded: true, ..certificate() },
            OwnCertificate { is_for_node: false, ..certificate() },
        ] {
            let own = situation(OwnCredentials::Certificate(lent));
            check(own, GOOD, ASK_OWN);
            check(
                CredentialState { rotates: false, ..own },
                GOOD,
                Step::Rest { until: Some(NextRotation::Date(EXPIRED)) },
            );
        }
    }

    #[test]
    fn rejected_node_acts_as_if_its_certificate_had_expired() {
        let own = CredentialState { is_stranger: true, ..situation(OwnCredentials::Certificate(certificate())) };
        check(own, GOOD, ASK_BOTH);
        check(CredentialState { rotates: false, ..own }, GOOD, ASK_BOOTSTRAP);
        check(CredentialState { rotates: false, has_bootstrap: false, ..own }, GOOD, Step::Wait);
        check(CredentialState { has_bootstrap: false, ..own }, GOOD, ASK_OWN);
    }
}
