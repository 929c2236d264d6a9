//! TLS of the kubelet API server: presents the newest certificate. Client certificates are optional.
//!
//! Client certificates are checked on each request, not in the handshake: as upstream does, a client with an invalid
//! certificate gets an HTTP error, and may authenticate with a token instead.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ServerConfig};
use rustls::version::{TLS12, TLS13};
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme, SupportedCipherSuite};

use crate::kubelet::certificates::ServingCertificateCell;
use crate::platform::config::TlsSettings;
use crate::platform::net::HostClock;

/// `hints` are the names of the accepted CAs; `None`: no client certificate is requested.
pub(in crate::control::server) fn server_config(
    settings: &TlsSettings,
    cell: &ServingCertificateCell,
    hints: Option<Vec<DistinguishedName>>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(provider(settings));
    let versions = if settings.only_1_3 { &[&TLS13][..] } else { &[&TLS13, &TLS12] };
    let builder = ServerConfig::builder_with_details(Arc::clone(&provider), Arc::new(HostClock));
    let builder = builder.with_protocol_versions(versions)?;
    let builder = match hints {
        Some(hints) => builder.with_client_cert_verifier(Arc::new(AnyClient { provider, hints })),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::new(cell.clone()));
    // Every client of a kubelet speaks HTTP/1.1. HTTP/2 costs memory for each connection before the client is known,
    // and brings attacks of its own.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Clients keep their connections, so session resumption is not worth its memory.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// The supported part of the configured suites and curves. The configuration has warned of other suites.
fn provider(settings: &TlsSettings) -> CryptoProvider {
    let mut provider = ring::default_provider();
    let is_1_3 = |suite: &SupportedCipherSuite| suite.tls13().is_some();
    if !settings.cipher_suites.is_empty() {
        let wanted = |name: &str| settings.cipher_suites.iter().any(|wanted| is_same(wanted, name));
        provider.cipher_suites.retain(|suite| is_1_3(suite) || wanted(&name_of(suite)));
    }
    if !settings.curves.is_empty() {
        let supported_groups = provider.kx_groups.clone();
        provider.kx_groups.retain(|group| settings.curves.contains(&u16::from(group.name())));
        if provider.kx_groups.is_empty() {
            log!(warn, "no supported curve configured, using all supported ones", tlsCurvePreferences = "");
            provider.kx_groups = supported_groups;
        }
    }
    provider
}

/// The IANA name, which upstream's setting uses.
fn name_of(suite: &SupportedCipherSuite) -> String {
    format!("{:?}", suite.suite()).replace("TLS13_", "TLS_")
}

/// Go has two names without the hash.
fn is_same(wanted: &str, name: &str) -> bool {
    wanted == name || (wanted.ends_with("_CHACHA20_POLY1305") && name.strip_suffix("_SHA256") == Some(wanted))
}

/// Requires that the client has the key of its certificate. The certificate itself is verified later.
#[derive(Debug)]
struct AnyClient {
    provider: Arc<CryptoProvider>,
    hints: Vec<DistinguishedName>,
}

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _client: &CertificateDer<'_>,
        _between: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::config::CipherSuite;

    fn suites(names: &[&str]) -> Vec<String> {
        let cipher_suites = names.iter().map(|&name| name.to_owned()).collect();
        let provider = provider(&TlsSettings { cipher_suites, ..TlsSettings::default() });
        provider.cipher_suites.iter().map(name_of).collect()
    }

    #[test]
    fn only_the_configured_tls_1_2_suites_are_offered() {
        let all = suites(&[]);
        let of_1_3 = ["TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"];
        assert_eq!((all.len(), &all[..3]), (9, &of_1_3.map(str::to_owned)[..]));
        let some = suites(&["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305"]);
        assert_eq!(
            &some[3..],
            ["TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",]
        );
        assert_eq!(suites(&["TLS_RSA_WITH_AES_128_CBC_SHA"]), of_1_3);
    }

    #[test]
    fn configuration_knows_the_supported_suites() {
        for suite in ring::default_provider().cipher_suites {
            let expected = if suite.tls13().is_some() { CipherSuite::Tls13 } else { CipherSuite::Tls12 };
            assert_eq!(CipherSuite::of(&name_of(&suite)), Some(expected), "{suite:?}");
        }
    }

    #[test]
    fn only_the_configured_curves_are_offered_if_any_is_known() {
        let curves = |curves: &[u16]| {
            let provider = provider(&TlsSettings { curves: curves.to_vec(), ..TlsSettings::default() });
            provider.kx_groups.iter().map(|group| u16::from(group.name())).collect::<Vec<_>>()
        };
        assert_eq!(curves(&[23, 25]), [23]);
        assert_eq!(curves(&[25]), curves(&[]));
    }
}
