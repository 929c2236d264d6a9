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

impl Read for Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let length = self.tcp.read(bytes)?;
        self.traffic.received.fetch_add(u64::try_from(length).unwrap(), Ordering::Relaxed);
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

    /// The end as a server makes it that has nothing more to say.
    pub(super) fn close(&mut self) {
        if let Self::Tls(stream) = self {
            stream.conn.send_close_notify();
            // The client may have gone before.
            let _ = stream.flush();
        }
        self.cut();
    }

    /// The end with no further word.
    pub(super) fn cut(&self) {
        let tcp = match self {
            Self::Plain(socket) => &socket.tcp,
            Self::Tls(stream) => &stream.sock.tcp,
        };
        let _ = tcp.shutdown(Shutdown::Both);
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
