//! HTTP/1 requests to the agent's servers.
#![no_main]

#[path = "../checks/http1_request.rs"]
mod http1_request;

libfuzzer_sys::fuzz_target!(|data: &[u8]| http1_request::check(data));
