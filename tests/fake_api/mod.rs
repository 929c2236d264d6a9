//! A Kubernetes API server in memory that behaves as kube-apiserver 1.36 does, for tests of what a kubelet asks of one.
//!
//! It listens on a port of its own, on threads of its own, and everything of it ends with the [`FakeApi`]. It has an
//! authority of its own, keeps objects under one counter of versions, and lets a node do only what a node may. Every
//! request is written down, and faults are scripted request by request:
//!
//! ```ignore
//! let api = FakeApi::start(Options::default());
//! api.kubeconfig(dir, &Credentials::of_node("n1"));
//! api.create(&json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web" }, "spec": { "nodeName": "n1" } }));
//! api.on("list", "/api/v1/pods").answer(503).times(2);
//! api.on("watch", "/api/v1/pods").watch(WatchFault::Silent).times(1);
//! // ... start what is to be tested ...
//! api.wait("/api/v1/namespaces/default/pods/web", "web to run", |pod| pod["status"]["phase"] == "Running");
//! assert_eq!(api.count("list", "/api/v1/pods"), 3);
//! ```
//!
//! Whoever includes it and does not use all of it says `#[expect(dead_code)]` at its `mod`.

mod api_error;
mod authorizer;
pub(crate) mod certificates;
mod collections;
mod connection;
mod deletion;
mod der;
mod events;
mod exchange;
pub(crate) mod faults;
pub(crate) mod handle;
pub(crate) mod http;
pub(crate) mod http2;
pub(crate) mod identity;
pub(crate) mod in_process;
pub(crate) mod kubeconfig;
mod managed_fields;
mod negotiation;
pub(crate) mod network;
mod node_restriction;
mod objects;
mod patch;
pub(crate) mod request_log;
mod resources;
mod reviews;
mod selectors;
mod serve;
mod service_accounts;
mod shared;
mod signer;
pub(crate) mod store;
mod strategic_merge;
mod strategies;
mod tls;
mod tokens;
mod verbs;
pub(crate) mod watch;
pub(crate) mod world;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use certificates::Authority;
use faults::On;
use identity::Identity;
use request_log::Request;
use shared::{Shared, lock};
use tls::Tls;
use world::{WatchOrder, World};

/// Long enough for a busy machine; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// What sort of server it is.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Whether it speaks TLS.
    pub tls: bool,
    /// Where it listens.
    pub address: IpAddr,
    /// Whether nodes may do only what a node may; else everybody may do everything.
    pub node_authorization: bool,
    /// Whether there is what every cluster has: the service `kubernetes`, an account and the authority's certificate in
    /// each namespace, and for each pod the token of its account.
    pub furnished: bool,
    /// How many changes can be watched after the fact.
    pub history: usize,
    /// Answers that are longer are compressed for who takes it.
    pub gzip_above: usize,
    /// Whether requests for client certificates of nodes are approved without a word from the test.
    pub approve: bool,
    /// The same for certificates that nodes are served under.
    pub approve_serving: bool,
    /// Whether what is approved is signed.
    pub sign: bool,
    /// How long certificates last that it signs, unless a request asks for less.
    pub certificate_lifetime: SignedDuration,
    /// How far the server's clock is ahead of the true one, or behind, from before its certificates were made.
    pub clock_ahead: SignedDuration,
    /// The true clock.
    pub clock: fn() -> Timestamp,
    /// What uids and generated names are made of; else they are others every time.
    pub seed: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tls: true,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            node_authorization: true,
            furnished: false,
            history: 1000,
            gzip_above: 128 * 1024,
            approve: false,
            approve_serving: false,
            sign: true,
            certificate_lifetime: SignedDuration::from_hours(365 * 24),
            clock_ahead: SignedDuration::ZERO,
            clock: Timestamp::now,
            seed: None,
        }
    }
}

/// The server, seen from the test. Dropping it ends everything of it.
pub(crate) struct FakeApi {
    shared: Arc<Shared>,
    address: SocketAddr,
    /// Bound, and never listening: nobody else gets the port while the server is down.
    _port: OwnedFd,
    listening: Mutex<Option<(TcpListener, JoinHandle<()>)>>,
}

impl FakeApi {
    pub(crate) fn start(options: Options) -> Self {
        let (port, address) = network::reserve_port(options.address);
        let authority = Arc::new(Authority::new(Timestamp::now() + options.clock_ahead));
        let has_tls = options.tls;
        let world = World::new(options, Arc::clone(&authority));
        let own = network::own_certificate(&authority, address.ip(), world.now());
        let tls = has_tls.then(|| Tls::new(&authority, &own));
        let shared = Arc::new(Shared::new(world, tls));
        let fake = Self { shared, address, _port: port, listening: Mutex::default() };
        for namespace in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            fake.create(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }));
        }
        if fake.look(|world| world.options.furnished) {
            fake.change(service_accounts::add_own_service);
        }
        fake.listen();
        fake
    }

    /// What clients are given.
    pub(crate) fn url(&self) -> String {
        format!("{}://{}", if self.uses_tls() { "https" } else { "http" }, self.address)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn uses_tls(&self) -> bool {
        self.shared.tls.is_some()
    }

    /// The authority's certificate, as PEM.
    pub(crate) fn authority_pem(&self) -> String {
        self.shared.authority().pem()
    }

    /// Who comes with this token is this identity.
    pub(crate) fn add_token(&self, token: &str, identity: &Identity) {
        self.change(|world| world.tokens.insert(token.to_owned(), identity.clone()));
    }

    /// Nobody knows the token any more.
    pub(crate) fn remove_token(&self, token: &str) {
        self.change(|world| world.tokens.remove(token));
    }

    /// Members of this group may do so to this part of nodes: what is answered to who asks about it.
    pub(crate) fn allow(&self, group: &str, verb: &str, part: &str) {
        self.change(|world| world.allowed.push([group, verb, part].map(str::to_owned)));
    }

    /// The server's clock, in `Date` and in objects, is so far ahead of the true one, or behind.
    pub(crate) fn set_clock_ahead(&self, ahead: SignedDuration) {
        self.change(|world| world.clock_ahead = ahead);
    }

    /// Tokens of service accounts last so long, whatever is asked for.
    pub(crate) fn set_token_lifetime(&self, lifetime: Option<Duration>) {
        let seconds = lifetime.map(|lifetime| i64::try_from(lifetime.as_secs()).unwrap());
        self.change(|world| world.token_lifetime = seconds);
    }
}

/// Faults. Of those that fit a request and are not used up the first counts, besides those that only delay it.
impl FakeApi {
    /// What is to go wrong with a verb such as `list`, a method such as `GET`, or with everything (`*`), at a path in
    /// which `*` is any text.
    pub(crate) fn on(&self, verb: &str, pattern: &str) -> On<'_> {
        On::new(self, verb, pattern)
    }

    /// Nothing goes wrong from now on.
    pub(crate) fn clear_faults(&self) {
        self.change(|world| world.rules.clear());
    }

    /// What was scripted for this no longer goes wrong.
    pub(crate) fn clear_faults_on(&self, verb: &str, pattern: &str) {
        self.change(|world| world.rules.retain(|rule| !rule.is_of(verb, pattern)));
    }

    /// Lets the requests go on that `hold` keeps now.
    pub(crate) fn release(&self) {
        self.change(|world| world.released += 1);
    }

    /// Tells the watches that are open at such paths what to do.
    pub(crate) fn order_watches(&self, pattern: &str, order: &WatchOrder) {
        self.change(|world| world.order_watches(pattern, order));
    }

    /// Connections of HTTP/2 are told to take no new requests there; what is under way goes on.
    pub(crate) fn go_away(&self) {
        self.shared.go_away();
    }

    /// Only what is to come can be watched: a watch from an older version is refused as expired.
    pub(crate) fn compact(&self) {
        self.change(|world| world.store.compact());
    }

    /// Versions pass, as when others write what no client of this server sees.
    pub(crate) fn pass_versions(&self, versions: u64) {
        self.change(|world| world.store.pass(versions));
    }
}

/// What was asked of it.
impl FakeApi {
    /// Every request so far, in the order of arrival.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.look(|world| world.requests.clone())
    }

    /// Those of a verb or a method, for paths that fit a pattern.
    pub(crate) fn requests_of(&self, verb: &str, pattern: &str) -> Vec<Request> {
        self.look(|world| world.requests_of(verb, pattern).cloned().collect())
    }

    pub(crate) fn count(&self, verb: &str, pattern: &str) -> usize {
        self.look(|world| world.requests_of(verb, pattern).count())
    }

    /// How many connections were accepted.
    pub(crate) fn connections_so_far(&self) -> usize {
        self.look(|world| world.connections.len())
    }

    /// Bytes that clients have sent, and that they were sent, over all connections.
    pub(crate) fn traffic(&self) -> (u64, u64) {
        self.look(|world| {
            let sum = |bytes: fn(&world::Connection) -> u64| world.connections.iter().map(bytes).sum();
            (sum(world::Connection::bytes_received), sum(world::Connection::bytes_sent))
        })
    }

    /// Waits until `done` holds; fails the test when it does not come to hold.
    #[track_caller]
    pub(crate) fn wait_for(&self, what: &str, done: impl FnMut(&World) -> bool) {
        assert!(self.comes(PATIENCE, done), "waited in vain for {what}; there was asked:\n{}", self.asked());
    }

    /// Whether it comes to hold within this time.
    pub(crate) fn comes(&self, longest: Duration, mut done: impl FnMut(&World) -> bool) -> bool {
        let end = Instant::now() + longest;
        let mut world = lock(&self.shared.world);
        while !done(&world) {
            let Some(left) = end.checked_duration_since(Instant::now()) else { return false };
            world = self.shared.wait(world, left);
        }
        true
    }

    /// Waits for an object to be so, and answers it.
    #[track_caller]
    pub(crate) fn wait(&self, path: &str, what: &str, is_so: impl FnMut(&Value) -> bool) -> Value {
        self.wait_within(PATIENCE, path, what, is_so)
    }

    #[track_caller]
    pub(crate) fn wait_within(
        &self,
        longest: Duration,
        path: &str,
        what: &str,
        mut is_so: impl FnMut(&Value) -> bool,
    ) -> Value {
        let mut found = Value::Null;
        let comes = self.comes(longest, |world| {
            let object = world.get(path).filter(|object| is_so(object));
            object.map(|object| found = Value::clone(&object)).is_some()
        });
        assert!(comes, "waited in vain for {what}; there is {:#?}; there was asked:\n{}", self.get(path), self.asked());
        found
    }

    #[track_caller]
    pub(crate) fn wait_gone(&self, path: &str) {
        self.wait_for(&format!("{path} to go"), |world| world.get(path).is_none());
    }

    /// Waits for the `count`th request of this sort.
    #[track_caller]
    pub(crate) fn wait_for_requests(&self, verb: &str, pattern: &str, count: usize) {
        let what = format!("{count} requests to {verb} {pattern}");
        self.wait_for(&what, |world| world.requests_of(verb, pattern).count() >= count);
    }

    /// Waits until so many watches are open at such paths.
    #[track_caller]
    pub(crate) fn wait_for_watches(&self, pattern: &str, count: usize) {
        let fits = |path: &str| request_log::fits(pattern, path);
        self.wait_for(&format!("{count} watches of {pattern}"), |world| {
            world.watches.iter().filter(|watch| fits(&watch.path)).count() == count
        });
    }

    /// The requests so far, a line each.
    fn asked(&self) -> String {
        let line = |request: &Request| {
            let (verb, path, user) = (request.verb, &request.path, &request.identity.user);
            format!("{verb} {path} {:?} by {user}: {:?}\n", request.query, request.status)
        };
        self.look(|world| world.requests.iter().map(line).collect())
    }

    /// Lives as long as any thread of the server does.
    pub(crate) fn weak(&self) -> Weak<Shared> {
        Arc::downgrade(&self.shared)
    }

    pub(crate) fn look<T>(&self, look: impl FnOnce(&World) -> T) -> T {
        self.shared.look(look)
    }

    fn change<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        self.shared.change(change)
    }
}

impl Drop for FakeApi {
    fn drop(&mut self) {
        self.change(|world| world.ended = true);
        self.stop_listening();
        self.shared.cut_sockets();
        self.shared.join();
    }
}
