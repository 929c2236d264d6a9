//! Reports certificate renewals and failures as events, log lines and metrics.

use std::rc::Rc;
use std::time::Duration;

use async_channel::Sender;

use super::certificate_status::{CertificateEntry, CertificateKind, CertificateStatuses};
use super::csr_attempt::AttemptError;
use super::rotation::{KnownTime, RenewalState, Seconds, nearness, wait};
use crate::platform::rt;
use crate::protocol::x509::Certificate;
use crate::state::pods::{NodeEvent, SyncEvent};
use crate::types::api::{EventKind, Reason, Time};

#[derive(Debug)]
pub(super) struct CertificateEvents {
    kind: CertificateKind,
    statuses: Rc<CertificateStatuses>,
    inbox: Sender<SyncEvent>,
    /// Consecutive failures.
    pub(super) failures: u32,
    /// The last failure that was reported; each one is reported once.
    last_failure: String,
}

impl CertificateEvents {
    pub(super) fn new(kind: CertificateKind, statuses: Rc<CertificateStatuses>, inbox: Sender<SyncEvent>) -> Self {
        Self { kind, statuses, inbox, failures: 0, last_failure: String::new() }
    }

    pub(super) fn issued(&mut self, leaf: &Certificate) {
        let (kind, until) = (self.kind.name(), date(leaf.not_after));
        let message = format!("{kind} certificate issued, good until {until}");
        self.record_event(EventKind::Normal, Reason::CERTIFICATE_ISSUED, message);
        self.failures = 0;
        self.last_failure.clear();
    }

    /// Shows that a request waits for its approval.
    pub(super) fn awaits(&self, request: &str) {
        let fault = Some(format!("{request} waits for its approval"));
        self.statuses.note(self.kind, CertificateEntry { fault, ..self.statuses.entry(self.kind) });
    }

    /// Reports a failed attempt and returns the back-off.
    pub(super) fn failed(&mut self, fault: &AttemptError, leaf: Option<&Certificate>, present: KnownTime) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let (kind, why) = (self.kind.name(), fault.to_string());
        let message = match leaf {
            Some(leaf) => {
                let (lifetime_left, end) = (leaf.not_after.saturating_sub(present.now()), date(leaf.not_after));
                let (ends, soon) = match nearness(lifetime_left) {
                    _ if lifetime_left < 0 => ("current certificate expired", ""),
                    Some(soon) => ("current certificate valid until", soon),
                    None => ("current certificate valid until", ""),
                };
                format!("no new {kind} certificate: {why} ({ends} {end}{soon})")
            }
            None => format!("no {kind} certificate: {why}"),
        };
        if self.last_failure != message {
            self.record_event(EventKind::Warning, Reason::CERTIFICATE_REQUEST_FAILED, message.clone());
            self.last_failure = message;
        }
        self.statuses.failed(self.kind, why);
        let random = u16::try_from(rt::random() >> 16).unwrap_or_default();
        wait(self.failures, fault.failure(), random)
    }

    /// Records the state and reports an expiry. The last attempt's failure is kept unless `entry` has another one.
    pub(super) fn note(&self, mut entry: CertificateEntry) {
        let before = self.statuses.entry(self.kind);
        if entry.fault.is_none() && self.failures > 0 {
            entry.fault.clone_from(&before.fault);
        }
        let has_expired = entry.standing == Some(RenewalState::Expired);
        if has_expired && before.standing != entry.standing {
            let (kind, end) = (self.kind.name(), date(entry.not_after.unwrap_or_default()));
            let message = format!("{kind} certificate expired {end}");
            self.record_event(EventKind::Warning, Reason::CERTIFICATE_EXPIRED, message);
        }
        if let Some(fault) = entry.fault.as_ref().filter(|fault| before.fault.as_ref() != Some(fault)) {
            log!(warn, "certificate problem", which = self.kind.name(), error = fault);
        }
        self.statuses.note(self.kind, entry);
    }

    fn record_event(&self, kind: EventKind, reason: Reason, message: String) {
        // Events may be dropped; the sender must not block.
        let _ = self.inbox.try_send(SyncEvent::NodeEvent(NodeEvent::new(kind, reason, message)));
    }
}

fn date(second: Seconds) -> Time {
    Time::from_unix_nanos(second.saturating_mul(1_000_000_000))
}
