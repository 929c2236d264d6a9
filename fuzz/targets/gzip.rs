//! Answers of the API server and layers, as gzip.
#![no_main]

#[path = "../checks/gzip.rs"]
mod gzip;

libfuzzer_sys::fuzz_target!(|data: &[u8]| gzip::check(data));
