//! Connections to an address or a name.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, SockaddrStorage, connect, socket};
use rustls::client::danger::ServerCertVerifier;

use crate::net::DialError;
use crate::net::tls::Tls;
use crate::rt::{self, Async, Semaphore, TcpStream};

/// Connects. Names are looked up a few at a time: who asks a name server that does not answer takes nobody else's
/// threads. Clones share that bound, and what TLS needs.
#[derive(Clone, Debug)]
pub(crate) struct Dialer {
    lookups: Rc<Semaphore>,
    pub(super) tls: Tls,
}

const LOOKUPS: usize = 2;

impl Dialer {
    pub(crate) fn new() -> Self {
        Self { lookups: Rc::new(Semaphore::new(LOOKUPS)), tls: Tls::default() }
    }

    /// The same, but that a server has to show this one a certificate that it believes.
    pub(crate) fn believing(&self, verifier: Arc<dyn ServerCertVerifier>) -> Result<Self, rustls::Error> {
        Ok(Self { lookups: Rc::clone(&self.lookups), tls: Tls::with(verifier)? })
    }

    /// A connection to the first address of `host` that takes one.
    pub(crate) async fn dial(&self, host: &str, port: u16, limit: Duration) -> Result<TcpStream, DialError> {
        let end = rt::now() + limit;
        let addresses = match rt::deadline(limit, self.addresses(host, port)).await {
            Ok(addresses) => addresses,
            Err(rt::Elapsed) => return Err(DialError::Timeout { address: None }),
        };
        let mut failure = DialError::NoSuchHost { host: host.to_owned() };
        for address in addresses {
            let left = end.saturating_duration_since(rt::now());
            match rt::deadline(left, open(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(cause)) => failure = DialError::Connect { address, cause },
                Err(rt::Elapsed) => return Err(DialError::Timeout { address: Some(address) }),
            }
        }
        Err(failure)
    }

    /// The same for who has a time of his own.
    pub(super) async fn reach(&self, host: &str, port: u16) -> Result<TcpStream, DialError> {
        let mut failure = DialError::NoSuchHost { host: host.to_owned() };
        for address in self.addresses(host, port).await {
            match open(address).await {
                Ok(stream) => return Ok(stream),
                Err(cause) => failure = DialError::Connect { address, cause },
            }
        }
        Err(failure)
    }

    async fn addresses(&self, host: &str, port: u16) -> Vec<SocketAddr> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return vec![SocketAddr::new(ip, port)];
        }
        let _one_of_few = self.lookups.acquire().await;
        #[cfg(test)]
        if let Some(found) = rt::simulated_lookup(host).await {
            return found.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
        }
        let name = host.to_owned();
        rt::blocking(move || (name.as_str(), port).to_socket_addrs().map(Iterator::collect).unwrap_or_default()).await
    }
}

/// A pod of this node has taken the connection by the time that the kernel is asked a second time. Nobody waits for that
/// then, which would cost two wake-ups, or sets a timer for it, which would cost one.
async fn open(address: SocketAddr) -> io::Result<TcpStream> {
    #[cfg(test)]
    if let Some(stream) = rt::simulated_connection(address).await {
        return stream;
    }
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(family, SockType::Stream, flags, SockProtocol::Tcp)?;
    let to = SockaddrStorage::from(address);
    let ask = || match connect(socket.as_raw_fd(), &to) {
        Err(Errno::EINPROGRESS | Errno::EALREADY) => Ok(false),
        asked => asked.map(|()| true),
    };
    let connected = ask()? || ask()?;
    let stream = Async::new_nonblocking(std::net::TcpStream::from(socket))?;
    if !connected {
        stream.writable().await?;
        if let Some(error) = stream.get_ref().take_error()? {
            return Err(error);
        }
    }
    Ok(stream.into())
}
