//! A TCP listener: binds its port as soon as it is free, and starts a task per connection.

use std::cell::Cell;
use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::rc::Rc;
use std::time::Duration;

use rustix::net::sockopt::{set_ipv6_v6only, set_socket_reuseaddr};
use rustix::net::{AddressFamily, SocketFlags, SocketType, listen, socket_with};

use super::connection_shares::{ClientState, ConnectionLimits, Peer};
use super::open_connections::{ConnectionFuture, Connections};
use crate::platform::rt::{self, TcpListener, TcpStream};
use crate::types::error::ErrorChain;
use crate::types::time::Backoff;

pub(super) struct Listener {
    /// The name in the log.
    pub(super) name: &'static str,
    pub(super) address: SocketAddr,
    pub(super) limits: ConnectionLimits,
}

/// Serves a connection, and updates the state of its client.
pub(super) type ConnectionHandler<'a> = &'a dyn Fn(TcpStream, SocketAddr, Rc<Cell<ClientState>>) -> ConnectionFuture;

const FIRST_TRY: Backoff = Backoff::new(Duration::from_secs(5), Duration::from_secs(300));

impl Listener {
    /// Never returns. Pods run without it: a port in use is retried, rarely.
    pub(super) async fn serve(&self, meet: ConnectionHandler<'_>) {
        let Self { name, address, .. } = *self;
        let (mut backoff, mut is_logged) = (FIRST_TRY, false);
        loop {
            match bind(address).await {
                Ok(listener) => {
                    log!(info, "listening", listener = name, address = address);
                    (is_logged, backoff) = (false, FIRST_TRY);
                    self.accept(&listener, meet).await;
                }
                Err(error) if !is_logged => {
                    is_logged = true;
                    log!(
                        warn,
                        "failed to listen, trying again",
                        listener = name,
                        address = address,
                        error = ErrorChain(&error)
                    );
                }
                Err(_) => {}
            }
            rt::sleep(backoff.next_wait()).await;
        }
    }

    /// Accepts connections until the listener fails.
    pub(super) async fn accept(&self, listener: &TcpListener, meet: ConnectionHandler<'_>) {
        let mut connections = Connections::new(self.limits);
        loop {
            match connections.beside(listener.accept()).await {
                Ok((tcp, peer)) => {
                    let address = Peer::Address(peer.ip().to_canonical());
                    if !connections.add(address, Box::new(move |client_state| meet(tcp, peer, client_state))) {
                        log!(debug, "too many connections", listener = self.name, peer = peer);
                    }
                }
                // The client has already disconnected.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    log!(warn, "listener failed, trying again", listener = self.name, error = ErrorChain(&error));
                    return;
                }
            }
        }
    }
}

/// As in the kubelet, the unspecified address listens on both IP families.
async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    if address.ip().is_unspecified() {
        if let Ok(listener) = bind_both(address.port()) {
            return Ok(listener);
        }
    }
    TcpListener::bind(address).await
}

/// Listens on both IP families, also with `net.ipv6.bindv6only`.
fn bind_both(port: u16) -> io::Result<TcpListener> {
    #[cfg(test)]
    if rt::world().is_some() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let socket = socket_with(AddressFamily::INET6, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_reuseaddr(&socket, true)?;
    set_ipv6_v6only(&socket, false)?;
    rustix::net::bind(&socket, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0))?;
    listen(&socket, MAX_UNACCEPTED_CONNECTIONS)?;
    TcpListener::try_from(std::net::TcpListener::from(socket))
}

/// As of the standard library's listeners.
const MAX_UNACCEPTED_CONNECTIONS: i32 = 128;

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
    use std::os::fd::{AsRawFd as _, OwnedFd};

    use nix::sched::{CloneFlags, unshare};
    use nix::sys::socket::{
        AddressFamily, SockFlag, SockType, SockaddrIn, SockaddrStorage, bind as bind_socket, connect, socket,
    };
    use rustix::net::sockopt::ipv6_v6only;

    use super::*;
    use crate::control::server::connections::{Reply, SingleGet, serve_connection};
    use crate::control::server::http::{Response, Status};
    use crate::platform::rt::{Async, AsyncReadExt as _, AsyncWriteExt as _};

    /// A connection from this address of the loopback interface.
    fn connection(from: [u8; 4], to: SocketAddr) -> Async<std::net::TcpStream> {
        let made: OwnedFd = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_NONBLOCK, None).unwrap();
        bind_socket(made.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::from(from), 0))).unwrap();
        let _ = connect(made.as_raw_fd(), &SockaddrStorage::from(to));
        Async::new(std::net::TcpStream::from(made)).unwrap()
    }

    #[test]
    fn silent_connections_of_one_address_do_not_delay_other_addresses() {
        rt::block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let to = listener.local_addr().unwrap();
            let _served = rt::spawn(async move {
                let ok = |_: &str, _: &str| Reply::Whole(Response::text(Status::Ok, "ok"));
                let limits = ConnectionLimits { most: 32, most_strangers: 8, most_of_one: 24 };
                let door = Listener { name: "test", address: to, limits };
                door.accept(&listener, &|tcp, _, _| Box::pin(serve_connection(tcp, SingleGet(ok)))).await;
            });
            let _silent: Vec<_> = (0..100).map(|_| connection([127, 0, 0, 3], to)).collect();
            // The silent clients connect first; the listener shows nothing of them.
            rt::sleep(Duration::from_millis(100)).await;
            let honest = async {
                let mut honest = connection([127, 0, 0, 2], to);
                honest.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
                let mut line = [0; 12];
                honest.read_exact(&mut line).await.unwrap();
                line
            };
            assert_eq!(rt::deadline(Duration::from_secs(1), honest).await.as_ref(), Ok(b"HTTP/1.1 200"));
        });
    }

    #[test]
    fn unspecified_address_is_of_both_families_whatever_the_nodes_default() {
        let in_own_network = |address: IpAddr| {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace of this thread");
            std::fs::write("/proc/sys/net/ipv6/bindv6only", "1").unwrap();
            let listener = rt::block_on(bind(SocketAddr::new(address, 0))).unwrap();
            (listener.local_addr().unwrap().is_ipv6(), ipv6_v6only(&listener).unwrap())
        };
        for address in [IpAddr::from([0; 4]), IpAddr::from([0; 16])] {
            let bound = std::thread::spawn(move || in_own_network(address)).join().unwrap();
            assert_eq!(bound, (true, false), "{address}");
        }
    }
}
