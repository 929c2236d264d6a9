//! The certificates that a server or a disk gives.

use coracle::protocol::x509::Certificate;

/// What can be read is a part of what was there.
pub(crate) fn check(data: &[u8]) {
    let Ok(certificate) = Certificate::read(data) else { return };
    assert!(certificate.public_key.len() < data.len());
    assert!(certificate.dns_names.len() + certificate.ip_addresses.len() < data.len());
}
