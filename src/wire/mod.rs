//! Bytes in, bytes out: protobuf, HPACK, HTTP and gRPC framing, D-Bus. Pure.

pub mod dbus;
pub mod grpc;
pub mod hpack;
pub mod http1;
pub mod http2;
pub mod protobuf;
