//! Errors of connections and GET requests. Pure.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use nix::errno::Errno;

use crate::platform::net::Proxy;
use crate::platform::net::stream_error::TlsError;
use crate::protocol::http1::Malformed;
use crate::types::error::ErrorChain;

/// No connection could be made.
#[derive(Debug)]
pub(crate) enum DialError {
    /// The name has no address, or no name server responds.
    NoSuchHost {
        host: String,
    },
    Connect {
        address: SocketAddr,
        cause: io::Error,
    },
    Timeout {
        address: Option<SocketAddr>,
    },
}

/// No connection through a proxy could be made.
#[derive(Debug)]
pub(crate) struct ProxyError {
    /// Without credentials.
    proxy: String,
    message: String,
}

/// A failed request.
#[derive(Debug)]
pub(crate) enum GetError {
    Dial(DialError),
    Proxy(ProxyError),
    /// A header that cannot be sent.
    Header(String),
    Io {
        from: Option<SocketAddr>,
        to: Option<SocketAddr>,
        call: &'static str,
        cause: io::Error,
    },
    /// The connection ended before the response.
    Closed,
    Malformed(Malformed),
    /// A response that ureq does not accept.
    Http(String),
    Tls(TlsError),
    TooManyRedirects,
    Timeout,
    /// The status has arrived, but the rest has not.
    Body(BodyError),
}

#[derive(Debug)]
pub(crate) enum BodyError {
    Cut,
    Io(io::Error),
    Malformed(Malformed),
    Tls(TlsError),
    Timeout,
}

impl ProxyError {
    pub(super) fn new(proxy: &Proxy, message: &str) -> Self {
        Self { proxy: proxy.to_string(), message: message.to_owned() }
    }

    pub(super) fn io(proxy: &Proxy, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::new(proxy, "closed the connection"),
            _ => Self::new(proxy, &ErrorChain(error).to_string()),
        }
    }
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchHost { host } => write!(f, "dial tcp: lookup {host}: no such host"),
            Self::Connect { address, cause } => write!(f, "dial tcp {address}: connect: {}", Reason(cause)),
            Self::Timeout { address: Some(address) } => write!(f, "dial tcp {address}: i/o timeout"),
            Self::Timeout { address: None } => f.write_str("dial tcp: i/o timeout"),
        }
    }
}

impl fmt::Display for GetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dial(error) => error.fmt(f),
            Self::Proxy(error) => error.fmt(f),
            Self::Header(name) => write!(f, "net/http: invalid header field value for {name:?}"),
            Self::Io { from: Some(from), to: Some(to), call, cause } => {
                write!(f, "{call} tcp {from}->{to}: {call}: {}", Reason(cause))
            }
            Self::Io { call, cause, .. } => write!(f, "{call} tcp: {call}: {}", Reason(cause)),
            Self::Closed => f.write_str("EOF"),
            Self::Malformed(error) => write!(f, "net/http: HTTP/1.x transport connection broken: {error}"),
            Self::Http(error) => write!(f, "net/http: HTTP/1.x transport connection broken: {error}"),
            Self::Tls(error) => error.fmt(f),
            Self::TooManyRedirects => f.write_str("stopped after 10 redirects"),
            Self::Timeout => f.write_str("context deadline exceeded (Client.Timeout exceeded while awaiting headers)"),
            Self::Body(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut => f.write_str("unexpected EOF"),
            Self::Io(cause) => Reason(cause).fmt(f),
            Self::Malformed(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
            Self::Timeout => {
                f.write_str("context deadline exceeded (Client.Timeout or context cancellation while reading body)")
            }
        }
    }
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "proxy {}: {}", self.proxy, self.message)
    }
}

impl std::error::Error for DialError {}
impl std::error::Error for ProxyError {}
impl std::error::Error for GetError {}
impl std::error::Error for BodyError {}

/// The system's error text without its number and in lower case.
struct Reason<'a>(&'a io::Error);

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(number) = self.0.raw_os_error() else { return self.0.fmt(f) };
        let mut text = Errno::from_raw(number).desc().chars();
        let first = text.next().map_or('?', |c| c.to_ascii_lowercase());
        write!(f, "{first}{}", text.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_upstreams_text() {
        let address: SocketAddr = "10.88.1.94:81".parse().unwrap();
        let refused = || io::Error::from_raw_os_error(Errno::ECONNREFUSED as i32);
        let dial = DialError::Connect { address, cause: refused() };
        assert_eq!(dial.to_string(), "dial tcp 10.88.1.94:81: connect: connection refused");
        let v6 = DialError::Timeout { address: Some("[fd00::1]:80".parse().unwrap()) };
        assert_eq!(v6.to_string(), "dial tcp [fd00::1]:80: i/o timeout");
        let cause = io::Error::from_raw_os_error(Errno::ECONNRESET as i32);
        let from = "10.88.0.1:40000".parse().ok();
        let read = GetError::Io { from, to: Some(address), call: "read", cause };
        assert_eq!(read.to_string(), "read tcp 10.88.0.1:40000->10.88.1.94:81: read: connection reset by peer");
    }
}
