//! State of the node's certificates, for metrics and the status command.

use std::cell::RefCell;

use super::rotation::{RenewalState, Seconds};

/// One entry for each certificate that the kubelet manages.
#[derive(Debug, Default)]
pub(crate) struct CertificateStatuses {
    client: RefCell<Option<CertificateEntry>>,
    serving: RefCell<Option<CertificateEntry>>,
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
            .map(|which| Some((which, self.cell(which).borrow().clone()?)));
        entries.into_iter().flatten()
    }

    pub(super) fn entry(&self, kind: CertificateKind) -> CertificateEntry {
        self.cell(kind).borrow().clone().unwrap_or_default()
    }

    /// Keeps the failure count, which only `failed` changes.
    pub(crate) fn note(&self, kind: CertificateKind, entry: CertificateEntry) {
        let mut cell = self.cell(kind).borrow_mut();
        let failures = cell.as_ref().map_or(0, |before| before.failures);
        *cell = Some(CertificateEntry { failures, ..entry });
    }

    pub(crate) fn failed(&self, kind: CertificateKind, fault: String) {
        let mut cell = self.cell(kind).borrow_mut();
        let entry = cell.get_or_insert_default();
        entry.fault = Some(fault);
        entry.failures = entry.failures.saturating_add(1);
    }

    fn cell(&self, kind: CertificateKind) -> &RefCell<Option<CertificateEntry>> {
        match kind {
            CertificateKind::Client => &self.client,
            CertificateKind::Serving => &self.serving,
        }
    }
}
