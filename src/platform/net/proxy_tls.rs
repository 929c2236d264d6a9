//! TLS to a proxy. Its certificate may come from a CA of the system or of the server behind it: upstream's client knows
//! only the latter.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::client::ClientConfig;
use rustls::pki_types::{CertificateDer, ServerName};

use super::{Proxy, tls, trusting};
use crate::platform::host::file;
use crate::protocol::pem;

/// The usual path of the system's CA bundle.
pub(crate) const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
pub(crate) const MAX_AUTHORITIES_BYTES: u64 = 4 << 20;

/// The TLS configuration for a proxy whose certificate is from one of `trusted` or a CA of the system. Blocks.
pub(super) fn config(trusted: &[CertificateDer<'static>]) -> io::Result<Arc<ClientConfig>> {
    let verifier = trusting(&with_system(trusted)?).map_err(|error| io::Error::other(error.to_string()))?;
    tls::config(verifier).map_err(|error| io::Error::other(error.to_string()))
}

/// These CAs and those of the system. Reads the system's bundle each time, because it may be replaced. Blocks.
pub(crate) fn with_system(trusted: &[CertificateDer<'static>]) -> io::Result<Vec<CertificateDer<'static>>> {
    let system = match file::read_all(Path::new(SYSTEM_AUTHORITIES), MAX_AUTHORITIES_BYTES) {
        Ok(text) => pem::certificates(&text).unwrap_or_default(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    let mut authorities: Vec<CertificateDer<'static>> = trusted.iter().cloned().chain(system).collect();
    // One that cannot be used must not prevent the use of the others.
    authorities.retain(|authority| RootCertStore::empty().add(authority.clone()).is_ok());
    Ok(authorities)
}

pub(super) fn name(proxy: &Proxy) -> io::Result<ServerName<'static>> {
    ServerName::try_from(proxy.host.clone()).map_err(|_| io::Error::other("not a DNS name or address"))
}
