//! The connections of a client: the first carries everything, further ones only calls of tenants.
//!
//! A server may limit the calls of a connection (gRPC servers that do, usually to 100), and a tenant's call may hang for
//! minutes. Tenants' calls may occupy three quarters of the first connection, and use further connections beyond that,
//! so that the node's own calls never wait for them. Without such a limit there is only one connection.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Error;
use super::call::{Call, Caller};
use super::connector::{Attempt, Connector, live};
use super::link::Link;
use super::socket_watch::{self, Identity};
use crate::platform::rt::{self, UnixStream};
use crate::types::time::Backoff;

#[derive(Debug)]
pub(super) struct Connections {
    path: PathBuf,
    endpoint: Arc<str>,
    pub(super) first: Rc<Connector<Call>>,
    /// For calls of tenants only.
    further: RefCell<Vec<Rc<Connector<Call>>>>,
    /// The socket at the last attempt to connect.
    tried: Rc<Cell<Option<Identity>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionRole {
    First,
    /// Closed when no call has used it for a while.
    Further,
}

const FIRST_RPC_RECONNECT_DELAY: Duration = Duration::from_millis(100);
const MAX_RPC_RECONNECT_DELAY: Duration = Duration::from_secs(5);
/// For connecting the socket, and again for the peer's first bytes.
const RPC_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// With 100 calls on each, enough for all that tenants may have at a time.
const MAX_FURTHER_RPC_CONNECTIONS: usize = 6;
/// A further connection without calls at two such moments in a row is closed: one of them may fall between two calls.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(30);

impl Connections {
    /// `endpoint` is `unix:///path` or a path.
    pub(super) fn new(endpoint: &str) -> Self {
        let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
        Self {
            path: PathBuf::from(path),
            endpoint: Arc::from(endpoint),
            first: connector(),
            further: RefCell::default(),
            tried: Rc::default(),
        }
    }

    /// A connection for a call. Unless all are full, the call can begin on it at once, if it does so before the next
    /// await.
    pub(super) async fn link(&self, is_of_tenant: bool) -> Result<Rc<Link<Call>>, Error> {
        loop {
            let link = self.connected(&self.first, ConnectionRole::First).await?;
            if !is_of_tenant || has_room_for_tenants(&link, ConnectionRole::First) {
                return Ok(link);
            }
            let Some(connector) = self.further_connector() else { return Ok(self.least_used().unwrap_or(link)) };
            let link = self.connected(&connector, ConnectionRole::Further).await?;
            if has_room_for_tenants(&link, ConnectionRole::Further) {
                return Ok(link);
            }
            // Other calls have taken the new connection's streams.
        }
    }

    async fn connected(&self, connector: &Rc<Connector<Call>>, role: ConnectionRole) -> Result<Rc<Link<Call>>, Error> {
        let connect = |attempt| {
            let (connector, tried) = (Rc::downgrade(connector), Rc::clone(&self.tried));
            rt::spawn(run(connector, attempt, Arc::clone(&self.endpoint), self.path.clone(), tried, role))
        };
        connector.link(connect).await
    }

    /// The first further connection with room, else one that is not connected; `None` if all are full.
    fn further_connector(&self) -> Option<Rc<Connector<Call>>> {
        let mut further = self.further.borrow_mut();
        let usable = further.iter().find(|connector| {
            let link = connector.connected_link();
            link.is_none_or(|link| has_room_for_tenants(&link, ConnectionRole::Further))
        });
        if usable.is_some() || further.len() >= MAX_FURTHER_RPC_CONNECTIONS {
            return usable.cloned();
        }
        let new = connector();
        further.push(Rc::clone(&new));
        Some(new)
    }

    /// Calls wait there until others have ended.
    fn least_used(&self) -> Option<Rc<Link<Call>>> {
        let further = self.further.borrow();
        further.iter().filter_map(|connector| connector.connected_link()).min_by_key(|link| link.count(|_| true))
    }

    /// Why there is no connection: the last attempt's failure, or that it takes too long.
    pub(super) fn failure(&self) -> Error {
        self.first.failure().unwrap_or_else(|| connect_error(&self.endpoint, io::ErrorKind::TimedOut.into()))
    }
}

fn connector() -> Rc<Connector<Call>> {
    // Without jitter: the peer is on this machine, and no fleet connects to it.
    Rc::new(Connector::new(Backoff::new(FIRST_RPC_RECONNECT_DELAY, MAX_RPC_RECONNECT_DELAY), 0.0))
}

fn has_room_for_tenants(link: &Link<Call>, role: ConnectionRole) -> bool {
    link.count(|call| call.is_of_tenant) < max_of_tenants(link.max_exchanges(), role)
}

/// How many of a connection's streams tenants may use.
fn max_of_tenants(streams: usize, role: ConnectionRole) -> usize {
    match role {
        ConnectionRole::First => streams - streams.div_ceil(4),
        ConnectionRole::Further => streams,
    }
}

fn connect_error(endpoint: &Arc<str>, cause: io::Error) -> Error {
    Error::Connect { endpoint: Arc::clone(endpoint), cause: Arc::new(cause) }
}

/// The life of one connection, from the attempt to the loss.
async fn run(
    connector: Weak<Connector<Call>>,
    attempt: Rc<Attempt<Call>>,
    endpoint: Arc<str>,
    path: PathBuf,
    tried: Rc<Cell<Option<Identity>>>,
    role: ConnectionRole,
) {
    if let Some(time) = attempt.not_before {
        wait(&connector, &path, tried.get(), time).await;
    }
    tried.set(Identity::of(&path));
    let connected = rt::deadline(RPC_CONNECT_TIMEOUT, UnixStream::connect(&path)).await;
    match connected.unwrap_or_else(|rt::Elapsed| Err(io::ErrorKind::TimedOut.into())) {
        Ok(stream) => {
            let unreachable = |cause| connect_error(&endpoint, cause);
            let lives = live(&connector, &attempt, Caller::to_local(), stream, RPC_CONNECT_TIMEOUT, unreachable);
            match role {
                ConnectionRole::First => lives.await,
                ConnectionRole::Further => rt::either(lives, end_when_idle(&attempt)).await,
            }
        }
        Err(cause) => {
            if let Some(connector) = connector.upgrade() {
                connector.failed(&attempt, connect_error(&endpoint, cause));
            }
        }
    }
}

/// Waits until `retry_at`, or until the socket is recreated.
async fn wait(connector: &Weak<Connector<Call>>, path: &Path, tried: Option<Identity>, retry_at: Instant) {
    let renewed = async {
        socket_watch::renewed(path, tried).await;
        if let Some(connector) = connector.upgrade() {
            connector.renewed();
        }
    };
    rt::either(rt::sleep_until(retry_at), renewed).await;
}

/// Closes a further connection that has not been used for a while. Never returns: the connection's own task ends then.
async fn end_when_idle(attempt: &Attempt<Call>) {
    let link = attempt.connected().await;
    let mut was_idle = false;
    loop {
        rt::sleep(IDLE_CHECK_INTERVAL).await;
        let is_idle = link.count(|_| true) == 0;
        if is_idle && was_idle {
            link.end(Error::NeverSent);
            break std::future::pending().await;
        }
        was_idle = is_idle;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::rpc::{Client, Server, hanging};

    #[test]
    fn quarter_of_the_first_connection_is_the_nodes_own() {
        for (streams, tenants) in [(0, 0), (1, 0), (2, 1), (4, 3), (100, 75), (4_000_000_000, 3_000_000_000)] {
            assert_eq!(max_of_tenants(streams, ConnectionRole::First), tenants, "{streams}");
            assert_eq!(max_of_tenants(streams, ConnectionRole::Further), streams);
        }
    }

    /// The server allows 100 streams on a connection.
    #[test]
    fn hanging_calls_of_pods_delay_neither_the_node_nor_other_pods() {
        let folder = std::env::temp_dir().join(format!("coracle-shares-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("s");
        let outcome = rt::block_on(async {
            let server = Server::bind(&socket).unwrap();
            let (hangs, hung) = hanging(|message| message == b"hang");
            let _served = rt::spawn(async move { match server.serve(hangs).await {} });
            let hour = Duration::from_secs(3600);
            let client = Client::new(&socket.to_string_lossy());
            let call = |client: &Client, message: &'static str| {
                let client = client.clone();
                rt::spawn(async move { client.unary("/test/Call", message.into(), hour).await.is_ok() })
            };
            let of_pods = (0..240).map(|pod| call(&client.of(&format!("pod-{pod}")), "hang"));
            let of_one = (0..200).map(|_| call(&client.of("greedy"), "hang"));
            let hanging: Vec<_> = of_pods.chain(of_one).collect();
            // The hanging calls occupy their streams first: one of each pod, and the share of the greedy one.
            let limit = Duration::from_secs(10);
            let occupied = async {
                while hung.get() < 240 + 128 {
                    rt::yield_now().await;
                }
            };
            rt::deadline(limit, occupied).await.expect("the hanging calls are under way");
            let node = rt::deadline(limit, call(&client, "")).await;
            let pod = rt::deadline(limit, call(&client.of("honest"), "")).await;
            let connections = client.connections().further.borrow().len();
            drop(hanging);
            (node, pod, connections)
        });
        std::fs::remove_dir_all(&folder).unwrap();
        // 75 of the 368 calls are on the first connection.
        assert_eq!(outcome, (Ok(true), Ok(true), 3));
    }
}
