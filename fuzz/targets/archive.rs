//! Image archives from users.
#![no_main]

#[path = "../checks/archive.rs"]
mod archive;

libfuzzer_sys::fuzz_target!(|data: &[u8]| archive::check(data));
