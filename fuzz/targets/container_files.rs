//! Files that containers write and the agent reads.
#![no_main]

#[path = "../checks/container_files.rs"]
mod container_files;

libfuzzer_sys::fuzz_target!(|data: &[u8]| container_files::check(data));
