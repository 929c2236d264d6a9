//! Pods of the API server with extreme fields.
#![no_main]

#[path = "../checks/pod_fields.rs"]
mod pod_fields;

libfuzzer_sys::fuzz_target!(|data: &[u8]| pod_fields::check(data));
