//! State shared by the server's threads and the test.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::Options;
use super::certificates::Authority;
use super::fairness::{PriorityLevel, Seats};
use super::faults::Rule;
use super::identity::Identity;
use super::request_log::Request;
use super::resources::{Key, Target};
use super::store::{Object, Store};

/// The state of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Network {
    #[default]
    Open,
    /// Connections are refused, and open ones are cut.
    Refused,
    /// Connections are accepted and stay open, without a byte in response until the network opens again.
    Blackhole,
    /// Connections are accepted and cut at once.
    HungUp,
}

/// A connection, open or closed.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub number: u64,
    pub is_open: bool,
    traffic: Arc<Traffic>,
}

/// The bytes of a connection, including TLS.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub received: AtomicU64,
    pub sent: AtomicU64,
}

impl Connection {
    /// Bytes from the client.
    pub(crate) fn bytes_received(&self) -> u64 {
        self.traffic.received.load(Ordering::Relaxed)
    }

    /// Bytes to the client.
    pub(crate) fn bytes_sent(&self) -> u64 {
        self.traffic.sent.load(Ordering::Relaxed)
    }
}

/// An order to every matching open watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WatchOrder {
    /// End in order, like a timeout.
    End,
    /// End without a last chunk.
    Cut,
    /// Send an ERROR event for an expired version, and end.
    Expire,
    /// Send a bookmark, if the watch wants bookmarks.
    Bookmark,
    /// Send no more events.
    Silence,
    /// Write these raw bytes.
    Write(Vec<u8>),
}

/// An open watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenWatch {
    pub id: u64,
    pub path: String,
    pub(super) orders: Vec<WatchOrder>,
}

#[derive(Debug)]
pub(crate) struct World {
    pub store: Store,
    /// Every request so far, in order of arrival.
    pub requests: Vec<Request>,
    /// Every connection so far.
    pub connections: Vec<Connection>,
    pub watches: Vec<OpenWatch>,
    pub(super) options: Options,
    pub(super) rules: Vec<Rule>,
    /// Number of `release` calls.
    pub(super) released: u64,
    /// Number of requests waiting for `release`.
    pub(super) held: u64,
    /// Of the priority levels, in their order.
    pub(super) seats: [Seats; 2],
    pub(super) network: Network,
    /// Whether the test is over.
    pub(super) ended: bool,
    /// The difference of the server's clock from the true time.
    pub(super) clock_ahead: SignedDuration,
    pub(super) tokens: BTreeMap<String, Identity>,
    /// Group, verb and part of nodes.
    pub(super) allowed: Vec<[String; 3]>,
    /// Overrides the lifetime of tokens.
    pub(super) token_lifetime: Option<i64>,
    pub(super) authority: Arc<Authority>,
    /// Requests whose clients are being followed.
    pub(super) followed: Vec<u64>,
    /// Requests whose clients have gone.
    pub(super) left: Vec<u64>,
    counter: u64,
}

impl World {
    pub(super) fn new(options: Options, authority: Arc<Authority>) -> Self {
        let seats = options.seats.map(Seats::new);
        Self {
            store: Store::new(options.history),
            requests: Vec::new(),
            connections: Vec::new(),
            watches: Vec::new(),
            clock_ahead: options.clock_ahead,
            options,
            rules: Vec::new(),
            released: 0,
            held: 0,
            seats,
            network: Network::Open,
            ended: false,
            tokens: BTreeMap::new(),
            allowed: Vec::new(),
            token_lifetime: None,
            authority,
            followed: Vec::new(),
            left: Vec::new(),
            counter: 0,
        }
    }

    /// The object at a path such as `/api/v1/namespaces/default/pods/web`.
    pub(crate) fn get(&self, path: &str) -> Option<Object> {
        let target = Target::parse(path).unwrap_or_else(|| panic!("nothing is served at {path}"));
        self.find(&target.key()).cloned()
    }

    pub(crate) fn find(&self, key: &Key) -> Option<&Object> {
        self.store.get(key)
    }

    /// The objects at a path such as `/api/v1/pods`.
    pub(crate) fn list(&self, path: &str) -> Vec<Object> {
        let target = Target::parse(path).unwrap_or_else(|| panic!("nothing is served at {path}"));
        self.store.list(&target).map(|(_, object)| Arc::clone(object)).collect()
    }

    /// The requests with this verb or method and a matching path.
    pub(crate) fn requests_of<'a>(&'a self, verb: &'a str, pattern: &'a str) -> impl Iterator<Item = &'a Request> + 'a {
        self.requests.iter().filter(move |request| request.is(verb, pattern))
    }

    /// The server's clock.
    pub(crate) fn now(&self) -> Timestamp {
        (self.options.clock)() + self.clock_ahead
    }

    /// The server's clock in the format of objects.
    pub(crate) fn time(&self) -> String {
        let now = self.now();
        Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
    }

    pub(crate) fn new_uid(&mut self) -> String {
        let hex = self.random_hex();
        let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
        format!("{}-{}-4{}-8{}-{}", part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 32))
    }

    /// A suffix for a generated name.
    pub(crate) fn new_suffix(&mut self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let hex = self.random_hex();
        let letter = |digits: &[u8]| {
            let sum: usize = digits.iter().map(|digit| usize::from(*digit)).sum();
            char::from(LETTERS[sum % LETTERS.len()])
        };
        hex.as_bytes().chunks(4).take(5).map(letter).collect()
    }

    /// Whether the next response comes with GOAWAY.
    pub(super) fn goes_away(&mut self) -> bool {
        let chance = self.options.goaway_chance;
        chance > 0.0 && self.random_part() < chance
    }

    /// A random number from 0 to 1.
    pub(super) fn random_part(&mut self) -> f64 {
        let hex = self.random_hex();
        let part = u32::from_str_radix(hex.get(..8).unwrap_or_default(), 16).unwrap_or_default();
        f64::from(part) / f64::from(u32::MAX)
    }

    fn random_hex(&mut self) -> String {
        self.counter += 1;
        let seed = match self.options.seed {
            Some(seed) => format!("{seed} {}", self.counter),
            None => format!("{} {} {}", std::process::id(), self.authority.seed(), self.counter),
        };
        Sha256::digest(seed.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// A number that is unique within this server.
    pub(super) fn next_number(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    pub(super) fn connect(&mut self, traffic: Arc<Traffic>) -> u64 {
        let number = u64::try_from(self.connections.len()).unwrap_or(u64::MAX) + 1;
        self.connections.push(Connection { number, is_open: true, traffic });
        number
    }

    pub(super) fn disconnect(&mut self, number: u64) {
        if let Some(connection) = self.connections.iter_mut().find(|connection| connection.number == number) {
            connection.is_open = false;
        }
    }

    /// Whether a request waits for `release`.
    pub(super) fn seats(&mut self, level: PriorityLevel) -> &mut Seats {
        let [node_high, system] = &mut self.seats;
        match level {
            PriorityLevel::NodeHigh => node_high,
            PriorityLevel::System => system,
        }
    }

    /// Number of requests that wait for a seat.
    pub(crate) fn waiting_for_seats(&self) -> usize {
        self.seats.iter().map(|seats| seats.used().1).sum()
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held > 0
    }

    pub(super) fn has_left(&self, token: u64) -> bool {
        self.left.contains(&token)
    }

    pub(super) fn order_watches(&mut self, pattern: &str, order: &WatchOrder) {
        for watch in self.watches.iter_mut().filter(|watch| super::request_log::fits(pattern, &watch.path)) {
            watch.orders.push(order.clone());
        }
    }
}

/// A field of a JSON object as text; empty if absent.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
