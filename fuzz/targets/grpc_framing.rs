//! gRPC messages in a stream of bytes, and gRPC headers.
#![no_main]

#[path = "../checks/grpc_framing.rs"]
mod grpc_framing;

libfuzzer_sys::fuzz_target!(|data: &[u8]| grpc_framing::check(data));
