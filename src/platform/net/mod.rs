//! Outgoing connections: TCP by address or name, GET requests of probes and hooks, single requests to other servers, and
//! proxies on the way to these. Also TLS over other streams.
//!
//! Errors have the upstream kubelet's texts, which users know from events and search for.

mod agent;
mod dial;
mod environment;
mod error;
mod fetch;
mod get;
mod http_connection;
mod proxies;
mod proxy;
mod proxy_tls;
mod redirect;
mod request;
mod server_stream;
mod stream;
mod stream_error;
mod tls;
mod tls_socket;
mod tunnel;
mod url;
mod verifier;

pub(crate) use agent::Connect;
pub(crate) use dial::Dialer;
pub(crate) use error::{DialError, GetError, ProxyError};
pub(crate) use fetch::{FetchRequest, FetchResponse, FetchTls};
pub(crate) use get::GetResponse;
pub(crate) use http_connection::Deadline;
pub(crate) use proxies::ProxySettings;
pub(crate) use proxy::Proxy;
pub(crate) use proxy_tls::{MAX_AUTHORITIES_BYTES, SYSTEM_AUTHORITIES, with_system};
pub(crate) use request::{Headers, KUBERNETES, Purpose};
pub(crate) use server_stream::ServerStream;
pub(crate) use stream_error::TlsError;
pub(crate) use tls::{AnyCertificate, HostClock, config as tls_config, config_as as tls_config_as};
pub(crate) use tls_socket::TlsSocket;
pub(crate) use url::Url;
pub(crate) use verifier::{Verifier, latest_known_time, trusting};
