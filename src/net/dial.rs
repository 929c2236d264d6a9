//! Connections to an address or a name.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::net::DialError;
use crate::net::tls::Tls;
use crate::rt::{self, Semaphore, TcpStream};

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

    /// A connection to the first address of `host` that takes one.
    pub(crate) async fn dial(&self, host: &str, port: u16, limit: Duration) -> Result<TcpStream, DialError> {
        let end = Instant::now() + limit;
        let addresses = match host.parse::<IpAddr>() {
            Ok(ip) => vec![SocketAddr::new(ip, port)],
            Err(_) => match rt::deadline(limit, self.look_up(host, port)).await {
                Ok(addresses) => addresses,
                Err(rt::Elapsed) => return Err(DialError::Timeout { address: None }),
            },
        };
        let mut failure = DialError::NoSuchHost { host: host.to_owned() };
        for address in addresses {
            let left = end.saturating_duration_since(Instant::now());
            match rt::deadline(left, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(cause)) => failure = DialError::Connect { address, cause },
                Err(rt::Elapsed) => return Err(DialError::Timeout { address: Some(address) }),
            }
        }
        Err(failure)
    }

    async fn look_up(&self, host: &str, port: u16) -> Vec<SocketAddr> {
        let _one_of_few = self.lookups.acquire().await;
        let name = host.to_owned();
        rt::blocking(move || (name.as_str(), port).to_socket_addrs().map(Iterator::collect).unwrap_or_default()).await
    }
}
