//! A TCP listener: binds its port as soon as it is free, and starts a task per connection.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use super::connections::{ClientState, Connections};
use crate::platform::rt::{self, TcpListener, TcpStream};
use crate::types::error::ErrorChain;
use crate::types::time::Backoff;

pub(super) struct Listener {
    /// The name in the log.
    pub(super) name: &'static str,
    pub(super) address: SocketAddr,
    /// Maximum number of connections.
    pub(super) most: usize,
    /// Maximum number of unauthenticated connections among them.
    pub(super) most_strangers: usize,
    /// Maximum number of connections of one peer address.
    pub(super) most_of_one: usize,
}

/// Serves a connection, and updates the state of its client.
pub(super) type ConnectionHandler<'a> = &'a dyn Fn(TcpStream, SocketAddr, Rc<Cell<ClientState>>) -> HandlerFuture;
pub(super) type HandlerFuture = Pin<Box<dyn Future<Output = ()>>>;

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
        let mut connections =
            Connections::new(self.most).with_strangers(self.most_strangers).with_most_of_one(self.most_of_one);
        loop {
            connections.room().await;
            match listener.accept().await {
                Ok((tcp, peer)) => {
                    let address = Some(peer.ip().to_canonical());
                    if !connections.add_of(address, |client_state| meet(tcp, peer, client_state)) {
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
    if address.ip().is_unspecified() && address.is_ipv4() {
        let both = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), address.port());
        if let Ok(listener) = TcpListener::bind(both).await {
            return Ok(listener);
        }
    }
    TcpListener::bind(address).await
}
