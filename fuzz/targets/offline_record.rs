//! The journal that a node reads when it starts without its cluster.
#![no_main]

#[path = "../checks/offline_record.rs"]
mod offline_record;

libfuzzer_sys::fuzz_target!(|data: &[u8]| offline_record::check(data));
