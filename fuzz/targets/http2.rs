//! HTTP/2 input to a client or a server: events must not depend on how it is split, and output must stay bounded.
#![no_main]

#[path = "../checks/http2.rs"]
mod http2;

libfuzzer_sys::fuzz_target!(|data: &[u8]| http2::check(data));
