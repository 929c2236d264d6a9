//! Connects to an address or a name.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, SockaddrStorage, connect, socket};

use crate::platform::net::tls::Tls;
use crate::platform::net::{DialError, Proxy, ProxySettings, Url};
use crate::platform::rt::{self, Async, Semaphore, TcpStream};
use crate::types::metrics::{self, Timed};

/// Connects to hosts. Looks up one name at a time, so that an unresponsive name server does not occupy every thread:
/// clones share that limit and the TLS configuration. Probes and hooks have one without proxies, for each pod.
#[derive(Clone, Debug)]
pub(crate) struct Dialer {
    lookups: Arc<Semaphore>,
    /// The uid of the pod whose spec has the names; `None` for the node itself.
    pod: Option<Arc<str>>,
    pub(super) tls: Tls,
    /// For servers other than pods.
    proxies: Arc<ProxySettings>,
    /// The times of its lookups are shown: it is for the API server.
    counts_lookups: bool,
}

/// A server and its proxy are looked up one after the other.
const MAX_LOOKUPS: usize = 1;
/// Shortest time to connect to one of several addresses.
const MIN_CONNECT_TIME: Duration = Duration::from_secs(2);

impl Dialer {
    pub(crate) fn new() -> Self {
        Self::of_server(ProxySettings::default())
    }

    /// For one server, such as the API server, whose lookups do not queue behind those of pods and other servers.
    pub(crate) fn of_server(proxies: ProxySettings) -> Self {
        let lookups = Arc::new(Semaphore::new(MAX_LOOKUPS));
        Self { lookups, pod: None, tls: Tls::default(), proxies: Arc::new(proxies), counts_lookups: false }
    }

    /// Counts its lookups as those of the API server's client.
    pub(crate) fn counting_lookups(self) -> Self {
        Self { counts_lookups: true, ..self }
    }

    /// For the names of one pod, whose lookups queue behind each other only. Its clients try again after their
    /// timeouts: a client of its own for each of them keeps the number of lookups that wait small.
    pub(crate) fn of_pod(&self, uid: &str) -> Self {
        Self { lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)), pod: Some(uid.into()), ..self.clone() }
    }

    /// The proxy of the environment for `url`, if any.
    pub(crate) fn proxy_for(&self, url: &Url) -> Option<&Proxy> {
        self.proxies.proxy_for(url)
    }

    pub(crate) fn proxies(&self) -> Arc<ProxySettings> {
        Arc::clone(&self.proxies)
    }

    /// Connects to the first address of `host` that accepts.
    pub(crate) async fn dial(&self, host: &str, port: u16, limit: Duration) -> Result<TcpStream, DialError> {
        let end = rt::now() + limit;
        let addresses = match rt::deadline(limit, self.addresses(host, port)).await {
            Ok(addresses) => addresses,
            Err(rt::Elapsed) => return Err(DialError::Timeout { address: None }),
        };
        let mut failure = DialError::NoSuchHost { host: host.to_owned() };
        for (at, address) in addresses.iter().copied().enumerate() {
            let Some(limit) = connect_time(end, addresses.len() - at) else {
                return Err(DialError::Timeout { address: Some(address) });
            };
            match rt::deadline(limit, open(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(cause)) => failure = DialError::Connect { address, cause },
                Err(rt::Elapsed) => failure = DialError::Timeout { address: Some(address) },
            }
        }
        Err(failure)
    }

    pub(super) async fn addresses(&self, host: &str, port: u16) -> Vec<SocketAddr> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return vec![SocketAddr::new(ip, port)];
        }
        // The lookup holds it, because its thread stays busy even if the caller is gone.
        let turn = self.lookups.acquire_arc().await;
        #[cfg(test)]
        if let Some(world) = rt::world() {
            let resolved = rt::simulated_lookup(world, host, self.pod.clone(), turn).await;
            return resolved.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
        }
        let name = host.to_owned();
        let lookup = move || {
            let _turn = turn;
            (name.as_str(), port).to_socket_addrs().map(Iterator::collect).unwrap_or_default()
        };
        let begun = rt::now();
        let resolved = match &self.pod {
            Some(uid) => rt::inquire_for(uid, lookup).await,
            None => rt::slow(lookup).await,
        };
        if self.counts_lookups {
            metrics::took(Timed::NameLookups, &[host], rt::elapsed(begun));
        }
        resolved
    }
}

/// The time for the first of `addresses` until `end`, of which the others get their part (Go: `partialDeadline`);
/// `None` if none is left.
pub(super) fn connect_time(end: Instant, addresses: usize) -> Option<Duration> {
    let left = end.saturating_duration_since(rt::now());
    let addresses = u32::try_from(addresses).unwrap_or(u32::MAX).max(1);
    (!left.is_zero()).then(|| (left / addresses).max(MIN_CONNECT_TIME).min(left))
}

/// Calls connect(2) twice: a pod on this node has accepted by the second call, which saves two wake-ups for waiting and
/// one for a timeout.
async fn open(address: SocketAddr) -> io::Result<TcpStream> {
    #[cfg(test)]
    if let Some(stream) = rt::simulated_connection(address).await {
        return stream;
    }
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(family, SockType::Stream, flags, SockProtocol::Tcp)?;
    let to = SockaddrStorage::from(address);
    let connect_once = || match connect(socket.as_raw_fd(), &to) {
        Err(Errno::EINPROGRESS | Errno::EALREADY) => Ok(false),
        outcome => outcome.map(|()| true),
    };
    let connected = connect_once()? || connect_once()?;
    let stream = Async::new_nonblocking(std::net::TcpStream::from(socket))?;
    if !connected {
        stream.writable().await?;
        if let Some(error) = stream.get_ref().take_error()? {
            return Err(error);
        }
    }
    Ok(stream.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_address_leaves_time_for_the_others() {
        let dialed = rt::simulate(1, |world| async move {
            let [silent, alive] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
            let addresses = [silent, alive].map(|ip| world.network.host(&SocketAddr::new(ip, 443).to_string()));
            addresses[0].set_line(rt::Line::BlackHole);
            let _accepted = addresses[1].listen();
            let mut outcomes = Vec::new();
            for names in [&[silent, alive][..], &[silent, silent], &[silent; 9]] {
                let name = names.len().to_string() + &outcomes.len().to_string();
                names.iter().for_each(|ip| world.network.add_name(&name, *ip));
                let begun = rt::now();
                let dialed = Dialer::new().dial(&name, 443, Duration::from_secs(10)).await;
                outcomes.push((dialed.is_ok(), rt::elapsed(begun).as_secs()));
            }
            outcomes
        });
        assert_eq!(dialed, Ok(vec![(true, 5), (false, 10), (false, 10)]));
    }

    #[test]
    fn abandoned_lookup_keeps_its_slot() {
        let free = rt::simulate(1, |world| async move {
            world.network.resolver.set(rt::Resolver { slow: Duration::from_secs(1000), failing: 0 });
            let dialer = Dialer::new().of_pod("a");
            for _ in 0..MAX_LOOKUPS {
                assert!(dialer.dial("name", 80, Duration::from_millis(10)).await.is_err());
            }
            let while_they_run = dialer.lookups.try_acquire().is_some();
            rt::sleep(Duration::from_secs(1000)).await;
            (while_they_run, dialer.lookups.try_acquire().is_some())
        });
        assert_eq!(free, Ok((false, true)));
    }

    #[test]
    fn hanging_lookups_of_a_pod_do_not_delay_other_pods() {
        let found = rt::simulate(1, |world| async move {
            world.network.resolver.set(rt::Resolver { slow: Duration::from_secs(1000), failing: 0 });
            world.network.add_name("alive", IpAddr::from([10, 0, 0, 1]));
            let dialer = Dialer::new();
            // One pod with many probes, whose name server hangs.
            for _ in 0..20 {
                let greedy = dialer.of_pod("greedy");
                assert!(greedy.dial("dead", 80, Duration::from_millis(10)).await.is_err());
            }
            world.network.resolver.set(rt::Resolver::default());
            let honest = dialer.of_pod("honest");
            rt::deadline(Duration::from_secs(1), honest.addresses("alive", 80)).await.map(|found| found.len())
        });
        assert_eq!(found, Ok(Ok(1)));
    }

    #[test]
    fn hanging_pod_lookups_do_not_delay_the_api_server() {
        let found = rt::simulate(1, |world| async move {
            world.network.resolver.set(rt::Resolver { slow: Duration::from_secs(1000), failing: 0 });
            world.network.add_name("api", IpAddr::from([10, 0, 0, 1]));
            let (pods, api) = (Dialer::new(), Dialer::of_server(ProxySettings::default()));
            for pod in 0..100 {
                let dialer = pods.of_pod(&pod.to_string());
                assert!(dialer.dial("dead", 80, Duration::from_millis(10)).await.is_err());
            }
            world.network.resolver.set(rt::Resolver::default());
            rt::deadline(Duration::from_secs(1), api.addresses("api", 443)).await.map(|found| found.len())
        });
        assert_eq!(found, Ok(Ok(1)));
    }
}
