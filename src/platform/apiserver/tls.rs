//! TLS to the API server: whom it believes, and as whom this side speaks.

use std::sync::Arc;

use rustls::client::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::verifier::Verifier;
use crate::platform::net::{AnyCertificate, HostClock};

/// Who may be on the other side.
pub(super) enum Trust {
    Authorities(Vec<CertificateDer<'static>>),
    Anybody,
}

/// The one that is spoken (RFC 7301).
pub(super) const PROTOCOL: &[u8] = b"h2";

/// With the certificate and key that this side shows, if any.
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
            let own = identity.as_ref().map_or(&[][..], |(chain, _)| chain);
            builder.with_custom_certificate_verifier(Verifier::new(&list, own, provider)?)
        }
    };
    let mut config = match identity {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key)?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(config)
}
