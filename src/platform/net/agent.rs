//! HTTP/1 by ureq, over connections of this crate. Blocks.
//!
//! ureq has no verifier of certificates that tolerates a wrong clock, and sends plain HTTP through a proxy with CONNECT,
//! which most proxies refuse.

use std::io::{ErrorKind, Read};
use std::net::ToSocketAddrs;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::ClientConfig;
use rustls::pki_types::ServerName;
use ureq::config::Config;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{ConnectionDetails, Connector, NextTimeout};
use ureq::{Agent, http};

use super::error::BodyError;
use super::http_connection::{Connection, Deadline, HTTP_BUFFER_BYTES, Limit, Target, broken};
use super::{GetError, ProxySettings, Url};
use crate::types::api::UriScheme;

/// How a client of several requests connects.
#[derive(Clone, Debug)]
pub(crate) struct Connect {
    pub(crate) tls: Arc<ClientConfig>,
    pub(crate) proxies: Arc<ProxySettings>,
    /// Ends requests early.
    pub(crate) cancelled: Arc<AtomicBool>,
    /// For the request under way, if each has one.
    pub(crate) deadline: Option<Arc<Deadline>>,
}

impl Connect {
    /// A client that keeps one idle connection. A peer may be silent for a minute.
    pub(crate) fn agent(self) -> Agent {
        Agent::with_parts(config(concat!("coracle/", env!("CARGO_PKG_VERSION")), 1), self, NoResolver)
    }

    fn connect_to(&self, url: &Url) -> Result<Connection, GetError> {
        let proxy = self.proxies.proxy_for(url);
        let (host, port) = proxy.map_or((&*url.host, url.port()), |proxy| (&*proxy.host, proxy.port));
        let addresses: Vec<_> = (host, port).to_socket_addrs().map(Iterator::collect).unwrap_or_default();
        let tls = match url.scheme {
            UriScheme::Http => None,
            UriScheme::Https => {
                let name = ServerName::try_from(url.host.clone());
                let name = name.map_err(|_| GetError::Http(format!("invalid server name {:?}", url.host)))?;
                Some((Arc::clone(&self.tls), name))
            }
        };
        let target = Target { url, proxy, tls, trusted: &[] };
        Connection::open(&target, &addresses, Limit::Cancelled(Arc::clone(&self.cancelled), self.deadline.clone()))
    }
}

impl Connector for Connect {
    type Out = Connection;

    fn connect(&self, details: &ConnectionDetails<'_>, _: Option<()>) -> Result<Option<Connection>, ureq::Error> {
        let other = |error| ureq::Error::Other(Box::new(error));
        let url = Url::parse(&details.uri.to_string());
        let url = url.ok_or_else(|| other(GetError::Http(format!("invalid URL {:?}", details.uri))))?;
        self.connect_to(&url).map(Some).map_err(other)
    }
}

/// Sends one request and returns the response's head and at most `limit` bytes of its body.
pub(super) fn exchange(
    connection: Connection,
    request: http::Request<Vec<u8>>,
    limit: usize,
) -> Result<(http::response::Parts, Vec<u8>), GetError> {
    let agent = Agent::with_parts(config("", 0), OneConnection(Mutex::new(Some(connection))), NoResolver);
    let (parts, body) = request.into_parts();
    let response = if body.is_empty() {
        agent.run(http::Request::from_parts(parts, ()))
    } else {
        agent.run(http::Request::from_parts(parts, body))
    };
    let (head, body) = response.map_err(no_response)?.into_parts();
    let mut kept = Vec::new();
    let limit = u64::try_from(limit).unwrap_or(u64::MAX);
    body.into_reader().take(limit).read_to_end(&mut kept).map_err(|error| GetError::Body(body_error(error)))?;
    Ok((head, kept))
}

fn config(user_agent: &'static str, idle_connections: usize) -> Config {
    Agent::config_builder()
        .proxy(None)
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .max_response_header_size(HTTP_BUFFER_BYTES)
        .max_idle_connections(idle_connections)
        .max_idle_connections_per_host(idle_connections)
        .user_agent(user_agent)
        .accept("")
        .accept_encoding("")
        .build()
}

fn no_response(error: ureq::Error) -> GetError {
    match error {
        ureq::Error::Io(error) => broken(error),
        error => GetError::Http(error.to_string()),
    }
}

fn body_error(error: std::io::Error) -> BodyError {
    match error.kind() {
        ErrorKind::TimedOut => BodyError::Timeout,
        ErrorKind::UnexpectedEof => BodyError::Cut,
        _ => BodyError::Io(error),
    }
}

/// Hands out a connection that was made before.
#[derive(Debug)]
struct OneConnection(Mutex<Option<Connection>>);

impl Connector for OneConnection {
    type Out = Connection;

    fn connect(&self, _: &ConnectionDetails<'_>, _: Option<()>) -> Result<Option<Connection>, ureq::Error> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).take())
    }
}

/// The connectors have the addresses.
#[derive(Debug)]
struct NoResolver;

impl Resolver for NoResolver {
    fn resolve(&self, _: &http::Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        Ok(self.empty())
    }
}
