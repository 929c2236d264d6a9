//! What a registry answers to a fetch.
#![no_main]

#[path = "../checks/registry_answers.rs"]
mod registry_answers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| registry_answers::check(data));
