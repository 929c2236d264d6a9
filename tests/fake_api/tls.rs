//! The server's TLS: it requests a client certificate and accepts any; authentication happens later.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig, SignatureScheme};

use super::certificates::{Authority, Certified};

#[derive(Debug)]
pub(crate) struct Tls {
    pub config: Arc<ServerConfig>,
    own: Arc<OwnCertificate>,
    clients: Arc<dyn ClientCertVerifier>,
}

impl Tls {
    pub(crate) fn new(authority: &Authority, own: &Certified) -> Self {
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate().clone()).unwrap();
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let clients = clients.build().unwrap();
        let own = Arc::new(OwnCertificate(Mutex::new(certified_key(own))));
        let resolver: Arc<dyn ResolvesServerCert> = Arc::<OwnCertificate>::clone(&own);
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(rustls::ALL_VERSIONS)
            .unwrap()
            .with_client_cert_verifier(Arc::new(AnyClient { provider, known: Arc::clone(&clients) }))
            .with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Self { config: Arc::new(config), own, clients }
    }

    /// Sets the certificate for new connections.
    pub(crate) fn set_certificate(&self, own: &Certified) {
        *self.own.0.lock().unwrap_or_else(PoisonError::into_inner) = certified_key(own);
    }

    /// Whether a client certificate comes from this CA, is meant for clients, and is valid now.
    pub(crate) fn knows(&self, certificate: &CertificateDer<'_>, now: Timestamp) -> bool {
        let Ok(seconds) = u64::try_from(now.as_second()) else { return false };
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        self.clients.verify_client_cert(certificate, &[], now).is_ok()
    }
}

fn certified_key(own: &Certified) -> Arc<CertifiedKey> {
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(own.key.clone()));
    let key = ring::sign::any_supported_type(&key).unwrap();
    Arc::new(CertifiedKey::new(vec![own.certificate.clone()], key))
}

#[derive(Debug)]
struct OwnCertificate(Mutex<Arc<CertifiedKey>>);

impl ResolvesServerCert for OwnCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Verifies that a client holds the key of its certificate. An untrusted certificate causes a 401, not an alert.
#[derive(Debug)]
struct AnyClient {
    provider: Arc<CryptoProvider>,
    known: Arc<dyn ClientCertVerifier>,
}

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.known.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.known.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.known.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
