//! The certificates that a server or a disk gives.
#![no_main]

use coracle::wire::x509::Certificate;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check(data));

/// What can be read is a part of what was there.
fn check(data: &[u8]) {
    let Ok(certificate) = Certificate::read(data) else { return };
    assert!(certificate.public_key.len() < data.len());
    assert!(certificate.dns_names.len() + certificate.ip_addresses.len() < data.len());
}
