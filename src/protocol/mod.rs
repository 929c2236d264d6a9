//! Protocols without I/O: protobuf, HPACK, HTTP, gRPC and SPDY framing, gzip, D-Bus, certificates. Pure.

pub(crate) mod crc32;
pub mod dbus;
pub mod der;
pub mod grpc;
pub mod gzip;
pub mod hpack;
pub mod http1;
pub mod http2;
pub mod pem;
pub mod protobuf;
pub(crate) mod sha256;
pub mod spdy;
pub mod x509;
