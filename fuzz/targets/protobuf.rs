//! Responses of a runtime: encoded and decoded again, a message is the same. The first byte selects the message type.
#![no_main]

#[path = "../checks/protobuf.rs"]
mod protobuf;

libfuzzer_sys::fuzz_target!(|data: &[u8]| protobuf::check(data));
