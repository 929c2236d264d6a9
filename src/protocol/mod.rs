//! Protocols without I/O: protobuf, HPACK, HTTP, gRPC and SPDY framing, D-Bus, certificates, signatures, gzip,
//! WebSocket. Pure.

pub mod dbus;
pub mod der;
pub(crate) mod ed25519;
pub mod grpc;
pub(crate) mod gzip;
pub mod hpack;
pub mod http1;
pub mod http2;
pub mod pem;
pub mod protobuf;
pub(crate) mod sha256;
pub mod spdy;
pub(crate) mod websocket;
pub mod x509;
