//! TLS over any stream, as client or server.

use std::cell::RefCell;
use std::io::{self, Read as _, Write as _};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::client::{ClientConfig, ClientConnection};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::{ServerConfig, ServerConnection};

use crate::platform::rt::{AsyncRead, AsyncWrite};

/// A connection after its handshake. Clones share it.
#[derive(Debug)]
pub(crate) struct TlsSocket<S>(Rc<RefCell<Inner<S>>>);

#[derive(Debug)]
struct Inner<S> {
    stream: S,
    tls: rustls::Connection,
    /// Received but not decrypted: TLS accepts more only after its plaintext was read.
    unopened: Vec<u8>,
    /// Encrypted but not sent: `unsent[sent..]`.
    unsent: Vec<u8>,
    sent: usize,
    /// Bytes of the current write that were encrypted but not reported as written.
    sealed: usize,
}

/// The size of a TLS record with its overhead.
const TLS_RECORD_BYTES: usize = 17 * 1024;

impl<S> Clone for TlsSocket<S> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsSocket<S> {
    /// Performs the handshake with a server.
    pub(crate) async fn connect(stream: S, config: Arc<ClientConfig>, name: ServerName<'static>) -> io::Result<Self> {
        let tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
        Self::shake_hands(stream, tls.into()).await
    }

    /// Performs the handshake with a client.
    pub(crate) async fn accept(stream: S, config: Arc<ServerConfig>) -> io::Result<Self> {
        let tls = ServerConnection::new(config).map_err(io::Error::other)?;
        Self::shake_hands(stream, tls.into()).await
    }

    async fn shake_hands(stream: S, tls: rustls::Connection) -> io::Result<Self> {
        let mut inner = Inner { stream, tls, unopened: Vec::new(), unsent: Vec::new(), sent: 0, sealed: 0 };
        std::future::poll_fn(|context| inner.poll_shake_hands(context)).await?;
        Ok(Self(Rc::new(RefCell::new(inner))))
    }

    /// Whether this ALPN protocol was negotiated.
    pub(crate) fn has_negotiated(&self, protocol: &[u8]) -> bool {
        self.0.borrow().tls.alpn_protocol() == Some(protocol)
    }

    /// The certificate chain that the peer presented, its own first. Not necessarily verified.
    pub(crate) fn peer_certificates(&self) -> Vec<CertificateDer<'static>> {
        self.0.borrow().tls.peer_certificates().map_or_else(Vec::new, <[_]>::to_vec)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Inner<S> {
    fn poll_shake_hands(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_flush(context))?;
            if !self.tls.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_receive(context))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Receives and decrypts some data; 0 at the end.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.unopened.is_empty() {
            // On the stack, so that an idle connection has no buffer.
            let mut buffer = [0; TLS_RECORD_BYTES];
            let len = ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
            self.unopened = buffer.get(..len).unwrap_or_default().to_vec();
        }
        let len = self.tls.read_tls(&mut self.unopened.as_slice())?;
        self.unopened.drain(..len);
        if let Err(error) = self.tls.process_new_packets() {
            // Sends the peer an alert, if it still reads.
            let _ = self.poll_flush(context);
            return Poll::Ready(Err(io::Error::other(error)));
        }
        Poll::Ready(Ok(len))
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            while self.tls.wants_write() {
                self.tls.write_tls(&mut self.unsent)?;
            }
            let unsent = self.unsent.get(self.sent..).unwrap_or_default();
            if unsent.is_empty() {
                self.unsent = Vec::new();
                self.sent = 0;
                return Poll::Ready(Ok(()));
            }
            let len = ready!(Pin::new(&mut self.stream).poll_write(context, unsent))?;
            if len == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += len;
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsSocket<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut inner = self.0.borrow_mut();
        loop {
            match inner.tls.reader().read(out) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A missing close_notify is ignored, as HTTP has its own framing.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Poll::Ready(Ok(0)),
                read => return Poll::Ready(read),
            }
            let len = ready!(inner.poll_receive(context))?;
            // A response of TLS itself that cannot be sent now is sent with the next write.
            let _ = inner.poll_flush(context)?;
            if len == 0 {
                return Poll::Ready(Ok(0));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsSocket<S> {
    /// Ready once the kernel has accepted everything encrypted, as callers do not flush. After `Pending` the caller
    /// must pass the same bytes again.
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut inner = self.0.borrow_mut();
        if inner.sealed == 0 {
            inner.sealed = inner.tls.writer().write(bytes)?;
        }
        ready!(inner.poll_flush(context))?;
        Poll::Ready(Ok(std::mem::take(&mut inner.sealed)))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_flush(context)
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.0.borrow_mut();
        inner.tls.send_close_notify();
        inner.poll_flush(context)
    }
}
