//! Everything that the server's threads and the test share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::Options;
use super::certificates::Authority;
use super::faults::Rule;
use super::identity::Identity;
use super::request_log::Request;
use super::resources::{Key, Target};
use super::store::{Object, Store};

/// What becomes of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Network {
    #[default]
    Open,
    /// Nobody listens, and every connection is cut.
    Refused,
    /// Connections are accepted and stay; no byte is answered until the network is open again.
    Blackhole,
    /// Connections are accepted and cut at once.
    HungUp,
}

/// One connection, present or past.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub number: u64,
    pub is_open: bool,
    traffic: Arc<Traffic>,
}

/// What has gone over a connection, everything that TLS adds included.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub received: AtomicU64,
    pub sent: AtomicU64,
}

impl Connection {
    /// What the client has sent.
    pub(crate) fn bytes_received(&self) -> u64 {
        self.traffic.received.load(Ordering::Relaxed)
    }

    /// What the client was sent.
    pub(crate) fn bytes_sent(&self) -> u64 {
        self.traffic.sent.load(Ordering::Relaxed)
    }
}

/// What every open watch that it fits is told to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WatchOrder {
    /// A last chunk, as when its time is up.
    End,
    /// No last chunk.
    Cut,
    /// Its history is gone: an ERROR event, and the end.
    Expire,
    /// A bookmark, if it wants any.
    Bookmark,
    /// No event from now on.
    Silence,
    /// These bytes, as they are.
    Write(Vec<u8>),
}

/// One watch that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenWatch {
    pub id: u64,
    pub path: String,
    pub(super) orders: Vec<WatchOrder>,
}

#[derive(Debug)]
pub(crate) struct World {
    pub store: Store,
    /// Every request so far, in the order of arrival.
    pub requests: Vec<Request>,
    /// Every connection so far.
    pub connections: Vec<Connection>,
    /// The watches that are open now.
    pub watches: Vec<OpenWatch>,
    pub(super) options: Options,
    pub(super) rules: Vec<Rule>,
    /// How often `release` was called.
    pub(super) released: u64,
    /// How many requests wait for it.
    pub(super) held: u64,
    pub(super) network: Network,
    /// The test is over.
    pub(super) ended: bool,
    /// How far the server's clock is ahead.
    pub(super) clock_ahead: SignedDuration,
    pub(super) tokens: BTreeMap<String, Identity>,
    /// A group, a verb, and a part of nodes.
    pub(super) allowed: Vec<[String; 3]>,
    /// What tokens are granted, whatever is asked for.
    pub(super) token_lifetime: Option<i64>,
    pub(super) authority: Arc<Authority>,
    /// Requests of which it is to be heard whether their clients go.
    pub(super) followed: Vec<u64>,
    /// Requests whose clients have gone.
    pub(super) left: Vec<u64>,
    counter: u64,
}

impl World {
    pub(super) fn new(options: Options, authority: Arc<Authority>) -> Self {
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

    /// The objects of a path such as `/api/v1/pods`.
    pub(crate) fn list(&self, path: &str) -> Vec<Object> {
        let target = Target::parse(path).unwrap_or_else(|| panic!("nothing is served at {path}"));
        self.store.list(&target).map(|(_, object)| Arc::clone(object)).collect()
    }

    /// The requests of a verb, or a method, for paths that fit a pattern.
    pub(crate) fn requests_of<'a>(&'a self, verb: &'a str, pattern: &'a str) -> impl Iterator<Item = &'a Request> + 'a {
        self.requests.iter().filter(move |request| request.is(verb, pattern))
    }

    /// The server's idea of the time.
    pub(crate) fn now(&self) -> Timestamp {
        (self.options.clock)() + self.clock_ahead
    }

    /// The same as objects have it.
    pub(crate) fn time(&self) -> String {
        let now = self.now();
        Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
    }

    pub(crate) fn new_uid(&mut self) -> String {
        let hex = self.random_hex();
        let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
        format!("{}-{}-4{}-8{}-{}", part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 32))
    }

    /// What is appended to a generated name.
    pub(crate) fn new_suffix(&mut self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let hex = self.random_hex();
        let letter = |digits: &[u8]| {
            let sum: usize = digits.iter().map(|digit| usize::from(*digit)).sum();
            char::from(LETTERS[sum % LETTERS.len()])
        };
        hex.as_bytes().chunks(4).take(5).map(letter).collect()
    }

    fn random_hex(&mut self) -> String {
        self.counter += 1;
        let seed = match self.options.seed {
            Some(seed) => format!("{seed} {}", self.counter),
            None => format!("{} {} {}", std::process::id(), self.authority.seed(), self.counter),
        };
        Sha256::digest(seed.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// A number that nobody else of this server has.
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

/// A JSON object's field as text.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
