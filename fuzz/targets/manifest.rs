//! Manifests, YAML and JSON, as an agent reads them.
#![no_main]

#[path = "../checks/manifest.rs"]
mod manifest;

libfuzzer_sys::fuzz_target!(|data: &[u8]| manifest::check(data));
