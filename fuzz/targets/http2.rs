//! What a peer sends, to a client and to a server: the same events however the bytes are cut, and no growth.
#![no_main]

#[path = "../checks/http2.rs"]
mod http2;

libfuzzer_sys::fuzz_target!(|data: &[u8]| http2::check(data));
