//! Messages out of a stream of bytes, and the headers of gRPC.
#![no_main]

#[path = "../checks/grpc_framing.rs"]
mod grpc_framing;

libfuzzer_sys::fuzz_target!(|data: &[u8]| grpc_framing::check(data));
