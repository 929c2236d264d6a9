//! The certificate under which the node's own server is reached: kept as files, asked of the cluster, or made here.
//!
//! What there is, is shown at once to whoever connects, also when it seems to have expired: a clock may be wrong, and the
//! client alone decides. Before there is any, handshakes fail and nothing else does.

mod cluster;
mod files;
mod names;
mod self_signed;
mod validity;

use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use async_channel::Sender;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::certificate_status::{CertificateEntry, CertificateStatuses, Which};
use super::events::Teller;
use super::pair::Pair;
use super::rotation::Standing;
use crate::kubelet::node::StatusInputs;
use crate::platform::apiserver::Client;
use crate::state::pods::SyncEvent;

/// What is shown to clients; clones show the same.
#[derive(Clone, Default)]
pub(crate) struct ServingCertificateCell(Arc<Mutex<Option<Arc<CertifiedKey>>>>);

impl ServingCertificateCell {
    fn show(&self, pair: &Pair) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(pair.certified_key());
    }

    fn certified_key(&self) -> Option<Arc<CertifiedKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Somebody can be let in.
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

/// What it takes to keep a serving certificate.
#[derive(Debug)]
pub(crate) struct ServingCertificate {
    pub(crate) node_name: String,
    pub(crate) source: ServingSource,
    pub(crate) shown: ServingCertificateCell,
    pub(crate) book: Rc<CertificateStatuses>,
    pub(crate) inbox: Sender<SyncEvent>,
}

#[derive(Debug)]
pub(crate) enum ServingSource {
    /// Somebody else keeps them.
    Files { certificate: PathBuf, key: PathBuf },
    /// The cluster signs one for the addresses that the node has in its object; kept in this directory.
    Cluster { client: Client, news: Rc<StatusInputs>, directory: PathBuf },
    /// Made here, and kept in this directory.
    OwnMaking { directory: PathBuf },
}

/// Runs for ever. Whatever fails is told, and tried again.
pub(crate) async fn run(settings: ServingCertificate) {
    let ServingCertificate { node_name, source, shown, book, inbox } = settings;
    let teller = Teller::new(Which::Serving, book, inbox);
    match source {
        ServingSource::Files { certificate, key } => files::run([certificate, key], &shown, &teller).await,
        ServingSource::Cluster { client, news, directory } => {
            cluster::run(&node_name, client, &news, directory, &shown, teller).await;
        }
        ServingSource::OwnMaking { directory } => self_signed::run(&node_name, &directory, &shown, &teller).await,
    }
}

/// What is known of a pair that nobody asks for before its end.
fn entry(pair: &Pair, clock: i64) -> CertificateEntry {
    let not_after = pair.leaf.not_after;
    let standing = if clock > not_after { Standing::Expired } else { Standing::Good { until: not_after } };
    CertificateEntry { not_after: Some(not_after), standing: Some(standing), ..CertificateEntry::default() }
}
