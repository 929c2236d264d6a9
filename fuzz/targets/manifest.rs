//! Manifests, YAML and JSON, as an agent reads them.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &[u8]| coracle::pod_sources::static_pod::check_manifest(text));
