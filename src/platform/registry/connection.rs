//! Connections for ureq: a socket that can be cancelled, and TLS with this crate's verifiers.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustls::StreamOwned;
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{ClientConfig, ClientConnection, Resumption};
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use ureq::Agent;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport};

use super::Cancelled;
use crate::platform::net::HostClock;
use crate::platform::rt;

/// A peer that sends nothing for this long is given up.
const STALL: Duration = Duration::from_secs(60);
const CONNECT: Duration = Duration::from_secs(30);
/// How often a waiting read looks for a cancellation.
const STEP: Duration = Duration::from_secs(1);
const BUFFER: usize = 32 << 10;

/// A client that verifies servers with `tls`. It keeps one idle connection.
pub(super) fn agent(tls: Arc<ClientConfig>, cancelled: Cancelled) -> Agent {
    let config = Agent::config_builder()
        .proxy(None)
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .max_response_header_size(BUFFER)
        .max_idle_connections(1)
        .max_idle_connections_per_host(1)
        .user_agent(concat!("coracle/", env!("CARGO_PKG_VERSION")))
        .build();
    Agent::with_parts(config, Dial { tls, cancelled }, NoResolver)
}

/// For servers that `verifier` accepts.
pub(crate) fn tls_config(verifier: Arc<dyn ServerCertVerifier>) -> Result<Arc<ClientConfig>, rustls::Error> {
    let builder = ClientConfig::builder_with_details(Arc::new(ring::default_provider()), Arc::new(HostClock));
    let builder = builder.with_safe_default_protocol_versions()?;
    let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[derive(Debug)]
struct Dial {
    tls: Arc<ClientConfig>,
    cancelled: Cancelled,
}

impl Connector for Dial {
    type Out = Connection;

    fn connect(&self, details: &ConnectionDetails<'_>, _: Option<()>) -> Result<Option<Connection>, ureq::Error> {
        let is_tls = details.uri.scheme_str() == Some("https");
        let host = details.uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let port = details.uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let tcp = dial(host, port)?;
        tcp.set_read_timeout(Some(STEP))?;
        tcp.set_write_timeout(Some(STALL))?;
        let patient = Patient { tcp, cancelled: Arc::clone(&self.cancelled) };
        let stream = if is_tls {
            let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
            let mut tls = ClientConnection::new(Arc::clone(&self.tls), name).map_err(io::Error::other)?;
            let mut patient = patient;
            while tls.is_handshaking() {
                tls.complete_io(&mut patient)?;
            }
            Stream::Tls(Box::new(StreamOwned::new(tls, patient)))
        } else {
            Stream::Plain(patient)
        };
        Ok(Some(Connection { stream, buffers: LazyBuffers::new(BUFFER, BUFFER) }))
    }
}

fn dial(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut failure = io::Error::other(format!("dial tcp: lookup {host}: no such host"));
    let addresses = (host, port).to_socket_addrs().map_err(|_| io::Error::other(failure.to_string()))?;
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(tcp) => return Ok(tcp),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

#[derive(Debug)]
struct Connection {
    stream: Stream,
    buffers: LazyBuffers,
}

#[derive(Debug)]
enum Stream {
    Plain(Patient),
    Tls(Box<StreamOwned<ClientConnection, Patient>>),
}

impl Stream {
    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(patient) => &patient.tcp,
            Self::Tls(tls) => &tls.sock.tcp,
        }
    }
}

/// A socket whose reads end on a cancellation or after [`STALL`].
#[derive(Debug)]
struct Patient {
    tcp: TcpStream,
    cancelled: Cancelled,
}

impl Read for Patient {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let begun = rt::now();
        loop {
            if self.cancelled.load(Ordering::Relaxed) {
                // `Interrupted` would be retried by readers of the standard library.
                return Err(io::Error::other(CANCELLED));
            }
            match self.tcp.read(out) {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if rt::elapsed(begun) >= STALL {
                        return Err(ErrorKind::TimedOut.into());
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}

/// The text of the error of a cancelled read.
pub(super) const CANCELLED: &str = "cancelled";

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tcp.write(bytes)
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
        match &mut self.stream {
            Stream::Plain(patient) => patient.write_all(bytes)?,
            Stream::Tls(tls) => tls.write_all(bytes).and_then(|()| tls.flush())?,
        }
        Ok(())
    }

    fn await_input(&mut self, _: NextTimeout) -> Result<bool, ureq::Error> {
        let room = self.buffers.input_append_buf();
        let read = match &mut self.stream {
            Stream::Plain(patient) => patient.read(room),
            Stream::Tls(tls) => tls.read(room),
        };
        let length = match read {
            // A missing close_notify is ignored, as HTTP has its own framing.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => 0,
            read => read?,
        };
        self.buffers.input_appended(length);
        Ok(length > 0)
    }

    /// Whether the server has kept the idle connection.
    fn is_open(&mut self) -> bool {
        let socket = self.stream.socket();
        let probe = socket.set_nonblocking(true).and_then(|()| socket.peek(&mut [0]));
        let is_idle = matches!(probe, Err(error) if error.kind() == ErrorKind::WouldBlock);
        socket.set_nonblocking(false).is_ok() && is_idle
    }

    fn is_tls(&self) -> bool {
        matches!(self.stream, Stream::Tls(_))
    }
}

/// The connector looks names up itself.
#[derive(Debug)]
struct NoResolver;

impl Resolver for NoResolver {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        Ok(self.empty())
    }
}
