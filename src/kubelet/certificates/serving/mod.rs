//! The certificate of the kubelet's own server: from files, signed by the cluster, or self-signed.
//!
//! The server shows any certificate it has, even one that seems expired: the clock may be wrong, and the client
//! decides. Without a certificate, TLS handshakes fail and nothing else does.

mod cluster;
mod files;
mod names;
mod self_signed;
mod validity;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use async_channel::Sender;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::certificate_status::{CertificateEntry, CertificateKind, CertificateStatuses};
use super::events::CertificateEvents;
use super::pair::Pair;
use super::rotation::RenewalState;
use crate::kubelet::node::StatusInputs;
use crate::platform::apiserver::Client;
use crate::state::pods::SyncEvent;

/// The certificate shown to clients; clones share it. Behind a mutex because rustls wants its resolvers to be `Sync`.
#[derive(Clone, Default)]
pub(crate) struct ServingCertificateCell(Arc<Mutex<Option<Arc<CertifiedKey>>>>);

impl ServingCertificateCell {
    fn show(&self, pair: &Pair) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(pair.certified_key());
    }

    fn certified_key(&self) -> Option<Arc<CertifiedKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether there is a certificate, so that handshakes can succeed.
    pub(crate) fn is_there(&self) -> bool {
        self.certified_key().is_some()
    }
}

impl ResolvesServerCert for ServingCertificateCell {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.certified_key()
    }
}

impl fmt::Debug for ServingCertificateCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServingCertificateCell")
    }
}

#[derive(Debug)]
pub(crate) struct ServingCertificate {
    pub(crate) node_name: String,
    pub(crate) source: ServingSource,
    pub(crate) cell: ServingCertificateCell,
    pub(crate) statuses: Rc<CertificateStatuses>,
    pub(crate) inbox: Sender<SyncEvent>,
}

#[derive(Debug)]
pub(crate) enum ServingSource {
    /// Managed elsewhere.
    Files { certificate: PathBuf, key: PathBuf },
    /// Signed by the cluster for the addresses in the node's object; stored in this directory.
    /// `dns_only`: even if the object has no IP address.
    Cluster { client: Client, status_inputs: Rc<StatusInputs>, directory: PathBuf, dns_only: bool },
    /// Self-signed, stored in this directory.
    SelfSigned { directory: PathBuf },
}

/// Never returns. Failures are reported and retried.
pub(crate) async fn run(settings: ServingCertificate) {
    let ServingCertificate { node_name, source, cell: shown, statuses, inbox } = settings;
    let events = CertificateEvents::new(CertificateKind::Serving, statuses, inbox);
    match source {
        ServingSource::Files { certificate, key } => files::run([certificate, key], &shown, &events).await,
        ServingSource::Cluster { client, status_inputs, directory, dns_only } => {
            let names = || names::of_addresses(&node_name, &status_inputs.addresses(), dns_only);
            cluster::run(names, client, &status_inputs, directory, &shown, events).await;
        }
        ServingSource::SelfSigned { directory } => self_signed::run(&node_name, &directory, &shown, &events).await,
    }
}

/// Shows a self-signed certificate of the API endpoint, stored in these files. Clients name it as their CA, so it is
/// valid for ten years: few of them read it again while they run. Never returns.
pub(crate) async fn run_for_endpoint(
    node_name: &str,
    address: IpAddr,
    files: [PathBuf; 2],
    cell: ServingCertificateCell,
) {
    let mut names = self_signed::names_of(node_name);
    names.dns_names.push("localhost".to_owned());
    names.ip_addresses.extend([IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]);
    if !address.is_unspecified() && !names.ip_addresses.contains(&address) {
        names.ip_addresses.push(address);
    }
    let wanted = self_signed::Wanted { names, years: 10 };
    let note = |entry: CertificateEntry| {
        if let Some(fault) = entry.fault {
            log!(error, "failed to keep certificate of API endpoint", error = fault);
        }
    };
    self_signed::keep(&wanted, &files, &cell, &note).await;
}

/// The entry for a pair that is not renewed before its end.
fn entry(pair: &Pair, clock: i64) -> CertificateEntry {
    let not_after = pair.leaf.not_after;
    let standing = if clock > not_after { RenewalState::Expired } else { RenewalState::Good { until: not_after } };
    CertificateEntry { not_after: Some(not_after), standing: Some(standing), ..CertificateEntry::default() }
}
