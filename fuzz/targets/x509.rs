//! Certificates from a server or a file.
#![no_main]

#[path = "../checks/x509.rs"]
mod x509;

libfuzzer_sys::fuzz_target!(|data: &[u8]| x509::check(data));
