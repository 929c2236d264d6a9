//! Certificates from servers and files.

use coracle::protocol::x509::Certificate;

/// Parsed fields must not be larger than the input.
pub(crate) fn check(data: &[u8]) {
    let Ok(certificate) = Certificate::read(data) else { return };
    assert!(certificate.public_key.len() < data.len());
    assert!(certificate.dns_names.len() + certificate.ip_addresses.len() < data.len());
}
