//! Archives of images, which somebody has put on the board.
#![no_main]

#[path = "../checks/archive.rs"]
mod archive;

libfuzzer_sys::fuzz_target!(|data: &[u8]| archive::check(data));
