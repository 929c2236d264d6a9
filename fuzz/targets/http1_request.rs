//! The requests that the doors hear.
#![no_main]

#[path = "../checks/http1_request.rs"]
mod http1_request;

libfuzzer_sys::fuzz_target!(|data: &[u8]| http1_request::check(data));
