//! Bytes in, bytes out: protobuf, HPACK, HTTP and gRPC framing. Pure.

pub mod grpc;
pub mod hpack;
pub mod http1;
pub mod http2;
pub mod protobuf;
