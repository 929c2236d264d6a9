//! The server's port and certificate, and their faults.

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

/// The serving certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerCertificate {
    Right,
    /// A new, valid certificate.
    Renewed,
    Expired,
    /// From a CA that clients do not know.
    OfOtherAuthority,
    /// For another name and address.
    OfOtherName,
}

/// The server's state at one moment.
#[derive(Debug)]
pub(crate) struct Backup(Store);

const NAMES: &[&str] = &["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc.cluster.local"];

pub(super) fn own_certificate(authority: &Authority, address: IpAddr, now: Timestamp) -> Certified {
    authority.issue_server(&[address], NAMES, Validity::a_day(now))
}

/// Reserves a port for as long as the descriptor is open.
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
        // Linux wakes a blocked accept.
        socket::shutdown(listener.as_raw_fd(), socket::Shutdown::Both).unwrap();
        thread.join().unwrap();
    }

    /// Sets the state of the network. `Refused` cuts every connection.
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

    /// Cuts every connection; the server keeps listening.
    pub(crate) fn cut_connections(&self) {
        self.shared.cut_sockets();
    }

    /// Restarts the server. It keeps its objects and loses its watch history.
    pub(crate) fn restart(&self) {
        self.set_network(Network::Refused);
        self.change(|world| world.store.compact());
        self.set_network(Network::Open);
    }

    /// Restarts the server with other versions, like a restored backup: they continue after this one.
    pub(crate) fn restart_at_version(&self, version: u64) {
        self.set_network(Network::Refused);
        self.change(|world| world.store.reset_versions(version));
        self.set_network(Network::Open);
    }

    /// Backs up the current objects.
    pub(crate) fn back_up(&self) -> Backup {
        Backup(self.look(|world| world.store.clone()))
    }

    /// Restarts the server with the objects of a backup. Versions continue from there, and watches from later versions
    /// receive nothing, as with a restored etcd.
    pub(crate) fn restart_with(&self, backup: &Backup) {
        self.set_network(Network::Refused);
        self.change(|world| world.store.clone_from(&backup.0));
        self.set_network(Network::Open);
    }

    /// Sets the certificate for new connections; open ones stay.
    pub(crate) fn show_certificate(&self, which: ServerCertificate) {
        let now = self.look(|world| world.now());
        let (authority, address) = (self.shared.authority(), self.address.ip());
        let other = IpAddr::from([192, 0, 2, 1]);
        let certificate = match which {
            ServerCertificate::Right | ServerCertificate::Renewed => own_certificate(&authority, address, now),
            ServerCertificate::Expired => authority.issue_server(&[address], NAMES, Validity::expired(now)),
            ServerCertificate::OfOtherAuthority => own_certificate(&Authority::new(now), address, now),
            ServerCertificate::OfOtherName => authority.issue_server(&[other], &["elsewhere"], Validity::a_day(now)),
        };
        self.shared.tls.as_ref().expect("a server that speaks TLS").set_certificate(&certificate);
    }
}

/// Accepts connections until the listener closes.
fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while let Ok((tcp, _)) = listener.accept() {
        let is_hung_up = shared.look(|world| world.network == Network::HungUp);
        let traffic = Arc::<Traffic>::default();
        let number = shared.change(|world| world.connect(Arc::clone(&traffic)));
        if is_hung_up {
            // The client may already be gone.
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
