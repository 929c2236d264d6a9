//! Connections for ureq: a socket, the proxy's tunnel, and TLS. Blocks.
//!
//! A connection has a [`Limit`]: its reads and writes end at one moment, however slowly the peer sends, or when the peer
//! is silent for too long or a flag is set.

use std::fmt::Debug;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::StreamOwned;
use rustls::client::{ClientConfig, ClientConnection};
use rustls::pki_types::{CertificateDer, ServerName};
use ureq::unversioned::transport::{Buffers, LazyBuffers, NextTimeout, Transport};

use super::dial::connect_time;
use super::proxy::ProxyScheme;
use super::stream_error::StreamError;
use super::tunnel::{Tunnel, TunnelStep};
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

/// How long reads and writes of a connection wait.
#[derive(Clone, Debug)]
pub(super) enum Limit {
    /// All of them end at this moment.
    Until(Instant),
    /// Each of them ends when the peer is silent for [`PEER_SILENCE_TIMEOUT`] or at the deadline, and reads end when the
    /// flag is set.
    Cancelled(Arc<AtomicBool>, Option<Arc<Deadline>>),
}

/// A moment that the owner moves with each request, and while the response comes.
#[derive(Debug)]
pub(crate) struct Deadline(Mutex<Instant>);

impl Deadline {
    /// It has passed until it is set.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(rt::now()))
    }

    pub(crate) fn set(&self, end: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = end;
    }

    fn end(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of a wait for at most `longest`.
fn end_of(longest: Duration, deadline: Option<&Deadline>) -> Instant {
    let end = rt::now() + longest;
    deadline.map_or(end, |deadline| deadline.end().min(end))
}

/// A peer that sends nothing for this long is given up.
const PEER_SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
const HTTP_CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a waiting read checks for a cancellation.
const CANCELLATION_CHECK_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Connection {
    stream: Box<dyn Duplex>,
    buffers: LazyBuffers,
    is_tls: bool,
    forwarded: Option<Forwarded>,
}

/// What the head of a request to a forwarding proxy has in addition.
#[derive(Debug)]
struct Forwarded {
    /// Precedes the path in the request line.
    server: String,
    authorization: String,
    is_sent: bool,
}

trait Duplex: Read + Write + Debug + Send + Sync {
    fn socket(&self) -> &TcpStream;
}

impl Duplex for StreamOwned<ClientConnection, Box<dyn Duplex>> {
    fn socket(&self) -> &TcpStream {
        self.sock.socket()
    }
}

/// Fits the longest head of a request and a response.
pub(super) const HTTP_BUFFER_BYTES: usize = 32 << 10;

impl Connection {
    /// Connects to the first of `addresses` that accepts, those of the proxy if there is one.
    pub(super) fn open(target: &Target<'_>, addresses: &[SocketAddr], limit: Limit) -> Result<Self, GetError> {
        let host = target.proxy.map_or(&target.url.host, |proxy| &proxy.host);
        let end = match &limit {
            Limit::Until(end) => *end,
            Limit::Cancelled(_, deadline) => end_of(HTTP_CONNECT_TIMEOUT, deadline.as_deref()),
        };
        let mut stream: Box<dyn Duplex> = match (dial(host, addresses, end), target.proxy) {
            (Ok(tcp), _) => Box::new(LimitedStream { tcp, limit }),
            (Err(error), None) => return Err(GetError::Dial(error)),
            (Err(error), Some(proxy)) => return Err(GetError::Proxy(ProxyError::new(proxy, &error.to_string()))),
        };
        let mut forwarded = None;
        if let Some(proxy) = target.proxy {
            let failed = |error: io::Error| GetError::Proxy(ProxyError::io(proxy, &error));
            if proxy.scheme == ProxyScheme::Https {
                let config = proxy_tls::config(target.trusted).map_err(failed)?;
                stream = encrypt(stream, config, proxy_tls::name(proxy).map_err(failed)?).map_err(failed)?;
            }
            if proxy.forwards(target.url.scheme) {
                let line = |value| format!("Proxy-Authorization: {value}\r\n");
                forwarded = Some(Forwarded {
                    server: format!("http://{}", target.url.authority()),
                    authorization: proxy.authorization().map(line).unwrap_or_default(),
                    is_sent: false,
                });
            } else {
                open_tunnel(&mut stream, proxy, target.url)?;
            }
        }
        if let Some((config, name)) = target.tls.clone() {
            stream = encrypt(stream, config, name).map_err(not_encrypted)?;
        }
        let buffers = LazyBuffers::new(HTTP_BUFFER_BYTES, HTTP_BUFFER_BYTES);
        Ok(Self { stream, buffers, is_tls: target.url.scheme == UriScheme::Https, forwarded })
    }
}

fn dial(host: &str, addresses: &[SocketAddr], end: Instant) -> Result<TcpStream, DialError> {
    let mut failure = DialError::NoSuchHost { host: host.to_owned() };
    for (at, address) in addresses.iter().copied().enumerate() {
        let Some(limit) = connect_time(end, addresses.len() - at) else {
            return Err(DialError::Timeout { address: Some(address) });
        };
        match TcpStream::connect_timeout(&address, limit) {
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
            TunnelStep::Ask(bytes, length) => {
                stream.write_all(&bytes).and_then(|()| stream.flush()).map_err(failed)?;
                length
            }
            TunnelStep::Read(length) => length,
            TunnelStep::Open => return Ok(()),
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

pub(super) fn broken(cause: io::Error) -> GetError {
    match cause.kind() {
        ErrorKind::TimedOut => GetError::Timeout,
        ErrorKind::UnexpectedEof => GetError::Closed,
        _ => GetError::Io { from: None, to: None, call: "read", cause },
    }
}

/// What is left until `end`; `None` if nothing is.
fn time_left(end: Instant) -> Option<Duration> {
    let left = end.saturating_duration_since(rt::now());
    (!left.is_zero()).then_some(left)
}

#[derive(Debug)]
struct LimitedStream {
    tcp: TcpStream,
    limit: Limit,
}

impl LimitedStream {
    fn read_until(&mut self, out: &mut [u8], end: Instant, step: Duration) -> io::Result<usize> {
        let left = time_left(end).ok_or(ErrorKind::TimedOut)?;
        self.tcp.set_read_timeout(Some(left.min(step)))?;
        self.tcp.read(out)
    }
}

impl Duplex for LimitedStream {
    fn socket(&self) -> &TcpStream {
        &self.tcp
    }
}

impl Read for LimitedStream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let (end, step, cancelled) = match &self.limit {
            Limit::Until(end) => (*end, Duration::MAX, None),
            Limit::Cancelled(flag, deadline) => {
                (end_of(PEER_SILENCE_TIMEOUT, deadline.as_deref()), CANCELLATION_CHECK_INTERVAL, Some(Arc::clone(flag)))
            }
        };
        loop {
            if cancelled.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
                // `Interrupted` would be retried by readers of the standard library.
                return Err(io::Error::other("cancelled"));
            }
            match self.read_until(out, end, step) {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                read => return read,
            }
        }
    }
}

impl Write for LimitedStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = match &self.limit {
            Limit::Until(end) => time_left(*end),
            Limit::Cancelled(_, deadline) => time_left(end_of(PEER_SILENCE_TIMEOUT, deadline.as_deref())),
        };
        self.tcp.set_write_timeout(Some(left.ok_or(ErrorKind::TimedOut)?))?;
        let timed_out = |error: io::Error| match error.kind() {
            ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
            _ => error,
        };
        self.tcp.write(bytes).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Forwarded {
    /// The head with the whole URL and the credentials for the proxy; anything after the first head as it is.
    fn apply(&mut self, bytes: &[u8]) -> Vec<u8> {
        let space = bytes.iter().position(|byte| *byte == b' ').map_or(0, |at| at + 1);
        let line = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        if std::mem::replace(&mut self.is_sent, true) {
            return bytes.to_vec();
        }
        let part = |from: usize, to: usize| bytes.get(from..to).unwrap_or_default();
        let (server, authorization) = (self.server.as_bytes(), self.authorization.as_bytes());
        [part(0, space), server, part(space, line), authorization, part(line, bytes.len())].concat()
    }
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), ureq::Error> {
        let bytes = self.buffers.output().get(..amount).unwrap_or_default();
        match &mut self.forwarded {
            Some(forwarded) => self.stream.write_all(&forwarded.apply(bytes))?,
            None => self.stream.write_all(bytes)?,
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

    /// Whether the connection can be used again: the server has kept it, and no proxy forwards its requests, of which
    /// only the first has its head rewritten.
    fn is_open(&mut self) -> bool {
        let socket = self.stream.socket();
        let probe = socket.set_nonblocking(true).and_then(|()| socket.peek(&mut [0]));
        let is_idle = matches!(probe, Err(error) if error.kind() == ErrorKind::WouldBlock);
        socket.set_nonblocking(false).is_ok() && is_idle && self.forwarded.is_none()
    }

    fn is_tls(&self) -> bool {
        self.is_tls
    }
}
