//! Connects to a server over a stream, directly or through a proxy.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::pki_types::CertificateDer;

use super::proxy::ProxyScheme;
use super::tunnel::{Tunnel, TunnelStep};
use super::{DialError, Dialer, Proxy, ProxyError, TlsSocket, Url, proxy_tls};
use crate::platform::rt::{self, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, TcpStream};

/// A connection to a server, with TLS if its proxy wants that. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct ServerStream {
    tcp: TcpStream,
    to_proxy: Option<TlsSocket<TcpStream>>,
}

/// A server that could not be reached.
#[derive(Debug)]
pub(crate) enum ConnectError {
    Dial(DialError),
    Proxy(ProxyError),
}

impl Dialer {
    /// Connects to the server of `url`: through `proxy`, else through that of the environment, if any. `limit` is for
    /// the socket only. A proxy with TLS needs a certificate of the system's CAs or of `trusted`.
    pub(crate) async fn connect(
        &self,
        url: &Url,
        proxy: Option<&Proxy>,
        trusted: &[CertificateDer<'static>],
        limit: Duration,
    ) -> Result<ServerStream, ConnectError> {
        let Some(proxy) = proxy.or_else(|| self.proxy_for(url)) else {
            let tcp = self.dial(&url.host, url.port(), limit).await.map_err(ConnectError::Dial)?;
            return Ok(ServerStream { tcp, to_proxy: None });
        };
        let dialed = self.dial(&proxy.host, proxy.port, limit).await;
        let tcp = dialed.map_err(|error| ConnectError::Proxy(ProxyError::new(proxy, &error.to_string())))?;
        let failed = |error: io::Error| ConnectError::Proxy(ProxyError::io(proxy, &error));
        let to_proxy = match proxy.scheme {
            ProxyScheme::Http | ProxyScheme::Socks5 => None,
            ProxyScheme::Https => {
                let trusted = trusted.to_vec();
                let config = rt::blocking(move || proxy_tls::config(&trusted)).await.map_err(failed)?;
                let name = proxy_tls::name(proxy).map_err(failed)?;
                Some(TlsSocket::connect(tcp.clone(), config, name).await.map_err(failed)?)
            }
        };
        let mut stream = ServerStream { tcp, to_proxy };
        let mut tunnel = Tunnel::new(proxy, &url.host, url.port());
        let mut received = Vec::new();
        loop {
            let length = match tunnel.next(&received).map_err(ConnectError::Proxy)? {
                TunnelStep::Ask(bytes, length) => {
                    stream.write_all(&bytes).await.map_err(failed)?;
                    length
                }
                TunnelStep::Read(length) => length,
                TunnelStep::Open => return Ok(stream),
            };
            received.resize(length, 0);
            stream.read_exact(&mut received).await.map_err(failed)?;
        }
    }
}

impl ServerStream {
    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }
}

impl AsyncRead for ServerStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
        match &mut self.to_proxy {
            None => Pin::new(&mut self.tcp).poll_read(context, out),
            Some(tls) => Pin::new(tls).poll_read(context, out),
        }
    }
}

impl AsyncWrite for ServerStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.to_proxy {
            None => Pin::new(&mut self.tcp).poll_write(context, bytes),
            Some(tls) => Pin::new(tls).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.to_proxy {
            None => Pin::new(&mut self.tcp).poll_flush(context),
            Some(tls) => Pin::new(tls).poll_flush(context),
        }
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.to_proxy {
            None => Pin::new(&mut self.tcp).poll_close(context),
            Some(tls) => Pin::new(tls).poll_close(context),
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dial(error) => error.fmt(f),
            Self::Proxy(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ConnectError {}
