//! Header blocks, several for one decoder: what is read, written and read again is the same.
#![no_main]

#[path = "../checks/hpack.rs"]
mod hpack;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hpack::check(data));
