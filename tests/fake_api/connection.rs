//! One connection: bytes, in TLS or not, and what it takes to end it from elsewhere.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustls::pki_types::CertificateDer;
use rustls::{ServerConnection, StreamOwned};

use super::tls::Tls;
use super::world::Traffic;

/// A socket that counts.
pub(crate) struct Socket {
    tcp: TcpStream,
    traffic: Arc<Traffic>,
}

impl Socket {
    /// The same socket for who reads it and counts by itself.
    pub(super) fn try_clone(&self) -> io::Result<TcpStream> {
        self.tcp.try_clone()
    }

    pub(super) fn count_received(&self, length: usize) {
        self.traffic.received.fetch_add(u64::try_from(length).unwrap(), Ordering::Relaxed);
    }
}

impl Read for Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let length = self.tcp.read(bytes)?;
        self.count_received(length);
        Ok(length)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.tcp.write(bytes)?;
        self.traffic.sent.fetch_add(u64::try_from(length).unwrap(), Ordering::Relaxed);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tcp.flush()
    }
}

pub(crate) enum Wire {
    Plain(Socket),
    Tls(Box<StreamOwned<ServerConnection, Socket>>),
}

impl Wire {
    pub(super) fn new(tcp: TcpStream, traffic: Arc<Traffic>, tls: Option<&Tls>) -> Self {
        // Events are small, and nobody is to wait for more of them. A socket that is gone fails later.
        let _ = tcp.set_nodelay(true);
        let socket = Socket { tcp, traffic };
        match tls {
            None => Self::Plain(socket),
            Some(tls) => {
                let session = ServerConnection::new(Arc::clone(&tls.config)).unwrap();
                Self::Tls(Box::new(StreamOwned::new(session, socket)))
            }
        }
    }

    /// The certificate that the client has shown.
    pub(super) fn client_certificate(&self) -> Option<CertificateDer<'static>> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(stream) => stream.conn.peer_certificates()?.first().cloned(),
        }
    }

    /// Writes all of it now.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)?;
        self.flush()
    }

    /// Shakes hands; whether it is HTTP/2 that the client speaks, and what it has said of it already.
    pub(super) fn shake_hands(&mut self) -> io::Result<(bool, Vec<u8>)> {
        match self {
            Self::Plain(socket) => {
                // HTTP/2 begins with a method that HTTP/1.1 does not have.
                let mut first = [0; 3];
                socket.read_exact(&mut first)?;
                Ok((&first == b"PRI", first.to_vec()))
            }
            Self::Tls(stream) => {
                while stream.conn.is_handshaking() {
                    stream.conn.complete_io(&mut stream.sock)?;
                }
                Ok((stream.conn.alpn_protocol() == Some(b"h2"), Vec::new()))
            }
        }
    }

    /// The end as a server makes it that has nothing more to say.
    pub(super) fn close(&mut self) {
        if let Self::Tls(stream) = self {
            stream.conn.send_close_notify();
            // The client may have gone before.
            let _ = stream.flush();
        }
        let _ = self.tcp().shutdown(Shutdown::Both);
    }

    pub(super) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => &socket.tcp,
            Self::Tls(stream) => &stream.sock.tcp,
        }
    }

    pub(super) fn into_parts(self) -> (Option<ServerConnection>, Socket) {
        match self {
            Self::Plain(socket) => (None, socket),
            Self::Tls(stream) => {
                let (session, socket) = stream.into_parts();
                (Some(session), socket)
            }
        }
    }
}

impl Read for Wire {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(bytes),
            Self::Tls(stream) => stream.read(bytes),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}
