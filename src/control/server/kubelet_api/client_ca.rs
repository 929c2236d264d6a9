//! The CA bundle for client certificates (`authentication.x509.clientCAFile`), reloaded when it changes.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{DistinguishedName, OtherError, RootCertStore};
use webpki::{EndEntityCert, KeyUsage};

use super::error::{AuthoritiesError, CertificateError};
use super::user::User;
use crate::platform::host::file_watch::FileWatch;
use crate::platform::host::time_mark::TimeMark;
use crate::platform::host::{clock, file};
use crate::platform::net::latest_known_time;
use crate::platform::rpc::Signal;
use crate::platform::rt;
use crate::protocol::pem;
use crate::protocol::x509::Certificate;
use crate::types::error::ErrorChain;

/// Longest CA bundle.
const MAX_CLIENT_CA_BYTES: u64 = 1 << 20;
/// Reload period, in case the kernel cannot report changes.
const CLIENT_CA_RELOAD_INTERVAL: Duration = Duration::from_secs(600);

/// The current CA certificates.
#[derive(Debug)]
pub(super) struct Authorities {
    /// The latest time that this node has seen.
    pub(super) latest: TimeMark,
    loaded: RefCell<Option<LoadedCa>>,
    /// Number of changes so far.
    generation: Cell<u64>,
    /// Notified on each reload.
    pub(super) looked: Signal,
}

#[derive(Debug)]
struct LoadedCa {
    roots: RootCertStore,
    /// The latest time known to be past, as a Unix time in seconds.
    floor: u64,
    /// When the last of them expires. A later time cannot be right.
    until: u64,
}

/// The result of verifying a client. Valid until the CA bundle changes or the certificate expires.
#[derive(Clone, Debug)]
pub(super) struct Verified {
    generation: u64,
    until: i64,
    /// The error if the certificate is not valid.
    pub(super) user: Result<User, CertificateError>,
}

impl Verified {
    pub(super) fn holds(&self, authorities: &Authorities) -> bool {
        self.generation == authorities.generation.get() && clock::now().unix_seconds() <= self.until
    }
}

impl Authorities {
    pub(super) fn new(latest: TimeMark) -> Self {
        Self { latest, loaded: RefCell::default(), generation: Cell::default(), looked: Signal::default() }
    }

    /// Loads the CA bundle, and reloads it when it changes. Calls `changed` each time. An unreadable file changes
    /// nothing.
    pub(super) async fn follow(&self, path: &Path, mut changed: impl FnMut(Option<Vec<DistinguishedName>>)) {
        let mut logged = String::new();
        loop {
            let watch = FileWatch::new(&[path.to_owned()]);
            let file = path.to_owned();
            match rt::blocking(move || read(&file)).await {
                Ok(authorities) => {
                    logged.clear();
                    let hints = authorities.roots.subjects();
                    self.loaded.replace(Some(authorities));
                    self.generation.set(self.generation.get() + 1);
                    changed(Some(hints));
                }
                Err(error) => {
                    let fault = ErrorChain(&error).to_string();
                    if fault != logged {
                        log!(warn, "failed to load the client CA bundle", clientCAFile = fault);
                        logged = fault;
                    }
                }
            }
            self.looked.notify();
            match &watch {
                Ok(watch) if watch.changed().await.is_ok() => {}
                _ => rt::sleep(CLIENT_CA_RELOAD_INTERVAL).await,
            }
        }
    }

    /// The user of the client's certificate chain. The TLS handshake has proved that the client has the key of the
    /// first certificate.
    pub(super) fn verify(&self, chain: &[CertificateDer<'static>]) -> Verified {
        let (user, until) = match self.user(chain) {
            Ok((user, until)) => (Ok(user), until),
            // The result may change with time or a clock adjustment: not cached.
            Err(error) => (Err(error), i64::MIN),
        };
        Verified { generation: self.generation.get(), until, user }
    }

    fn user(&self, chain: &[CertificateDer<'static>]) -> Result<(User, i64), CertificateError> {
        let authorities = self.loaded.borrow();
        let authorities = authorities.as_ref().ok_or(CertificateError::NoAuthorities)?;
        let (first, between) = chain.split_first().ok_or(CertificateError::NoCertificate)?;
        let clock = u64::try_from(clock::now().unix_seconds()).unwrap_or(0);
        let now = authorities.verification_time(clock, self.latest.get());
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        authorities.verify(first, between, now).map_err(|error| CertificateError::Refused(refusal(error)))?;
        let read = Certificate::read(first).map_err(CertificateError::Malformed)?;
        let user = User::of_certificate(&read, first).ok_or(CertificateError::NoName)?;
        Ok((user, read.not_after))
    }
}

impl LoadedCa {
    /// As rustls's verifier of clients does, without revocation lists, which the configuration of a kubelet does not have.
    fn verify(
        &self,
        client: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), webpki::Error> {
        let algorithms = ring::default_provider().signature_verification_algorithms.all;
        let client = EndEntityCert::try_from(client)?;
        let usage = KeyUsage::client_auth();
        client.verify_for_usage(algorithms, &self.roots.roots, between, now, usage, None, None)?;
        Ok(())
    }

    /// The time at which to verify a client. No leniency if the clock is behind, unlike for servers that this node
    /// connects to: a client with an expired certificate, or one that is not valid yet, waits until the clock is right.
    fn verification_time(&self, clock: u64, latest: u64) -> u64 {
        let latest = if latest > self.until { 0 } else { latest };
        clock.max(self.floor).max(latest)
    }
}

/// Blocking.
fn read(path: &Path) -> Result<LoadedCa, AuthoritiesError> {
    let of_file = |source| AuthoritiesError { path: path.to_owned(), source };
    let text = file::read_all(path, MAX_CLIENT_CA_BYTES).map_err(|error| of_file(error.into()))?;
    let list = pem::certificates(&text).map_err(|error| of_file(error.into()))?;
    let floor = latest_known_time(list.iter());
    let ends = list.iter().filter_map(|der| u64::try_from(Certificate::read(der).ok()?.not_after).ok());
    let until = ends.max().unwrap_or(u64::MAX);
    let mut roots = RootCertStore::empty();
    for certificate in list {
        roots.add(certificate).map_err(|error| of_file(error.into()))?;
    }
    Ok(LoadedCa { roots, floor, until })
}

/// In rustls's words.
fn refusal(error: webpki::Error) -> rustls::Error {
    use rustls::CertificateError;
    rustls::Error::InvalidCertificate(match error {
        webpki::Error::CertExpired { time, not_after } => CertificateError::ExpiredContext { time, not_after },
        webpki::Error::CertNotValidYet { time, not_before } => {
            CertificateError::NotValidYetContext { time, not_before }
        }
        webpki::Error::InvalidSignatureForPublicKey => CertificateError::BadSignature,
        webpki::Error::UnknownIssuer => CertificateError::UnknownIssuer,
        other => CertificateError::Other(OtherError(Arc::new(other))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_is_one_of_a_client_of_this_authority_now() {
        let key = || rcgen::KeyPair::generate().unwrap();
        let authority = |name: &str| {
            let mut made = rcgen::CertificateParams::default();
            made.distinguished_name.push(rcgen::DnType::CommonName, name);
            made.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            let key = key();
            (made.self_signed(&key).unwrap(), rcgen::Issuer::new(made, key))
        };
        let ((own, issuer), (_, stranger)) = (authority("own"), authority("other"));
        let mut roots = RootCertStore::empty();
        roots.add(own.der().clone()).unwrap();
        let loaded = LoadedCa { roots, floor: 0, until: u64::MAX };
        let verify = |issuer: &rcgen::Issuer<'_, rcgen::KeyPair>, usage, time| {
            let mut made = rcgen::CertificateParams::default();
            made.extended_key_usages = vec![usage];
            (made.not_before, made.not_after) = (rcgen::date_time_ymd(2026, 1, 1), rcgen::date_time_ymd(2027, 1, 1));
            let client = made.signed_by(&key(), issuer).unwrap();
            let now = UnixTime::since_unix_epoch(Duration::from_secs(time));
            loaded.verify(client.der(), &[], now).map_err(|error| refusal(error).to_string())
        };
        let (client, server) = (rcgen::ExtendedKeyUsagePurpose::ClientAuth, rcgen::ExtendedKeyUsagePurpose::ServerAuth);
        let now = 1_780_000_000;
        assert_eq!(verify(&issuer, client.clone(), now), Ok(()));
        assert!(verify(&issuer, server, now).is_err(), "a server's");
        for (issuer, time, expected) in [
            (&stranger, now, "UnknownIssuer"),
            (&issuer, 1_900_000_000, "certificate expired"),
            (&issuer, 1_700_000_000, "certificate not valid yet"),
        ] {
            let error = verify(issuer, client.clone(), time).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn client_is_verified_at_the_latest_time_known() {
        let loaded = read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/certificates/ca.crt"))).unwrap();
        let (floor, until) = (loaded.floor, loaded.until);
        assert!(until > floor);
        assert_eq!(loaded.verification_time(floor + 100, 0), floor + 100);
        // The clock is behind.
        assert_eq!(loaded.verification_time(0, 0), floor);
        assert_eq!(loaded.verification_time(floor, floor + 50), floor + 50);
        // A mark from a time when the clock was ahead locks out no client.
        assert_eq!(loaded.verification_time(floor + 100, until + 1), floor + 100);
    }
}
