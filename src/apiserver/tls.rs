//! TLS to the API server: whom it believes, and the two directions of a connection.

use std::cell::RefCell;
use std::io::{self, Read as _, Write as _};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::client::{ClientConfig, ClientConnection};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use super::traffic::Traffic;
use super::verifier::Verifier;
use crate::net::{AnyCertificate, HostClock};
use crate::rt::{AsyncRead, AsyncWrite, TcpStream};

/// Who may be on the other side.
pub(super) enum Trust {
    Authorities(Vec<CertificateDer<'static>>),
    Anybody,
}

/// With the certificate and key that this side shows, if any.
pub(super) fn client_config(
    trust: Trust,
    identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_details(Arc::clone(&provider), Arc::new(HostClock));
    let builder = builder.with_safe_default_protocol_versions()?.dangerous();
    let builder = match trust {
        Trust::Anybody => builder.with_custom_certificate_verifier(Arc::new(AnyCertificate)),
        Trust::Authorities(list) => {
            let own = identity.as_ref().map_or(&[][..], |(chain, _)| chain);
            builder.with_custom_certificate_verifier(Verifier::new(&list, own, provider)?)
        }
    };
    let mut config = match identity {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key)?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// A connection after its handshake; clones are the same one.
#[derive(Clone, Debug)]
pub(super) struct TlsSocket(Rc<RefCell<Inner>>);

#[derive(Debug)]
struct Inner {
    tcp: TcpStream,
    tls: ClientConnection,
    /// Came and not yet opened: what TLS has opened must be read before it takes more.
    unopened: Vec<u8>,
    /// Sealed and not yet taken by the kernel: `unsent[sent..]`.
    unsent: Vec<u8>,
    sent: usize,
    /// What of a write was sealed and is not yet told as written.
    sealed: usize,
    traffic: Rc<Traffic>,
}

/// A record, with what TLS adds to it.
const READ: usize = 17 * 1024;

impl TlsSocket {
    /// Shakes hands over `tcp`; the protocol that both have chosen is `h2`, or it is an error.
    pub(super) async fn connect(
        tcp: TcpStream,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        traffic: Rc<Traffic>,
    ) -> io::Result<Self> {
        let tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let mut inner = Inner { tcp, tls, unopened: Vec::new(), unsent: Vec::new(), sent: 0, sealed: 0, traffic };
        std::future::poll_fn(|context| inner.poll_shake_hands(context)).await?;
        match inner.tls.alpn_protocol() {
            Some(b"h2") => Ok(Self(Rc::new(RefCell::new(inner)))),
            _ => Err(io::Error::other("the server does not speak HTTP/2")),
        }
    }
}

impl Inner {
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

    /// Opens some of what has come; 0 at the end.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.unopened.is_empty() {
            // On the stack: a connection that rests keeps no buffer.
            let mut buffer = [0; READ];
            let len = ready!(Pin::new(&mut self.tcp).poll_read(context, &mut buffer))?;
            self.traffic.received(len);
            self.unopened = buffer.get(..len).unwrap_or_default().to_vec();
        }
        let len = self.tls.read_tls(&mut self.unopened.as_slice())?;
        self.unopened.drain(..len);
        if let Err(error) = self.tls.process_new_packets() {
            // The other side is told why, if it takes it.
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
            let len = ready!(Pin::new(&mut self.tcp).poll_write(context, unsent))?;
            if len == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.traffic.sent(len);
            self.sent += len;
        }
    }
}

impl AsyncRead for TlsSocket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut inner = self.0.borrow_mut();
        loop {
            match inner.tls.reader().read(out) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Whether the end was said is not asked: HTTP/2 has its own.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Poll::Ready(Ok(0)),
                read => return Poll::Ready(read),
            }
            let len = ready!(inner.poll_receive(context))?;
            // An answer that TLS itself asks for leaves with the next write if it does not leave now.
            let _ = inner.poll_flush(context)?;
            if len == 0 {
                return Poll::Ready(Ok(0));
            }
        }
    }
}

impl AsyncWrite for TlsSocket {
    /// Ready when the kernel has taken all that was sealed, as nobody flushes. Who calls again after `Pending` must do
    /// so with the same bytes.
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
