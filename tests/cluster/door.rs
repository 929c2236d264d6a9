//! A client of the node's own server: TLS from rustls, and minimal HTTP.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use coracle::protocol::x509::Certificate;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};

use crate::fake_api::certificates::Certified;
use crate::wait::{PATIENCE, wait};

/// The address of one test's server; unique to that test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place(SocketAddr);

impl Place {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let last = NEXT.fetch_add(1, Ordering::Relaxed);
        // All of 127.0.0.0/8 is loopback.
        Self(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, high | 0x80, low, last)), 10250))
    }

    pub(crate) fn ip(self) -> IpAddr {
        self.0.ip()
    }

    pub(crate) fn configuration(self) -> String {
        format!("address: {}\nport: {}\n", self.0.ip(), self.0.port())
    }

    /// Sends `bytes` in place of a handshake and returns whether the write succeeded.
    pub(crate) fn speak(self, bytes: &[u8]) -> bool {
        TcpStream::connect_timeout(&self.0, PATIENCE).is_ok_and(|mut tcp| tcp.write_all(bytes).is_ok())
    }

    /// Completes a TLS handshake, with or without a client certificate.
    pub(crate) fn connect(self, client: Option<&Certified>) -> Result<Door, String> {
        let tcp = TcpStream::connect_timeout(&self.0, PATIENCE).map_err(|error| error.to_string())?;
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        let shown = Arc::new(Shown::default());
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().dangerous();
        let config = config.with_custom_certificate_verifier(Arc::<Shown>::clone(&shown));
        let config = match client {
            None => config.with_no_client_auth(),
            Some(client) => {
                let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(client.key.clone()));
                config.with_client_auth_cert(vec![client.certificate.clone()], key).unwrap()
            }
        };
        let name = ServerName::IpAddress(self.0.ip().into());
        let mut stream = StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), tcp);
        stream.flush().map_err(|error| error.to_string())?;
        // A TLS 1.3 server rejects a client certificate only after the handshake.
        let certificate = shown.0.lock().unwrap().clone().ok_or("no certificate")?;
        Ok(Door { stream, certificate: Certificate::read(&certificate).unwrap() })
    }

    /// Connects as soon as the server listens and has a certificate.
    #[track_caller]
    pub(crate) fn reach(self, client: Option<&Certified>) -> Door {
        wait(|| self.connect(client).map_err(|error| format!("the door does not open: {error}")))
    }

    /// Waits until the server's certificate satisfies the condition.
    #[track_caller]
    pub(crate) fn shows(self, claim: impl Fn(&Certificate) -> bool) -> Certificate {
        wait(|| match self.connect(None) {
            Ok(door) if claim(&door.certificate) => Ok(door.certificate),
            Ok(door) => Err(format!("it shows {:?}", door.certificate)),
            Err(error) => Err(error),
        })
    }

    /// Makes one request on a connection of its own.
    #[track_caller]
    pub(crate) fn get(self, path: &str, client: Option<&Certified>) -> (u16, String) {
        self.reach(client).get(path, "")
    }
}

/// The response to a GET over plain HTTP.
#[track_caller]
pub(crate) fn get_plain(address: SocketAddr, path: &str) -> (u16, String) {
    say_plain(address, &format!("GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n"))
}

/// The response to these bytes over plain HTTP, as soon as the server listens.
#[track_caller]
pub(crate) fn say_plain(address: SocketAddr, request: &str) -> (u16, String) {
    let mut tcp = wait(|| TcpStream::connect_timeout(&address, PATIENCE).map_err(|error| error.to_string()));
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    tcp.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// A connection after its handshake.
pub(crate) struct Door {
    stream: StreamOwned<ClientConnection, TcpStream>,
    /// The server's certificate.
    pub(crate) certificate: Certificate,
}

impl Door {
    /// The status and the body of the response. Each of `headers` ends with CRLF.
    #[track_caller]
    pub(crate) fn get(&mut self, path: &str, headers: &str) -> (u16, String) {
        self.say(&format!("GET {path} HTTP/1.1\r\nHost: node\r\n{headers}\r\n")).expect("an answer")
    }

    /// Sends these bytes only; false if the peer has closed the connection.
    pub(crate) fn begin(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).and_then(|()| self.stream.flush()).is_ok()
    }

    /// Reads up to the end of `text`. Returns all that was read, with the framing of its chunks.
    pub(crate) fn read_to(&mut self, text: &str) -> String {
        let mut read = Vec::new();
        while !read.ends_with(text.as_bytes()) {
            read.extend(self.bytes(1).unwrap_or_else(|| panic!("no {text:?} after {read:?}")));
        }
        String::from_utf8(read).unwrap()
    }

    /// The response to these bytes; `None` if the connection closes first.
    pub(crate) fn say(&mut self, request: &str) -> Option<(u16, String)> {
        self.stream.write_all(request.as_bytes()).ok()?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).ok()?;
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = match head.lines().find_map(|line| line.strip_prefix("Content-Length: ")) {
            Some(length) => self.bytes(length.parse().unwrap())?,
            None => self.chunks()?,
        };
        Some((status, String::from_utf8(body).unwrap()))
    }

    fn bytes(&mut self, count: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Reads a chunked body to its end.
    fn chunks(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let mut length = String::new();
            while !length.ends_with("\r\n") {
                length.push(char::from(self.bytes(1)?[0]));
            }
            let count = usize::from_str_radix(length.trim_end(), 16).unwrap();
            body.extend(self.bytes(count)?);
            assert_eq!(self.bytes(2)?, b"\r\n");
            if count == 0 {
                return Some(body);
            }
        }
    }
}

/// Accepts every server certificate and records it.
#[derive(Debug, Default)]
struct Shown(Mutex<Option<CertificateDer<'static>>>);

impl ServerCertVerifier for Shown {
    fn verify_server_cert(
        &self,
        server: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.0.lock().unwrap() = Some(server.clone().into_owned());
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
