//! TLS to pods: encrypted, but nobody is asked to prove who he is, as probes and hooks have it.
//!
//! The configuration is made when the first page over HTTPS is asked for, and is the same one from then on. It keeps
//! no sessions: each connection is one request.

use std::cell::OnceCell;
use std::io;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, ClientConnection, Resumption};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{DigitallySignedStruct, SignatureScheme};

use crate::platform::host::clock;
use crate::platform::net::stream_error::{StreamError, TlsError, reading, writing};
use crate::platform::rt::{self, AsyncReadExt, AsyncWriteExt, TcpStream};

/// What all connections share. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(super) struct Tls(Rc<OnceCell<Arc<ClientConfig>>>);

/// A connection after its handshake.
#[derive(Debug)]
pub(super) struct TlsStream {
    pub(super) tcp: TcpStream,
    tls: ClientConnection,
}

/// The longest handshake (kubelet: `SetTransportDefaults`).
pub(super) const HANDSHAKE: Duration = Duration::from_secs(10);
/// A record's type, version and length.
const RECORD_HEADER: usize = 5;
const READ: usize = 4096;

impl Tls {
    /// For servers that this one believes.
    pub(super) fn with(verifier: Arc<dyn ServerCertVerifier>) -> Result<Self, rustls::Error> {
        Ok(Self(Rc::new(OnceCell::from(config(verifier)?))))
    }

    /// Shakes hands with `host` over `tcp`.
    pub(super) async fn connect(&self, tcp: TcpStream, host: &str) -> Result<TlsStream, StreamError> {
        let config = match self.0.get() {
            Some(config) => config,
            None => {
                let made = config(Arc::new(AnyCertificate)).map_err(TlsError::Other)?;
                self.0.get_or_init(|| made)
            }
        };
        let tls = ClientConnection::new(Arc::clone(config), server_name(host)).map_err(TlsError::Other)?;
        let mut stream = TlsStream { tcp, tls };
        stream.shake_hands().await?;
        Ok(stream)
    }
}

fn config(verifier: Arc<dyn ServerCertVerifier>) -> Result<Arc<ClientConfig>, rustls::Error> {
    let builder = ClientConfig::builder_with_details(Arc::new(ring::default_provider()), Arc::new(HostClock));
    let builder = builder.with_safe_default_protocol_versions()?;
    let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Who is asked for. An address is not told to the server, and neither is what cannot be a name.
fn server_name(host: &str) -> ServerName<'static> {
    ServerName::try_from(host.to_owned()).unwrap_or_else(|_| ServerName::IpAddress(Ipv4Addr::UNSPECIFIED.into()))
}

impl TlsStream {
    pub(super) async fn write_all(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        let mut left = bytes;
        while !left.is_empty() {
            let taken = io::Write::write(&mut self.tls.writer(), left).map_err(writing)?;
            left = left.get(taken..).unwrap_or_default();
            self.flush().await?;
        }
        Ok(())
    }

    /// 0: there is no more. Whether the other side has said so is not asked: HTTP has its own ends.
    pub(super) async fn read(&mut self, out: &mut [u8]) -> Result<usize, StreamError> {
        loop {
            match io::Read::read(&mut self.tls.reader(), out) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Ok(0),
                Ok(len) => return Ok(len),
            }
            if self.receive(0).await? == 0 {
                return Ok(0);
            }
            self.flush().await?;
            // Records without content may come without end.
            rt::yield_now().await;
        }
    }

    /// Servers log a connection that just breaks off.
    pub(super) async fn end(mut self) {
        self.tls.send_close_notify();
        // Whoever does not hear it sees the end of the connection.
        let _ = self.flush().await;
    }

    async fn shake_hands(&mut self) -> Result<(), StreamError> {
        self.flush().await?;
        // Enough to tell what the other side speaks, before anything of it is believed.
        let mut least = RECORD_HEADER;
        while self.tls.is_handshaking() {
            if self.receive(least).await? == 0 {
                return Err(StreamError::Io { what: "read", cause: io::ErrorKind::UnexpectedEof.into() });
            }
            least = 0;
            self.flush().await?;
        }
        Ok(())
    }

    /// Takes in what has come, at the first time no less than `least` bytes; how many it was.
    async fn receive(&mut self, least: usize) -> Result<usize, StreamError> {
        let mut buffer = vec![0; READ].into_boxed_slice();
        let mut have = 0;
        while have == 0 || have < least {
            let room = buffer.get_mut(have..).unwrap_or_default();
            match self.tcp.read(room).await.map_err(reading)? {
                0 => break,
                len => have += len,
            }
        }
        let mut bytes = buffer.get(..have).unwrap_or_default();
        if least > 0 {
            check_first_record(bytes)?;
        }
        while !bytes.is_empty() {
            self.tls.read_tls(&mut bytes).map_err(reading)?;
            if let Err(error) = self.tls.process_new_packets() {
                // The other side is told why, if it still listens.
                let _ = self.flush().await;
                return Err(error.into());
            }
        }
        Ok(have)
    }

    async fn flush(&mut self) -> Result<(), StreamError> {
        let mut out = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut out).map_err(writing)?;
        }
        self.tcp.write_all(&out).await.map_err(writing)
    }
}

/// Whether the first bytes of an answer can be TLS: a record of a handshake or an alert, of a version 3.
fn check_first_record(bytes: &[u8]) -> Result<(), TlsError> {
    match bytes {
        [] | [0x15 | 0x16] | [0x15 | 0x16, 3, ..] => Ok(()),
        _ if bytes.starts_with(b"HTTP/") => Err(TlsError::Http),
        _ => Err(TlsError::NotTls),
    }
}

/// Whoever answers is believed: a pod's certificate is made by nobody that the node knows (kubelet: `InsecureSkipVerify`).
/// What the server has signed is not looked at either, since anybody's key would do.
#[derive(Debug)]
pub(crate) struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _server: &CertificateDer<'_>,
        _between: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    /// Any kind of key that a server may have.
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![
            SignatureScheme::ECDSA_NISTP256_SHA256,
            SignatureScheme::ECDSA_NISTP384_SHA384,
            SignatureScheme::ECDSA_NISTP521_SHA512,
            SignatureScheme::ED25519,
            SignatureScheme::RSA_PSS_SHA256,
            SignatureScheme::RSA_PSS_SHA384,
            SignatureScheme::RSA_PSS_SHA512,
            SignatureScheme::RSA_PKCS1_SHA256,
            SignatureScheme::RSA_PKCS1_SHA384,
            SignatureScheme::RSA_PKCS1_SHA512,
            SignatureScheme::ECDSA_SHA1_Legacy,
            SignatureScheme::RSA_PKCS1_SHA1,
        ]
    }
}

/// The project's own wall clock: the standard library's ends in 2038 on some boards.
#[derive(Debug)]
pub(crate) struct HostClock;

impl TimeProvider for HostClock {
    fn current_time(&self) -> Option<UnixTime> {
        // Before 1970 nothing is good yet, either.
        let seconds = u64::try_from(clock::timestamp().as_second()).unwrap_or(0);
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

#[cfg(test)]
mod tests;
