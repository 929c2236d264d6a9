//! Verifies a server's certificate, even if the clock is behind.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::platform::host::clock;
use crate::protocol::x509::Certificate;

/// rustls verifies chain, name and dates; this type only corrects the current time. It does not use rustls's own verifier,
/// which reads revocation lists: those that nobody gives it are 20 KB of code.
#[derive(Debug)]
pub(crate) struct Verifier {
    roots: RootCertStore,
    algorithms: WebPkiSupportedAlgorithms,
    /// The latest time known to be past, in Unix seconds.
    floor: u64,
    /// When the last of the authorities expires. A later time cannot be right.
    until: u64,
}

impl Verifier {
    /// `own_chain` is the client's certificate chain, which was issued in the past as well.
    pub(crate) fn new(
        authorities: &[CertificateDer<'static>],
        own_chain: &[CertificateDer<'static>],
        provider: &CryptoProvider,
    ) -> Result<Arc<Self>, rustls::Error> {
        let mut roots = RootCertStore::empty();
        for certificate in authorities {
            roots.add(certificate.clone())?;
        }
        if roots.is_empty() {
            return Err(rustls::Error::General("no certificate authority was given".to_owned()));
        }
        let algorithms = provider.signature_verification_algorithms;
        let floor = latest_known_time(authorities.iter().chain(own_chain));
        let until =
            authorities.iter().filter_map(|authority| u64::try_from(Certificate::read(authority).ok()?.not_after).ok());
        Ok(Arc::new(Self { roots, algorithms, floor, until: until.max().unwrap_or(0) }))
    }
}

/// A verifier that trusts these CAs only.
pub(crate) fn trusting(authorities: &[CertificateDer<'static>]) -> Result<Arc<dyn ServerCertVerifier>, rustls::Error> {
    let verifier = Verifier::new(authorities, &[], &rustls::crypto::ring::default_provider())?;
    Ok(verifier)
}

/// The latest time known to be past: when any of these certificates was issued or this program was built.
pub(crate) fn latest_known_time<'a>(certificates: impl Iterator<Item = &'a CertificateDer<'static>>) -> u64 {
    let built = clock::built().and_then(|second| u64::try_from(second).ok());
    certificates.filter_map(|certificate| made(certificate)).chain(built).max().unwrap_or(0)
}

/// When a certificate was issued.
fn made(certificate: &CertificateDer<'_>) -> Option<u64> {
    u64::try_from(Certificate::read(certificate).ok()?.not_before).ok()
}

/// The time at which to verify certificates. If the clock is certainly behind, it cannot tell that a certificate is not
/// valid yet: then this is the latest of the issue time of the newest one shown, `floor`, and `latest`, which this node
/// has seen. Expiry before these still counts.
///
/// `latest` counts only then, unlike for clients: from a clock that was ahead, it would cut the node off for good.
fn verification_time(clock: u64, floor: u64, latest: u64, certificate_time: Option<u64>) -> u64 {
    if clock < floor { floor.max(latest).max(certificate_time.unwrap_or(0)) } else { clock }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        server: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let latest = Some(clock::latest()).filter(|latest| *latest <= self.until).unwrap_or(0);
        let shown = between.iter().chain([server]).filter_map(|certificate| made(certificate)).max();
        let now = verification_time(now.as_secs(), self.floor, latest, shown);
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        let server = ParsedCertificate::try_from(server)?;
        verify_server_cert_signed_by_trust_anchor(&server, &self.roots, between, now, self.algorithms.all)?;
        verify_server_name(&server, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rustls::crypto::ring::default_provider;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    /// Valid from 1970 to 2049.
    const AUTHORITY: &[u8] = include_bytes!("../../../tests/data/certificates/ca.crt");
    /// For board-1, issued on 2026-01-02.
    const SERVER: &[u8] = include_bytes!("../../../tests/data/certificates/leaf.crt");
    const MADE: u64 = 1_767_323_045;

    #[track_caller]
    fn check(own: &[CertificateDer<'static>], name: &'static str, clock: u64, is_believed: bool) {
        let [authority, server] = [AUTHORITY, SERVER].map(|pem| CertificateDer::from_pem_slice(pem).unwrap());
        let floor = own.iter().chain([&authority]).filter_map(|certificate| made(certificate)).max().unwrap();
        let verifier = Verifier::new(&[authority], own, &default_provider()).unwrap();
        // The build date, if set, would be later.
        let verifier = Verifier { floor, ..Arc::into_inner(verifier).unwrap() };
        let name = ServerName::try_from(name).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(clock));
        let verified = verifier.verify_server_cert(&server, &[], &name, &[], now);
        assert_eq!(verified.is_ok(), is_believed, "{clock}: {verified:?}");
    }

    #[test]
    fn clock_behind_does_not_prevent_connecting() {
        check(&[], "board-1", 0, true);
        check(&[], "board-1", MADE, true);
        let own = [CertificateDer::from_pem_slice(SERVER).unwrap()];
        check(&own, "board-1", MADE - 1, true);
    }

    #[test]
    fn names_and_known_dates_are_verified() {
        check(&[], "board-2", 0, false);
        check(&[], "board-2", MADE, false);
        // After every time that is known to be past.
        check(&[], "board-1", MADE - 1, false);
    }

    #[test]
    fn certificate_of_another_authority_is_refused() {
        let server = CertificateDer::from_pem_slice(SERVER).unwrap();
        let name = ServerName::try_from("board-1").unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(MADE));
        let verifier = Verifier::new(std::slice::from_ref(&server), &[], &default_provider()).unwrap();
        let refused = verifier.verify_server_cert(&server, &[], &name, &[], now).unwrap_err();
        assert!(refused.to_string().contains("UnknownIssuer"), "{refused}");
        assert!(Verifier::new(&[], &[], &default_provider()).is_err());
    }

    #[test]
    fn clock_counts_unless_it_is_behind() {
        for (clock, floor, latest, shown, expected) in [
            (7, 5, 0, Some(9), 7),
            (5, 5, 0, Some(9), 5),
            (4, 5, 0, Some(9), 9),
            (4, 5, 0, Some(3), 5),
            (0, 5, 0, None, 5),
            (0, 0, 0, None, 0),
            // The node has seen a later time before its reboot.
            (4, 5, 8, Some(6), 8),
            (4, 5, 8, Some(9), 9),
            (6, 5, 8, Some(6), 6),
        ] {
            assert_eq!(verification_time(clock, floor, latest, shown), expected);
        }
    }
}
