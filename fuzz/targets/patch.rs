//! Patches of layers, which somebody has put on the board.
#![no_main]

#[path = "../checks/patch.rs"]
mod patch;

libfuzzer_sys::fuzz_target!(|data: &[u8]| patch::check(data));
