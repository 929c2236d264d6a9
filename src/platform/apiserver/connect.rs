//! Makes sockets for HTTP/2.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};

use super::access::Access;
use super::tls::PROTOCOL;
use super::traffic::Traffic;
use crate::platform::net::{Dialer, ServerStream, TlsSocket};
use crate::platform::rt::{AsyncRead, AsyncWrite};

/// A plain or TLS socket. Clones share it.
#[derive(Clone, Debug)]
pub(super) enum Socket {
    Plain(CountedStream),
    Tls(TlsSocket<CountedStream>),
}

/// How long sent data may stay unacknowledged before the kernel closes the connection.
const API_UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(30);
const API_SOCKET_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) async fn connect(dialer: &Dialer, access: &Access, traffic: &Rc<Traffic>) -> io::Result<Socket> {
    let connected = dialer.connect(&access.url, access.proxy.as_ref(), &access.trusted, API_SOCKET_TIMEOUT).await;
    let stream = connected.map_err(io::Error::other)?;
    let tcp = stream.tcp();
    // A failure here only makes a dead connection last longer.
    let _ = tcp.set_nodelay(true);
    let limit = u32::try_from(API_UNACKNOWLEDGED_TIMEOUT.as_millis()).unwrap_or(u32::MAX);
    let _ = setsockopt(tcp, sockopt::TcpUserTimeout, &limit);
    traffic.connected();
    let counted = CountedStream { stream, traffic: Rc::clone(traffic) };
    let Some((config, name)) = &access.tls else { return Ok(Socket::Plain(counted)) };
    let tls = TlsSocket::connect(counted, config.clone(), name.clone()).await?;
    match tls.has_negotiated(PROTOCOL) {
        true => Ok(Socket::Tls(tls)),
        false => Err(io::Error::other("server does not support HTTP/2")),
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(context, out),
            Self::Tls(tls) => Pin::new(tls).poll_read(context, out),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(context, bytes),
            Self::Tls(tls) => Pin::new(tls).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(context),
            Self::Tls(tls) => Pin::new(tls).poll_flush(context),
        }
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_close(context),
            Self::Tls(tls) => Pin::new(tls).poll_close(context),
        }
    }
}

/// A connection whose traffic is counted.
#[derive(Clone, Debug)]
pub(super) struct CountedStream {
    stream: ServerStream,
    traffic: Rc<Traffic>,
}

impl AsyncRead for CountedStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
        let read = Pin::new(&mut self.stream).poll_read(context, out);
        if let Poll::Ready(Ok(len)) = read {
            self.traffic.received(len);
        }
        read
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(len)) = written {
            self.traffic.sent(len);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(context)
    }
}
