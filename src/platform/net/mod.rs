//! Outgoing connections: TCP by address or name, and HTTP and HTTPS GET requests. Also TLS over other streams.
//!
//! Errors have the upstream kubelet's texts, which users know from events and search for.

mod dial;
mod error;
mod get;
mod request;
mod stream;
mod stream_error;
mod tls;
mod tls_socket;
mod url;

pub(crate) use dial::Dialer;
pub(crate) use error::{DialError, GetError};
pub(crate) use get::Answer;
pub(crate) use request::{Headers, KUBERNETES, Purpose};
pub(crate) use stream_error::TlsError;
pub(crate) use tls::{AnyCertificate, HostClock};
pub(crate) use tls_socket::TlsSocket;
pub(crate) use url::Url;
