//! Every answer of a runtime: what is read, written and read again is the same. The first byte chooses the message.
#![no_main]

#[path = "../checks/protobuf.rs"]
mod protobuf;

libfuzzer_sys::fuzz_target!(|data: &[u8]| protobuf::check(data));
