//! Out to pods and hosts: TCP connections by address or name, and HTTP GET over them, with TLS or without. And TLS on
//! connections of other sorts.
//!
//! Errors read as those of the upstream kubelet do: users know them from events, and search for them.

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
