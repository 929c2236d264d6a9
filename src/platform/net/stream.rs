//! A plain or TLS connection to a server.

use crate::platform::net::stream_error::{StreamError, reading, writing};
use crate::platform::net::tls::TlsStream;
use crate::platform::rt::{AsyncReadExt, AsyncWriteExt, TcpStream};

#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

impl Stream {
    pub(super) async fn write_all(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        match self {
            Self::Plain(tcp) => tcp.write_all(bytes).await.map_err(writing),
            Self::Tls(tls) => tls.write_all(bytes).await,
        }
    }

    /// Returns 0 at the end.
    pub(super) async fn read(&mut self, out: &mut [u8]) -> Result<usize, StreamError> {
        match self {
            Self::Plain(tcp) => tcp.read(out).await.map_err(reading),
            Self::Tls(tls) => tls.read(out).await,
        }
    }

    /// Announces the end, which only TLS can.
    pub(super) async fn end(self) {
        if let Self::Tls(tls) = self {
            tls.end().await;
        }
    }

    pub(super) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => &tls.tcp,
        }
    }
}
