//! Several header blocks for one decoder: encoded and decoded again, the headers are the same.
#![no_main]

#[path = "../checks/hpack.rs"]
mod hpack;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hpack::check(data));
