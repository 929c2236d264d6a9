//! The TLS configuration for the API server: trust and client certificate.

use std::sync::Arc;

use rustls::client::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::platform::net::{AnyCertificate, HostClock, Verifier};

/// The servers to trust.
pub(super) enum Trust {
    Authorities(Vec<CertificateDer<'static>>),
    Anybody,
}

/// The ALPN protocol (RFC 7301).
pub(super) const PROTOCOL: &[u8] = b"h2";

/// `identity` is the client certificate chain with its key, if any.
pub(super) fn client_config(
    trust: Trust,
    identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_details(Arc::clone(&provider), Arc::new(HostClock));
    let builder = builder.with_safe_default_protocol_versions()?.dangerous();
    let builder = match trust {
        Trust::Anybody => builder.with_custom_certificate_verifier(Arc::new(AnyCertificate)),
        Trust::Authorities(list) => {
            let own_chain = identity.as_ref().map_or(&[][..], |(chain, _)| chain);
            builder.with_custom_certificate_verifier(Verifier::new(&list, own_chain, &provider)?)
        }
    };
    let mut config = match identity {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key)?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(config)
}
