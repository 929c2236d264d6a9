//! TLS to pods: encrypted but without verification, as for probes and hooks.
//!
//! The configuration is created on the first HTTPS request and then shared. It stores no sessions, as each connection
//! carries one request.

use std::cell::OnceCell;
use std::io;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, ClientConnection, ResolvesClientCert, Resumption};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{DigitallySignedStruct, SignatureScheme};

use crate::platform::host::clock;
use crate::platform::net::stream_error::{StreamError, TlsError, reading, writing};
use crate::platform::rt::{self, AsyncReadExt, AsyncWriteExt, TcpStream};

/// The shared configuration. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Tls(Rc<OnceCell<Arc<ClientConfig>>>);

/// A connection after its handshake.
#[derive(Debug)]
pub(super) struct TlsStream {
    pub(super) tcp: TcpStream,
    tls: ClientConnection,
}

/// The longest handshake (kubelet: `SetTransportDefaults`).
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Type, version and length.
const RECORD_HEADER_BYTES: usize = 5;
const TLS_READ_BYTES: usize = 4096;

impl Tls {
    /// Performs the handshake with `host` over `tcp`.
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

/// For one HTTP/1 request without a client certificate.
pub(crate) fn config(verifier: Arc<dyn ServerCertVerifier>) -> Result<Arc<ClientConfig>, rustls::Error> {
    let builder = ClientConfig::builder_with_details(Arc::new(ring::default_provider()), Arc::new(HostClock));
    let builder = builder.with_safe_default_protocol_versions()?;
    let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The same, with a client certificate.
pub(crate) fn config_as(
    verifier: Arc<dyn ServerCertVerifier>,
    identity: Arc<dyn ResolvesClientCert>,
) -> Result<Arc<ClientConfig>, rustls::Error> {
    let mut config = config(verifier)?;
    Arc::make_mut(&mut config).client_auth_cert_resolver = identity;
    Ok(config)
}

/// The SNI name. None is sent for an address or for anything that is not a valid name.
fn server_name(host: &str) -> ServerName<'static> {
    ServerName::try_from(host.to_owned()).unwrap_or_else(|_| ServerName::IpAddress(Ipv4Addr::UNSPECIFIED.into()))
}

impl TlsStream {
    pub(super) async fn write_all(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        let mut unwritten = bytes;
        while !unwritten.is_empty() {
            let taken = io::Write::write(&mut self.tls.writer(), unwritten).map_err(writing)?;
            unwritten = unwritten.get(taken..).unwrap_or_default();
            self.flush().await?;
        }
        Ok(())
    }

    /// Returns 0 at the end. A missing close_notify is ignored, as HTTP has its own framing.
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
            // The peer may send records without content endlessly.
            rt::yield_now().await;
        }
    }

    /// Sends close_notify, because servers log connections without it.
    pub(super) async fn end(mut self) {
        self.tls.send_close_notify();
        // A peer that does not receive it sees the end of the connection.
        let _ = self.flush().await;
    }

    async fn shake_hands(&mut self) -> Result<(), StreamError> {
        self.flush().await?;
        // Enough to recognize the peer's protocol before any of it is processed.
        let mut least = RECORD_HEADER_BYTES;
        while self.tls.is_handshaking() {
            if self.receive(least).await? == 0 {
                return Err(StreamError::Io { call: "read", cause: io::ErrorKind::UnexpectedEof.into() });
            }
            least = 0;
            self.flush().await?;
        }
        Ok(())
    }

    /// Reads and processes data, on the first call at least `least` bytes. Returns the number of bytes read.
    async fn receive(&mut self, least: usize) -> Result<usize, StreamError> {
        let mut buffer = vec![0; TLS_READ_BYTES].into_boxed_slice();
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
                // Sends the peer an alert, if it still reads.
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

/// Whether a response can be TLS: its first record must be a handshake or an alert of version 3.x.
fn check_first_record(bytes: &[u8]) -> Result<(), TlsError> {
    match bytes {
        [] | [0x15 | 0x16] | [0x15 | 0x16, 3, ..] => Ok(()),
        _ if bytes.starts_with(b"HTTP/") => Err(TlsError::Http),
        _ => Err(TlsError::NotTls),
    }
}

/// Accepts every certificate, because no CA that the node knows signs those of pods (kubelet: `InsecureSkipVerify`).
/// Signatures are not verified either, because any key would be accepted.
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

    /// Every signature scheme that a server may use.
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

/// This crate's wall clock, because std's ends in 2038 on some boards.
#[derive(Debug)]
pub(crate) struct HostClock;

impl TimeProvider for HostClock {
    fn current_time(&self) -> Option<UnixTime> {
        // Before 1970 no certificate is valid.
        let seconds = u64::try_from(clock::timestamp().as_second()).unwrap_or(0);
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

#[cfg(test)]
mod tests;
