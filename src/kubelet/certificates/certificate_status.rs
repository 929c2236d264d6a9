//! State of the node's certificates, for metrics and the status command.

use std::cell::RefCell;

use super::rotation::{RenewalState, Seconds};
use crate::kubelet::node::{CERTIFICATE_ANNOTATIONS, StatusInputs};
use crate::platform::rpc::Signal;
use crate::types::api::Time;

/// One entry for each certificate that the kubelet manages.
#[derive(Debug, Default)]
pub(crate) struct CertificateStatuses {
    client: RefCell<Option<CertificateEntry>>,
    serving: RefCell<Option<CertificateEntry>>,
    /// Notified when the end of a certificate changes.
    ends_changed: Signal,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CertificateEntry {
    /// `None`: there is no certificate.
    pub(crate) not_after: Option<Seconds>,
    pub(crate) standing: Option<RenewalState>,
    /// Why there is no certificate, or why it was not renewed; one line.
    pub(crate) fault: Option<String>,
    /// Number of failed renewals.
    pub(crate) failures: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CertificateKind {
    Client,
    Serving,
}

impl CertificateKind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Serving => "serving",
        }
    }
}

impl CertificateStatuses {
    pub(crate) fn entries(&self) -> impl Iterator<Item = (CertificateKind, CertificateEntry)> {
        let entries = [CertificateKind::Client, CertificateKind::Serving]
            .map(|kind| Some((kind, self.cell(kind).borrow().clone()?)));
        entries.into_iter().flatten()
    }

    pub(super) fn entry(&self, kind: CertificateKind) -> CertificateEntry {
        self.cell(kind).borrow().clone().unwrap_or_default()
    }

    /// Keeps the failure count, which only `failed` changes.
    pub(crate) fn note(&self, kind: CertificateKind, entry: CertificateEntry) {
        let mut cell = self.cell(kind).borrow_mut();
        let failures = cell.as_ref().map_or(0, |before| before.failures);
        let has_moved = cell.as_ref().is_none_or(|before| before.not_after != entry.not_after);
        *cell = Some(CertificateEntry { failures, ..entry });
        drop(cell);
        if has_moved {
            self.ends_changed.notify();
        }
    }

    pub(crate) fn failed(&self, kind: CertificateKind, fault: String) {
        let mut cell = self.cell(kind).borrow_mut();
        let entry = cell.get_or_insert_default();
        entry.fault = Some(fault);
        entry.failures = entry.failures.saturating_add(1);
    }

    /// Reports the ends of the certificates as annotations of the node, whenever they change. Never returns.
    pub(crate) async fn report_ends(&self, inputs: &StatusInputs) {
        loop {
            let seen = self.ends_changed.changes();
            for (annotation, kind) in
                CERTIFICATE_ANNOTATIONS.into_iter().zip([CertificateKind::Client, CertificateKind::Serving])
            {
                let entry = self.cell(kind).borrow().clone();
                // A certificate that was not looked at yet may be there.
                let Some(entry) = entry else { continue };
                let end = entry.not_after.map(|end| Time::from_unix_seconds(end).to_string());
                inputs.report(annotation, &end.unwrap_or_default());
            }
            self.ends_changed.beyond(seen).await;
        }
    }

    fn cell(&self, kind: CertificateKind) -> &RefCell<Option<CertificateEntry>> {
        match kind {
            CertificateKind::Client => &self.client,
            CertificateKind::Serving => &self.serving,
        }
    }
}
