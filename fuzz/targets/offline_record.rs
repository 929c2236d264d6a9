//! The journal of the offline store.
#![no_main]

#[path = "../checks/offline_record.rs"]
mod offline_record;

libfuzzer_sys::fuzz_target!(|data: &[u8]| offline_record::check(data));
