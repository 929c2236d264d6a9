//! The open connections of a server, and those that wait for room.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::connection_shares::{ClientState, ConnectionLimits, ConnectionSummary, Peer, Room};
use super::connections::REQUEST_READ_TIMEOUT;
use crate::platform::rt::{self, Task};

/// Serves one connection.
pub(super) type ConnectionFuture = Pin<Box<dyn Future<Output = ()>>>;
/// Starts to serve a connection, and updates the state of its client.
pub(super) type StartConnection<'a> = Box<dyn FnOnce(Rc<Cell<ClientState>>) -> ConnectionFuture + 'a>;

/// Runs a limited number of connections, in which each peer has a share. Connections beyond the share of their peer
/// wait here, not in the kernel's backlog, where they would delay those of other peers.
pub(super) struct Connections<'a> {
    limits: ConnectionLimits,
    open: Vec<OpenConnection>,
    waiting: VecDeque<WaitingConnection<'a>>,
    /// Peers with an authenticated client, the newest last.
    authenticated: VecDeque<Peer>,
    looked: Instant,
}

struct OpenConnection {
    peer: Peer,
    client_state: Rc<Cell<ClientState>>,
    begun: Instant,
    task: Task<()>,
}

struct WaitingConnection<'a> {
    peer: Peer,
    since: Instant,
    start: StartConnection<'a>,
}

/// Maximum number of waiting connections. Many clients that connect at once are legitimate.
const MAX_WAITING_CONNECTIONS: usize = 128;
/// One peer can never take all places, so that another one always finds one.
const MAX_WAITING_CONNECTIONS_OF_PEER: usize = 64;
/// Enough for the API servers and monitors of a cluster. An attacker cannot add entries: it would have to authenticate.
const MAX_KNOWN_PEERS: usize = 32;
/// Shortest time between two looks whether waiting connections have room.
const ROOM_POLL_INTERVAL: Duration = Duration::from_millis(20);

impl<'a> Connections<'a> {
    pub(super) fn new(limits: ConnectionLimits) -> Self {
        let (open, waiting, known) = (Vec::new(), VecDeque::new(), VecDeque::new());
        Self { limits, open, waiting, authenticated: known, looked: rt::now() }
    }

    /// Waits for `accepted`, and meanwhile starts connections that wait for room.
    pub(super) async fn beside<T>(&mut self, accepted: impl Future<Output = T>) -> T {
        let mut accepted = pin!(accepted);
        // A peer that connects without a pause must not occupy the thread.
        rt::yield_now().await;
        loop {
            if rt::elapsed(self.looked) >= ROOM_POLL_INTERVAL {
                self.start_waiting();
            }
            if self.waiting.is_empty() {
                return accepted.await;
            }
            if let Ok(accepted) = rt::deadline(ROOM_POLL_INTERVAL, accepted.as_mut()).await {
                return accepted;
            }
        }
    }

    /// Starts the connection, or keeps it until there is room. Returns false if all others are busy.
    pub(super) fn add(&mut self, peer: Peer, start: StartConnection<'a>) -> bool {
        let waits = self.waiting_of(peer);
        let room = if waits > 0 { Room::Later } else { self.room(peer) };
        match room {
            Room::Later => {
                self.make_waiting_room(peer, waits);
                self.waiting.push_back(WaitingConnection { peer, since: rt::now(), start });
            }
            Room::Never => return false,
            Room::Displaces(_) | Room::Free => self.start(room, peer, start),
        }
        true
    }

    fn room(&mut self, peer: Peer) -> Room {
        self.drop_ended();
        let open: Vec<_> = self.open.iter().map(OpenConnection::summary).collect();
        self.limits.room(&open, peer, |peer| self.authenticated.contains(&peer))
    }

    fn start(&mut self, room: Room, peer: Peer, start: StartConnection<'a>) {
        if let Room::Displaces(index) = room {
            self.open.remove(index);
        }
        let client_state = Rc::default();
        let client = match peer {
            Peer::Address(address) => address.to_string(),
            Peer::Process(process) => process.to_string(),
        };
        let task = rt::spawn(rt::serve_client(client.into(), start(Rc::clone(&client_state))));
        self.open.push(OpenConnection { peer, client_state, begun: rt::now(), task });
    }

    fn start_waiting(&mut self) {
        self.looked = rt::now();
        let mut kept = VecDeque::new();
        // The newest first: in a flood, theirs are the clients that have not given up.
        while let Some(waiting) = self.waiting.pop_back() {
            let room = self.room(waiting.peer);
            match room {
                Room::Later if rt::elapsed(waiting.since) < REQUEST_READ_TIMEOUT => kept.push_front(waiting),
                Room::Later | Room::Never => {}
                Room::Displaces(_) | Room::Free => self.start(room, waiting.peer, waiting.start),
            }
        }
        self.waiting = kept;
    }

    /// Closes the oldest waiting connection of a peer with too many, or of the one with the most.
    fn make_waiting_room(&mut self, peer: Peer, waits: usize) {
        let gives_way = if waits >= MAX_WAITING_CONNECTIONS_OF_PEER {
            Some(peer)
        } else if self.waiting.len() >= MAX_WAITING_CONNECTIONS {
            self.waiting.iter().map(|waiting| waiting.peer).max_by_key(|peer| self.waiting_of(*peer))
        } else {
            None
        };
        let oldest = gives_way.and_then(|peer| self.waiting.iter().position(|waiting| waiting.peer == peer));
        oldest.map(|oldest| self.waiting.remove(oldest));
    }

    fn waiting_of(&self, peer: Peer) -> usize {
        self.waiting.iter().filter(|waiting| waiting.peer == peer).count()
    }

    fn drop_ended(&mut self) {
        for open in &self.open {
            if open.client_state.get() != ClientState::Stranger && self.authenticated.back() != Some(&open.peer) {
                self.authenticated.retain(|known| *known != open.peer);
                self.authenticated.push_back(open.peer);
            }
        }
        let surplus = self.authenticated.len().saturating_sub(MAX_KNOWN_PEERS);
        self.authenticated.drain(..surplus);
        self.open.retain(|open| !open.task.is_finished());
    }
}

impl OpenConnection {
    fn summary(&self) -> ConnectionSummary {
        ConnectionSummary { peer: self.peer, state: self.client_state.get(), age: rt::elapsed(self.begun) }
    }
}

impl fmt::Debug for Connections<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("open", &self.open.len()).field("waiting", &self.waiting.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::control::server::connection_shares::NEW_CONNECTION_GRACE;

    const LIMITS: ConnectionLimits = ConnectionLimits { most: 128, most_strangers: 32, most_of_one: 112 };

    fn address(number: u32) -> Peer {
        Peer::Address(IpAddr::from(number.to_be_bytes()))
    }

    /// Counts the connections that were started. Each becomes authenticated after `silence`.
    fn counted(started: &Rc<Cell<u32>>, silence: Duration) -> StartConnection<'static> {
        let started = Rc::clone(started);
        Box::new(move |client_state| {
            started.set(started.get() + 1);
            Box::pin(async move {
                rt::sleep(silence).await;
                client_state.set(ClientState::Busy);
            })
        })
    }

    #[test]
    fn all_connections_of_a_burst_are_served() {
        let served = rt::simulate(1, |_| async {
            let (mut connections, started) = (Connections::new(LIMITS), Rc::default());
            for _ in 0..80 {
                connections.add(address(1), counted(&started, Duration::from_millis(50)));
            }
            connections.beside(rt::sleep(Duration::from_secs(1))).await;
            started.get()
        });
        assert_eq!(served, Ok(80));
    }

    #[test]
    fn silent_connections_of_many_addresses_delay_no_known_address() {
        let served = rt::simulate(1, |_| async {
            let (mut connections, known, silent) = (Connections::new(LIMITS), Rc::default(), Rc::default());
            connections.add(address(0), counted(&known, Duration::ZERO));
            connections.beside(rt::sleep(Duration::from_secs(1))).await;
            for number in 1..=500 {
                connections.add(address(number), counted(&silent, Duration::from_secs(1000)));
            }
            connections.add(address(0), counted(&known, Duration::ZERO));
            (known.get(), silent.get(), connections.waiting.len())
        });
        assert_eq!(served, Ok((2, 24, MAX_WAITING_CONNECTIONS)));
    }

    #[test]
    fn newest_connections_of_a_flood_from_one_address_are_served_in_time() {
        let served = rt::simulate(1, |_| async {
            let (mut connections, silent, honest) = (Connections::new(LIMITS), Rc::default(), Rc::default());
            for _ in 0..1000 {
                connections.add(address(1), counted(&silent, Duration::from_secs(1000)));
            }
            connections.add(address(1), counted(&honest, Duration::ZERO));
            connections.beside(rt::sleep(NEW_CONNECTION_GRACE + ROOM_POLL_INTERVAL * 2)).await;
            honest.get()
        });
        assert_eq!(served, Ok(1));
    }
}
