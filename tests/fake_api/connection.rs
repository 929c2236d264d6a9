//! One connection, with or without TLS, and how others close it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustls::pki_types::CertificateDer;
use rustls::{ServerConnection, StreamOwned};

use super::tls::Tls;
use super::world::Traffic;

/// A socket that counts its bytes.
pub(crate) struct Socket {
    tcp: TcpStream,
    traffic: Arc<Traffic>,
}

impl Socket {
    /// The same socket for a reader with its own byte count.
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
        // Events are small and must not be delayed. A closed socket fails later.
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

    /// The client's certificate.
    pub(super) fn client_certificate(&self) -> Option<CertificateDer<'static>> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(stream) => stream.conn.peer_certificates()?.first().cloned(),
        }
    }

    /// Writes and flushes all bytes.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)?;
        self.flush()
    }

    /// Completes the handshake. Returns whether the client speaks HTTP/2, and the bytes read so far.
    pub(super) fn shake_hands(&mut self) -> io::Result<(bool, Vec<u8>)> {
        match self {
            Self::Plain(socket) => {
                // The HTTP/2 preface begins with a method that HTTP/1.1 lacks.
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

    /// Closes the connection in order.
    pub(super) fn close(&mut self) {
        if let Self::Tls(stream) = self {
            stream.conn.send_close_notify();
            // The client may already be gone.
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
