//! A Kubernetes API server in memory with the behaviour of kube-apiserver 1.36, for tests of a kubelet's requests.
//!
//! It listens on its own port with its own threads. Dropping the [`FakeApi`] ends all of it. It has its own CA,
//! versions all objects with one counter, and applies upstream's node authorization. It records every request, and
//! tests script faults per request:
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
//! A test crate that uses only part of it puts `#[expect(dead_code)]` on its `mod`.

mod api_error;
mod authorizer;
pub(crate) mod certificates;
mod collections;
mod connection;
mod deletion;
pub(crate) mod der;
mod events;
mod exchange;
pub(crate) mod fairness;
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
pub(crate) mod pod_certificates;
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

/// Long enough for a busy machine. A test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// The server's configuration.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub tls: bool,
    /// The listening address.
    pub address: IpAddr,
    /// Whether the node authorizer restricts nodes; otherwise every client may do everything.
    pub node_authorization: bool,
    /// Whether to create what every cluster has: the service `kubernetes`, a service account and the CA certificate in
    /// each namespace, and a token volume in each pod.
    pub furnished: bool,
    /// Number of changes in the watch history.
    pub history: usize,
    /// Size above which responses are compressed, if the client accepts gzip.
    pub gzip_above: usize,
    /// How often a watch that asks for bookmarks gets one.
    pub bookmarks: Duration,
    /// How long a connection may be without a request.
    pub idle: Duration,
    /// `--goaway-chance`: the probability that the response to a request comes with GOAWAY.
    pub goaway_chance: f64,
    /// `--max-request-bytes` of etcd: the largest object.
    pub largest_object: usize,
    /// Requests executed at once for Node objects and leases, and for everything else.
    pub seats: [usize; 2],
    /// How long a request waits for a seat.
    pub longest_wait: Duration,
    /// Whether client certificates of nodes are approved automatically.
    pub approve: bool,
    /// Whether serving certificates of nodes are approved automatically.
    pub approve_serving: bool,
    /// Whether approved CSRs are signed.
    pub sign: bool,
    /// The lifetime of signed certificates, unless a CSR requests less.
    pub certificate_lifetime: SignedDuration,
    /// The difference of the server's clock from the true time, effective before its certificates are issued.
    pub clock_ahead: SignedDuration,
    /// The true clock.
    pub clock: fn() -> Timestamp,
    /// The seed of UIDs and generated names; random if `None`.
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
            bookmarks: Duration::from_secs(60),
            idle: Duration::from_secs(90),
            goaway_chance: 0.0,
            largest_object: 3 * 512 * 1024,
            seats: [fairness::NODE_HIGH_SEATS, fairness::SYSTEM_SEATS],
            longest_wait: fairness::MAX_SEAT_WAIT,
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

/// The test's handle of the server. Dropping it ends everything of it.
pub(crate) struct FakeApi {
    shared: Arc<Shared>,
    address: SocketAddr,
    /// Bound but not listening: it reserves the port while the server is down.
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

    pub(crate) fn url(&self) -> String {
        format!("{}://{}", if self.uses_tls() { "https" } else { "http" }, self.address)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn uses_tls(&self) -> bool {
        self.shared.tls.is_some()
    }

    /// The CA certificate in PEM.
    pub(crate) fn authority_pem(&self) -> String {
        self.shared.authority().pem()
    }

    /// Makes the token authenticate as this identity.
    pub(crate) fn add_token(&self, token: &str, identity: &Identity) {
        self.change(|world| world.tokens.insert(token.to_owned(), identity.clone()));
    }

    pub(crate) fn remove_token(&self, token: &str) {
        self.change(|world| world.tokens.remove(token));
    }

    /// Allows members of the group to use the verb on a part of nodes, as SubjectAccessReviews report it.
    pub(crate) fn allow(&self, group: &str, verb: &str, part: &str) {
        self.change(|world| world.allowed.push([group, verb, part].map(str::to_owned)));
    }

    /// Sets the difference of the server's clock from the true time, in `Date` and in objects.
    pub(crate) fn set_clock_ahead(&self, ahead: SignedDuration) {
        self.change(|world| world.clock_ahead = ahead);
    }

    /// Overrides the lifetime of service account tokens.
    pub(crate) fn set_token_lifetime(&self, lifetime: Option<Duration>) {
        let seconds = lifetime.map(|lifetime| i64::try_from(lifetime.as_secs()).unwrap());
        self.change(|world| world.token_lifetime = seconds);
    }
}

/// Faults. The first matching rule that is not used up applies, besides delays.
impl FakeApi {
    /// Begins a fault for a verb such as `list`, a method such as `GET`, or everything (`*`), at a path in which `*`
    /// matches any text.
    pub(crate) fn on(&self, verb: &str, pattern: &str) -> On<'_> {
        On::new(self, verb, pattern)
    }

    pub(crate) fn clear_faults(&self) {
        self.change(|world| world.rules.clear());
    }

    /// Removes the faults scripted for this verb and path.
    pub(crate) fn clear_faults_on(&self, verb: &str, pattern: &str) {
        self.change(|world| world.rules.retain(|rule| !rule.is_of(verb, pattern)));
    }

    /// Releases the requests that `hold` blocks now.
    pub(crate) fn release(&self) {
        self.change(|world| world.released += 1);
    }

    /// Sends an order to the open watches at matching paths.
    pub(crate) fn order_watches(&self, pattern: &str, order: &WatchOrder) {
        self.change(|world| world.order_watches(pattern, order));
    }

    /// Sends GOAWAY on HTTP/2 connections; requests in flight continue.
    pub(crate) fn go_away(&self) {
        self.shared.go_away();
    }

    /// Drops the watch history: a watch from an older version expires.
    pub(crate) fn compact(&self) {
        self.change(|world| world.store.compact());
    }

    /// Advances the version, as writes to other resources would.
    pub(crate) fn pass_versions(&self, versions: u64) {
        self.change(|world| world.store.pass(versions));
    }
}

/// Observations.
impl FakeApi {
    /// Every request so far, in order of arrival.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.look(|world| world.requests.clone())
    }

    /// The requests with this verb or method and a matching path.
    pub(crate) fn requests_of(&self, verb: &str, pattern: &str) -> Vec<Request> {
        self.look(|world| world.requests_of(verb, pattern).cloned().collect())
    }

    pub(crate) fn count(&self, verb: &str, pattern: &str) -> usize {
        self.look(|world| world.requests_of(verb, pattern).count())
    }

    /// Number of accepted connections.
    pub(crate) fn connections_so_far(&self) -> usize {
        self.look(|world| world.connections.len())
    }

    /// Bytes received from and sent to clients, over all connections.
    pub(crate) fn traffic(&self) -> (u64, u64) {
        self.look(|world| {
            let sum = |bytes: fn(&world::Connection) -> u64| world.connections.iter().map(bytes).sum();
            (sum(world::Connection::bytes_received), sum(world::Connection::bytes_sent))
        })
    }

    /// Waits until `done` holds, and fails the test after a timeout.
    #[track_caller]
    pub(crate) fn wait_for(&self, what: &str, done: impl FnMut(&World) -> bool) {
        assert!(self.comes(PATIENCE, done), "waited in vain for {what}; there was asked:\n{}", self.asked());
    }

    /// Whether `done` comes to hold within this time.
    pub(crate) fn comes(&self, longest: Duration, mut done: impl FnMut(&World) -> bool) -> bool {
        let end = Instant::now() + longest;
        let mut world = lock(&self.shared.world);
        while !done(&world) {
            let Some(left) = end.checked_duration_since(Instant::now()) else { return false };
            world = self.shared.wait(world, left);
        }
        true
    }

    /// Waits until an object satisfies the condition, and returns it.
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

    #[track_caller]
    pub(crate) fn wait_gone_within(&self, path: &str, limit: Duration) {
        assert!(
            self.comes(limit, |world| world.get(path).is_none()),
            "{path} does not go; there was asked:\n{}",
            self.asked()
        );
    }

    /// Waits for the `count`th matching request.
    #[track_caller]
    pub(crate) fn wait_for_requests(&self, verb: &str, pattern: &str, count: usize) {
        let what = format!("{count} requests to {verb} {pattern}");
        self.wait_for(&what, |world| world.requests_of(verb, pattern).count() >= count);
    }

    /// Waits until this many watches are open at matching paths.
    #[track_caller]
    pub(crate) fn wait_for_watches(&self, pattern: &str, count: usize) {
        let fits = |path: &str| request_log::fits(pattern, path);
        self.wait_for(&format!("{count} watches of {pattern}"), |world| {
            world.watches.iter().filter(|watch| fits(&watch.path)).count() == count
        });
    }

    /// The requests so far, one per line.
    fn asked(&self) -> String {
        let line = |request: &Request| {
            let (verb, path, user) = (request.verb, &request.path, &request.identity.user);
            format!("{verb} {path} {:?} by {user}: {:?}\n", request.query, request.status)
        };
        self.look(|world| world.requests.iter().map(line).collect())
    }

    /// Upgradable as long as any thread of the server lives.
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
