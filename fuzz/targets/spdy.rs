//! What a runtime's streaming server sends: the same events however the bytes are cut, and nothing is asked to be kept.
#![no_main]

#[path = "../checks/spdy.rs"]
mod spdy;

libfuzzer_sys::fuzz_target!(|data: &[u8]| spdy::check(data));
