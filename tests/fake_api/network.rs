//! The server's place in the network: its port, its certificate, and what may happen to both.

use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::thread;

use jiff::Timestamp;
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, SockaddrStorage, sockopt};

use super::certificates::{Authority, Certified, Validity};
use super::shared::{Shared, lock};
use super::store::Store;
use super::world::{Network, Traffic};
use super::{FakeApi, serve};

/// What the server shows to its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerCertificate {
    Right,
    /// Right, but new.
    Renewed,
    Expired,
    /// Of an authority that clients do not know.
    OfOtherAuthority,
    /// For another name and address.
    OfOtherName,
}

/// What a server has had at one moment.
#[derive(Debug)]
pub(crate) struct Backup(Store);

const NAMES: &[&str] = &["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc.cluster.local"];

pub(super) fn own_certificate(authority: &Authority, address: IpAddr, now: Timestamp) -> Certified {
    authority.issue_server(address, NAMES, Validity::a_day(now))
}

/// A port that stays this server's for as long as the descriptor is open.
pub(super) fn reserve_port(address: IpAddr) -> (OwnedFd, SocketAddr) {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket::socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    socket::setsockopt(&socket, sockopt::ReuseAddr, &true).unwrap();
    socket::bind(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(address, 0))).unwrap();
    let bound = TcpListener::from(socket);
    let address = bound.local_addr().unwrap();
    (bound.into(), address)
}

impl FakeApi {
    pub(super) fn listen(&self) {
        let listener = TcpListener::bind(self.address).unwrap();
        let shared = Arc::clone(&self.shared);
        let own = listener.try_clone().unwrap();
        let thread = thread::spawn(move || accept(&own, &shared));
        *lock(&self.listening) = Some((listener, thread));
    }

    pub(super) fn stop_listening(&self) {
        let Some((listener, thread)) = lock(&self.listening).take() else { return };
        // Linux lets go of who accepts.
        socket::shutdown(listener.as_raw_fd(), socket::Shutdown::Both).unwrap();
        thread.join().unwrap();
    }

    /// From now on the network is like this; `Refused` cuts every connection.
    pub(crate) fn set_network(&self, network: Network) {
        self.change(|world| world.network = network);
        match network {
            Network::Refused => {
                self.stop_listening();
                self.shared.cut_sockets();
            }
            Network::HungUp => self.shared.cut_sockets(),
            Network::Open | Network::Blackhole => {}
        }
        let listens = lock(&self.listening).is_some();
        if network != Network::Refused && !listens {
            self.listen();
        }
    }

    /// Cuts every connection; the server goes on.
    pub(crate) fn cut_connections(&self) {
        self.shared.cut_sockets();
    }

    /// The server is gone for a moment; it keeps its objects, and what happened before cannot be watched any more.
    pub(crate) fn restart(&self) {
        self.set_network(Network::Refused);
        self.change(|world| world.store.compact());
        self.set_network(Network::Open);
    }

    /// The same with another history, as after a backup was restored: versions begin again after this one.
    pub(crate) fn restart_at_version(&self, version: u64) {
        self.set_network(Network::Refused);
        self.change(|world| world.store.begin_anew(version));
        self.set_network(Network::Open);
    }

    /// Everything as it is now.
    pub(crate) fn back_up(&self) -> Backup {
        Backup(self.look(|world| world.store.clone()))
    }

    /// The server is gone for a moment and comes back with what a backup has. Its versions go on from there, and whoever
    /// watches from a later one is told nothing, as of an etcd that was restored.
    pub(crate) fn restart_with(&self, backup: &Backup) {
        self.set_network(Network::Refused);
        self.change(|world| world.store.clone_from(&backup.0));
        self.set_network(Network::Open);
    }

    /// Shows this certificate from now on; connections that are there stay.
    pub(crate) fn show_certificate(&self, which: ServerCertificate) {
        let now = self.look(|world| world.now());
        let (authority, address) = (self.shared.authority(), self.address.ip());
        let other = IpAddr::from([192, 0, 2, 1]);
        let certificate = match which {
            ServerCertificate::Right | ServerCertificate::Renewed => own_certificate(&authority, address, now),
            ServerCertificate::Expired => authority.issue_server(address, NAMES, Validity::expired(now)),
            ServerCertificate::OfOtherAuthority => own_certificate(&Authority::new(now), address, now),
            ServerCertificate::OfOtherName => authority.issue_server(other, &["elsewhere"], Validity::a_day(now)),
        };
        self.shared.tls.as_ref().expect("a server that speaks TLS").set_certificate(&certificate);
    }
}

/// Takes connections until nobody listens any more.
fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while let Ok((tcp, _)) = listener.accept() {
        let is_hung_up = shared.look(|world| world.network == Network::HungUp);
        let traffic = Arc::<Traffic>::default();
        let number = shared.change(|world| world.connect(Arc::clone(&traffic)));
        if is_hung_up {
            // The client may have gone before.
            let _ = tcp.shutdown(Shutdown::Both);
            shared.change(|world| world.disconnect(number));
            continue;
        }
        start(shared, tcp, number, traffic);
    }
}

fn start(shared: &Arc<Shared>, tcp: TcpStream, number: u64, traffic: Arc<Traffic>) {
    shared.add_socket(number, &tcp);
    let own = Arc::clone(shared);
    shared.spawn(move || serve::serve(&own, tcp, number, &traffic));
}
