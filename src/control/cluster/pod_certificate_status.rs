//! PodCertificateRequests: the state that a signer sets, and when to request the next certificate. Pure.

use std::time::Duration;

use serde_json::Value;

use crate::protocol::pem;
use crate::types::timestamp::Timestamp;

/// The state of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestState {
    Pending,
    Issued(IssuedCertificate),
    /// Denied or failed, for good.
    Refused(Refusal),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IssuedCertificate {
    /// In PEM, without other text.
    pub(super) chain: String,
    /// Unix times, in seconds.
    pub(super) not_before: i64,
    pub(super) begin_refresh: i64,
    pub(super) not_after: i64,
}

/// A condition that ends a request without a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// `Denied` or `Failed`.
    pub(super) kind: String,
    pub(super) reason: String,
    pub(super) message: String,
}

/// The API server's limit of a chain.
const MAX_CHAIN_BYTES: usize = 100 << 10;
/// The shortest time between two requests for one certificate, if the clock says that it has expired on arrival.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_secs(600);

impl RequestState {
    /// Reads the object of any API version, or says what is wrong with it.
    pub(super) fn of(object: &Value) -> Result<Self, &'static str> {
        let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let status = object.get("status").unwrap_or(&Value::Null);
        let conditions = status.get("conditions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let Some(condition) = conditions.iter().find(|condition| FINAL.contains(&&*text(condition, "type"))) else {
            return Ok(Self::Pending);
        };
        let kind = text(condition, "type");
        if kind != "Issued" {
            return Ok(Self::Refused(Refusal {
                kind,
                reason: text(condition, "reason"),
                message: text(condition, "message"),
            }));
        }
        let chain = text(status, "certificateChain");
        let time = |field| text(status, field).parse().map(Timestamp::as_second).map_err(|_| "a date is missing");
        if chain.len() > MAX_CHAIN_BYTES {
            return Err("the certificate chain is too long");
        }
        let certificates = pem::certificates(chain.as_bytes()).map_err(|_| "the certificate chain is malformed")?;
        Ok(Self::Issued(IssuedCertificate {
            chain: certificates.iter().map(|der| pem::encode(pem::CERTIFICATE, der)).collect(),
            not_before: time("notBefore")?,
            begin_refresh: time("beginRefreshAt")?,
            not_after: time("notAfter")?,
        }))
    }
}

const FINAL: [&str; 3] = ["Denied", "Failed", "Issued"];

impl IssuedCertificate {
    /// From now until the refresh, as the clock says. A clock that is behind does not delay it beyond the certificate's
    /// own dates. With one that is ahead, or after a long absence, it waits a little, and requests again.
    pub(super) fn refresh_after(&self, now: i64) -> Duration {
        let by_dates = seconds(self.begin_refresh.saturating_sub(self.not_before));
        seconds(self.begin_refresh.saturating_sub(now)).min(by_dates).max(MIN_REFRESH_INTERVAL)
    }

    /// From the refresh until the certificate expires.
    pub(super) fn spare(&self) -> Duration {
        seconds(self.not_after.saturating_sub(self.begin_refresh))
    }
}

fn seconds(number: i64) -> Duration {
    Duration::from_secs(u64::try_from(number).unwrap_or(0))
}

impl Refusal {
    /// Upstream's message of the event.
    pub(super) fn event_message(&self, request: &str) -> String {
        let Self { kind, reason, message } = self;
        let outcome = if kind == "Denied" { "was denied" } else { "failed" };
        format!("PodCertificateRequest {request} {outcome}, reason={reason:?}, message={message:?}")
    }

    /// Upstream's error of the volume.
    pub(super) fn why(&self) -> String {
        let Self { kind, reason, message } = self;
        let outcome = if kind == "Denied" { "denied" } else { "failed" };
        format!("PodCertificateRequest was permanently {outcome}: reason={reason:?} message={message:?}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state(status: &Value) -> Result<RequestState, &'static str> {
        RequestState::of(&json!({"status": status}))
    }

    fn dates(not_before: i64, begin_refresh: i64, not_after: i64) -> IssuedCertificate {
        IssuedCertificate { chain: String::new(), not_before, begin_refresh, not_after }
    }

    #[test]
    fn chain_is_issued_without_other_text() {
        let (one, two) = (pem::encode(pem::CERTIFICATE, b"one"), pem::encode(pem::CERTIFICATE, b"two"));
        let status = json!({
            "conditions": [{"type": "Issued", "status": "True", "reason": "Issued"}],
            "certificateChain": format!("leaf\n{one}and\n{two}"),
            "notBefore": "2026-01-01T00:00:00Z",
            "beginRefreshAt": "2026-01-01T16:00:00Z",
            "notAfter": "2026-01-02T00:00:00Z",
        });
        let chain = format!("{one}{two}");
        let expected = IssuedCertificate { chain, ..dates(1_767_225_600, 1_767_283_200, 1_767_312_000) };
        assert_eq!(state(&status), Ok(RequestState::Issued(expected)));
        for field in ["certificateChain", "notBefore", "beginRefreshAt", "notAfter"] {
            let mut damaged = status.clone();
            damaged[field] = json!("");
            assert!(state(&damaged).is_err(), "{field}");
        }
        let mut long = status;
        long["certificateChain"] = json!(one.repeat(2000));
        assert_eq!(state(&long), Err("the certificate chain is too long"));
    }

    #[test]
    fn request_is_pending_until_it_has_a_final_condition() {
        for status in [json!(null), json!({}), json!({"conditions": [{"type": "Approved"}]})] {
            assert_eq!(state(&status), Ok(RequestState::Pending), "{status}");
        }
        for (kind, why, event) in
            [("Denied", "permanently denied", "was denied"), ("Failed", "permanently failed", "failed")]
        {
            let status = json!({"conditions": [{"type": kind, "reason": "UnsupportedKeyType", "message": "use P256"}]});
            let Ok(RequestState::Refused(refusal)) = state(&status) else { panic!("{kind}") };
            let ends = r#"reason="UnsupportedKeyType" message="use P256""#;
            assert_eq!(refusal.why(), format!("PodCertificateRequest was {why}: {ends}"));
            let ends = r#"reason="UnsupportedKeyType", message="use P256""#;
            assert_eq!(refusal.event_message("ns/req-1"), format!("PodCertificateRequest ns/req-1 {event}, {ends}"));
        }
    }

    #[test]
    fn wrong_clock_neither_delays_the_refresh_nor_repeats_it_at_once() {
        let day = dates(100_000, 160_000, 186_400);
        for (now, expected) in [(100_000, 60_000), (130_000, 30_000), (0, 60_000), (170_000, 600), (9_000_000, 600)] {
            assert_eq!(day.refresh_after(now), Duration::from_secs(expected), "{now}");
        }
        assert_eq!(day.spare(), Duration::from_secs(26_400));
        assert_eq!(dates(0, 10, 5).spare(), Duration::ZERO);
    }
}
