//! Output of a runtime's streaming server: the events do not depend on how the bytes are split.
#![no_main]

#[path = "../checks/spdy.rs"]
mod spdy;

libfuzzer_sys::fuzz_target!(|data: &[u8]| spdy::check(data));
