//! The connection of a single request: a socket, the proxy's tunnel, TLS, and ureq on top of it. Blocks.
//!
//! All of it ends at one moment: every read and write waits at most until then, however slowly the peer sends.

use std::fmt::Debug;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::StreamOwned;
use rustls::client::{ClientConfig, ClientConnection};
use rustls::pki_types::{CertificateDer, ServerName};
use ureq::config::Config;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport};
use ureq::{Agent, http};

use super::error::BodyError;
use super::proxy::ProxyScheme;
use super::stream_error::StreamError;
use super::tunnel::{Step, Tunnel};
use super::{DialError, GetError, Proxy, ProxyError, TlsError, Url, proxy_tls};
use crate::platform::rt;
use crate::types::api::UriScheme;

/// Where to connect.
pub(super) struct Target<'a> {
    pub(super) url: &'a Url,
    pub(super) proxy: Option<&'a Proxy>,
    /// For HTTPS.
    pub(super) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// CAs for a proxy with TLS, besides those of the system.
    pub(super) trusted: &'a [CertificateDer<'static>],
}

#[derive(Debug)]
pub(super) struct Connection {
    stream: Box<dyn Duplex>,
    buffers: LazyBuffers,
    is_tls: bool,
    /// What precedes the path in the request to a proxy that forwards it, until it was sent.
    absolute: Option<String>,
}

trait Duplex: Read + Write + Debug + Send + Sync {}

impl<T: Read + Write + Debug + Send + Sync> Duplex for T {}

/// Fits the longest head of a request and a response.
const BUFFER: usize = 32 << 10;

impl Connection {
    /// Connects to the first of `addresses` that accepts, those of the proxy if there is one.
    pub(super) fn open(target: &Target<'_>, addresses: &[SocketAddr], end: Instant) -> Result<Self, GetError> {
        let dialed = dial(&target.url.host, addresses, end);
        let mut stream: Box<dyn Duplex> = match (dialed, target.proxy) {
            (Ok(tcp), _) => Box::new(TimedStream { tcp, end }),
            (Err(error), None) => return Err(GetError::Dial(error)),
            (Err(error), Some(proxy)) => return Err(GetError::Proxy(ProxyError::new(proxy, &error.to_string()))),
        };
        let mut absolute = None;
        if let Some(proxy) = target.proxy {
            let failed = |error: io::Error| GetError::Proxy(ProxyError::io(proxy, &error));
            if proxy.scheme == ProxyScheme::Https {
                let config = proxy_tls::config(target.trusted).map_err(failed)?;
                stream = encrypt(stream, config, proxy_tls::name(proxy).map_err(failed)?).map_err(failed)?;
            }
            if proxy.forwards(target.url.scheme) {
                absolute = Some(format!("http://{}", target.url.authority()));
            } else {
                open_tunnel(&mut stream, proxy, target.url)?;
            }
        }
        if let Some((config, name)) = target.tls.clone() {
            stream = encrypt(stream, config, name).map_err(not_encrypted)?;
        }
        let buffers = LazyBuffers::new(BUFFER, BUFFER);
        Ok(Self { stream, buffers, is_tls: target.url.scheme == UriScheme::Https, absolute })
    }

    /// Sends the request and returns the response's head and at most `most` bytes of its body.
    pub(super) fn exchange(
        self,
        request: http::Request<Vec<u8>>,
        most: usize,
    ) -> Result<(http::response::Parts, Vec<u8>), GetError> {
        let config = Agent::config_builder()
            .proxy(None)
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_response_header_size(BUFFER)
            .max_idle_connections(0)
            .user_agent("")
            .accept("")
            .accept_encoding("");
        let connector = OneConnection(Mutex::new(Some(self)));
        let agent = Agent::with_parts(config.build(), connector, NoResolver);
        let (parts, body) = request.into_parts();
        let response = if body.is_empty() {
            agent.run(http::Request::from_parts(parts, ()))
        } else {
            agent.run(http::Request::from_parts(parts, body))
        };
        let (head, body) = response.map_err(not_answered)?.into_parts();
        let mut kept = Vec::new();
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        body.into_reader().take(most).read_to_end(&mut kept).map_err(|error| GetError::Body(not_whole(error)))?;
        Ok((head, kept))
    }
}

fn dial(host: &str, addresses: &[SocketAddr], end: Instant) -> Result<TcpStream, DialError> {
    let mut failure = DialError::NoSuchHost { host: host.to_owned() };
    for address in addresses.iter().copied() {
        let Some(left) = left(end) else { return Err(DialError::Timeout { address: Some(address) }) };
        match TcpStream::connect_timeout(&address, left) {
            Ok(tcp) => return Ok(tcp),
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                failure = DialError::Timeout { address: Some(address) };
            }
            Err(cause) => failure = DialError::Connect { address, cause },
        }
    }
    Err(failure)
}

fn open_tunnel(stream: &mut Box<dyn Duplex>, proxy: &Proxy, url: &Url) -> Result<(), GetError> {
    let failed = |error: io::Error| GetError::Proxy(ProxyError::io(proxy, &error));
    let mut tunnel = Tunnel::new(proxy, &url.host, url.port());
    let mut received = Vec::new();
    loop {
        let length = match tunnel.next(&received).map_err(GetError::Proxy)? {
            Step::Ask(bytes, length) => {
                stream.write_all(&bytes).and_then(|()| stream.flush()).map_err(failed)?;
                length
            }
            Step::Read(length) => length,
            Step::Open => return Ok(()),
        };
        received.resize(length, 0);
        stream.read_exact(&mut received).map_err(failed)?;
    }
}

/// Performs the TLS handshake.
fn encrypt(
    mut stream: Box<dyn Duplex>,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
) -> io::Result<Box<dyn Duplex>> {
    let mut tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
    while tls.is_handshaking() {
        tls.complete_io(&mut stream)?;
    }
    Ok(Box::new(StreamOwned::new(tls, stream)))
}

fn not_encrypted(error: io::Error) -> GetError {
    if let Some(error) = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()) {
        let error = match error {
            rustls::Error::InvalidMessage(_) => TlsError::NotTls,
            error => match StreamError::from(error.clone()) {
                StreamError::Tls(error) => error,
                StreamError::Io { cause, .. } => return broken(cause),
            },
        };
        return GetError::Tls(error);
    }
    broken(error)
}

fn not_answered(error: ureq::Error) -> GetError {
    match error {
        ureq::Error::Io(error) => broken(error),
        error => GetError::Http(error.to_string()),
    }
}

fn broken(cause: io::Error) -> GetError {
    match cause.kind() {
        ErrorKind::TimedOut => GetError::Timeout,
        ErrorKind::UnexpectedEof => GetError::Closed,
        _ => GetError::Io { from: None, to: None, what: "read", cause },
    }
}

fn not_whole(error: io::Error) -> BodyError {
    match error.kind() {
        ErrorKind::TimedOut => BodyError::Timeout,
        ErrorKind::UnexpectedEof => BodyError::Cut,
        _ => BodyError::Io(error),
    }
}

/// What is left until `end`; `None` if nothing is.
fn left(end: Instant) -> Option<Duration> {
    let left = end.saturating_duration_since(rt::now());
    (!left.is_zero()).then_some(left)
}

/// A socket whose reads and writes end at a moment.
#[derive(Debug)]
struct TimedStream {
    tcp: TcpStream,
    end: Instant,
}

impl TimedStream {
    fn left(&self) -> io::Result<Option<Duration>> {
        left(self.end).map(Some).ok_or_else(|| ErrorKind::TimedOut.into())
    }
}

fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::WouldBlock { ErrorKind::TimedOut.into() } else { error }
}

impl Read for TimedStream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.tcp.set_read_timeout(self.left()?)?;
        self.tcp.read(out).map_err(timed_out)
    }
}

impl Write for TimedStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tcp.set_write_timeout(self.left()?)?;
        self.tcp.write(bytes).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), ureq::Error> {
        let bytes = self.buffers.output().get(..amount).unwrap_or_default();
        match (self.absolute.take(), bytes.iter().position(|byte| *byte == b' ')) {
            (Some(server), Some(space)) => {
                let (method, rest) = bytes.split_at_checked(space + 1).unwrap_or((bytes, &[]));
                self.stream.write_all(&[method, server.as_bytes(), rest].concat())?;
            }
            _ => self.stream.write_all(bytes)?,
        }
        Ok(self.stream.flush()?)
    }

    fn await_input(&mut self, _: NextTimeout) -> Result<bool, ureq::Error> {
        let length = match self.stream.read(self.buffers.input_append_buf()) {
            // A missing close_notify is ignored, as HTTP has its own framing.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => 0,
            read => read?,
        };
        self.buffers.input_appended(length);
        Ok(length > 0)
    }

    fn is_open(&mut self) -> bool {
        false
    }

    fn is_tls(&self) -> bool {
        self.is_tls
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

#[derive(Debug)]
struct NoResolver;

impl Resolver for NoResolver {
    fn resolve(&self, _: &http::Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        Ok(self.empty())
    }
}
