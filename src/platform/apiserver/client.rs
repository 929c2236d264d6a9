//! The client: requests to one API server over a connection that is made on demand.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::ApiError;
use super::access::Access;
use super::connect::{Socket, connect};
use super::exchange::{Exchange, Link, Ongoing, ended};
use super::gate::{Gate, GatePass};
use super::gzip;
use super::history::{self, History};
use super::reconnect::{Overload, ReconnectGuard, spread};
use super::request::{Caller, Request};
use super::retry;
use super::traffic::Traffic;
use crate::platform::net::Dialer;
use crate::platform::rpc::{Attempt, Connector, Signal, live};
use crate::platform::rt;
use crate::types::api::{Decode, UriScheme, decode};
use crate::types::error::ErrorChain;
use crate::types::metrics::{self, Count, Timed};
use crate::types::time::Backoff;

/// A handle on the connection to the API server. Clones share it.
#[derive(Clone)]
pub(crate) struct Client {
    inner: Rc<Inner>,
}

struct Inner {
    way: Rc<Transport>,
    connector: Rc<Connector<Exchange>>,
    /// Notified on each 401.
    unauthorized: Signal,
}

/// Everything needed to connect.
struct Transport {
    /// Loaded for each connection.
    kubeconfig: PathBuf,
    dialer: Dialer,
    gate: Rc<Gate>,
    traffic: Rc<Traffic>,
    /// Host and port of the last attempt.
    server: RefCell<String>,
    /// The CAs trusted by the last connection.
    authorities: RefCell<Vec<String>>,
    /// Notified when the server's history of objects has changed.
    histories: Signal,
    /// The newest resource version of the watches in this history.
    watched: Cell<Option<u64>>,
    overload: Overload,
    /// When the last connection was lost, and `hurried`'s count at that time; `None` before the first connection.
    lost: Cell<Option<(Instant, u64)>>,
}

/// A successful response.
#[derive(Debug)]
pub(crate) struct ApiResponse {
    content: Vec<u8>,
}

/// The content of a watch or another response without end.
pub(crate) struct Stream {
    ongoing: Ongoing,
    _client: Client,
    _pass: Option<GatePass>,
}

/// Upper bound on a response: some thousand pods.
pub(super) const LARGEST: usize = 32 << 20;
const BACKOFF_FIRST: Duration = Duration::from_millis(500);
const BACKOFF_MOST: Duration = Duration::from_secs(20);
/// The longest delay in about the first two minutes, so that the client soon notices a server that is back.
const BACKOFF_EARLY: Duration = Duration::from_secs(1);
const EARLY_ATTEMPTS: u32 = 90;
/// Jitter, so that a fleet does not reconnect all at once.
const SPREAD: f64 = 0.5;
/// From resolving the server's name to its first bytes.
const CONNECT: Duration = Duration::from_secs(15);
/// Minimum interval between reconnects with reloaded credentials after a 401.
const RENEW: Duration = Duration::from_secs(10);

impl Client {
    /// Connects on the first request, and only while the gate admits requests.
    pub(crate) fn behind(gate: Rc<Gate>, kubeconfig: PathBuf, dialer: Dialer) -> Self {
        Self::with(gate, Rc::default(), kubeconfig, dialer)
    }

    /// A client with another kubeconfig behind the same gate. Both count into the same traffic.
    pub(crate) fn beside(&self, kubeconfig: PathBuf, dialer: Dialer) -> Self {
        Self::with(Rc::clone(self.gate()), Rc::clone(&self.inner.way.traffic), kubeconfig, dialer)
    }

    fn with(gate: Rc<Gate>, traffic: Rc<Traffic>, kubeconfig: PathBuf, dialer: Dialer) -> Self {
        let way = Transport {
            kubeconfig,
            dialer,
            gate,
            traffic,
            server: RefCell::default(),
            authorities: RefCell::default(),
            histories: Signal::default(),
            watched: Cell::default(),
            overload: Overload::default(),
            lost: Cell::default(),
        };
        let backoff = Backoff::new(BACKOFF_FIRST, BACKOFF_MOST);
        // Where bytes are counted, they are not spent on frequent attempts.
        let backoff = match way.gate.budget() {
            None => backoff.with_early_limit(BACKOFF_EARLY, EARLY_ATTEMPTS),
            Some(_) => backoff,
        };
        let connector = Connector::new(backoff, SPREAD);
        let inner = Inner { way: Rc::new(way), connector: Rc::new(connector), unauthorized: Signal::default() };
        Self { inner: Rc::new(inner) }
    }

    /// Sends a request and returns its response within the request's limit. Dropping the future cancels it.
    ///
    /// Time spent waiting at the gate does not count against the limit.
    pub(crate) async fn send(&self, request: &Request) -> Result<ApiResponse, ApiError> {
        let pass = self.pass(request).await?;
        let answer = in_time(request, async |left| self.send_once(request, left).await).await;
        pass.ended(is_answered(&answer));
        answer
    }

    async fn pass(&self, request: &Request) -> Result<GatePass, ApiError> {
        if request.waits {
            self.gate().admitted(request.rank).await;
        } else if !self.gate().admits_now(request.rank) {
            return Err(ApiError::Unreachable("API server sync is paused: see coracle.yaml".into()));
        }
        Ok(self.gate().passes(request.rank))
    }

    /// Sends a request whose response has no end. Returns once the server has accepted it.
    pub(crate) async fn open(&self, request: &Request) -> Result<Stream, ApiError> {
        let pass = self.pass(request).await?;
        let opened = self.open_in_time(request).await;
        pass.ended(is_answered(&opened));
        // A round ends when all of its requests have; an open gate never waits for a stream.
        let pass = (!self.gate().is_open()).then_some(pass);
        opened.map(|ongoing| Stream { ongoing, _client: self.clone(), _pass: pass })
    }

    async fn open_in_time(&self, request: &Request) -> Result<Ongoing, ApiError> {
        let (mut ongoing, begun) = self.begin(request, request.limit).await?;
        let left = request.limit.saturating_sub(rt::elapsed(begun));
        let head = rt::deadline(left, ongoing.head()).await;
        let Ok(head) = head else { return Err(self.give_up(ongoing, begun)) };
        let head = head?;
        if head.is_success() {
            return Ok(ongoing);
        }
        let left = request.limit.saturating_sub(rt::elapsed(begun));
        match rt::deadline(left, whole(&mut ongoing)).await {
            Ok(content) => Err(self.refused(head.error(&content?), &ongoing.link)),
            Err(rt::Elapsed) => Err(self.give_up(ongoing, begun)),
        }
    }

    async fn send_once(&self, request: &Request, left: Duration) -> Result<ApiResponse, ApiError> {
        let end = rt::now() + left;
        let (mut ongoing, begun) = self.begin(request, left).await?;
        let answer = async {
            let head = ongoing.head().await?;
            Ok((head, whole(&mut ongoing).await?))
        };
        let answer = rt::deadline(end.saturating_duration_since(rt::now()), answer).await;
        let Ok(answer) = answer else { return Err(self.give_up(ongoing, begun)) };
        let (head, content) = answer?;
        self.inner.way.overload.answered(rt::elapsed(begun));
        self.note(request, head.status, begun);
        let content = if head.is_gzip { gzip::inflate(&content, LARGEST)? } else { content };
        match head.is_success() {
            true => Ok(ApiResponse { content }),
            false => Err(self.refused(head.error(&content), &ongoing.link)),
        }
    }

    fn is_admitted(&self, request: &Request) -> bool {
        let (gate, rank) = (self.gate(), request.rank);
        if request.waits { gate.admits(rank) } else { gate.admits_now(rank) }
    }

    fn note(&self, request: &Request, code: u16, begun: Instant) {
        let (host, method) = (self.inner.way.server.borrow(), request.method());
        metrics::count(Count::RestRequests, &[&code.to_string(), &host, method]);
        metrics::took(Timed::RestRequests, &[&host, method], rt::elapsed(begun));
    }

    async fn begin(&self, request: &Request, left: Duration) -> Result<(Ongoing, Instant), ApiError> {
        if !self.is_admitted(request) {
            return Err(ApiError::NeverSent);
        }
        let Ok(link) = rt::deadline(left, self.inner.link()).await else {
            return Err(self.inner.connector.failure().unwrap_or(ApiError::NeverSent));
        };
        let (link, begun) = (link?, rt::now());
        // The new connection may be the first one after an absence, which narrows the gate.
        if !self.is_admitted(request) {
            return Err(ApiError::NeverSent);
        }
        let head = request.head(&link.caller);
        Ok((link.begin(head, request.content().to_vec(), Exchange::default())?, begun))
    }

    /// Abandons a request at its deadline. A connection on which nothing has arrived since the request is dead, as are
    /// its watches: it is closed, and the next request makes a new one.
    fn give_up(&self, ongoing: Ongoing, begun: Instant) -> ApiError {
        let error = if ongoing.is_unseen() { ApiError::NeverSent } else { ApiError::Timeout };
        self.inner.way.overload.shows();
        let link = Rc::clone(&ongoing.link);
        drop(ongoing);
        if link.last_received.get() <= begun {
            link.end(ApiError::Lost("no data received".into()));
        }
        error
    }

    /// Closes the connection after a 401, as the credentials on disk may be newer than those of the connection.
    fn refused(&self, error: ApiError, link: &Link) -> ApiError {
        if matches!(&error, ApiError::Refused(status) if status.code == 429 || status.retry_after.is_some()) {
            self.inner.way.overload.shows();
        }
        if error.is_unauthorized() {
            self.inner.unauthorized.notify();
        }
        if error.is_unauthorized() && rt::elapsed(link.made) >= RENEW {
            link.end(ApiError::Lost("client is no longer authorized".into()));
        }
        error
    }

    /// Closes the connection after certificate, token or address have changed. The next request uses the new ones.
    pub(crate) fn renew(&self) {
        if let Some(link) = self.inner.connector.connected_link() {
            link.end(ApiError::Lost("address or credentials changed".into()));
        }
        self.inner.connector.renewed();
    }

    /// Resets the back-off.
    pub(crate) fn reset_backoff(&self) {
        self.inner.connector.renewed();
    }

    /// Notified on each 401.
    pub(crate) fn unauthorized(&self) -> &Signal {
        &self.inner.unauthorized
    }

    /// Host and port; empty before the first attempt.
    pub(crate) fn server(&self) -> String {
        self.inner.way.server.borrow().clone()
    }

    /// The digests of the CAs trusted by the connection; empty before the first one, and if any certificate is
    /// accepted.
    pub(crate) fn authorities(&self) -> Vec<String> {
        self.inner.way.authorities.borrow().clone()
    }

    /// Restarts all reflectors, because what they watch is no longer true.
    pub(crate) fn begin_history(&self) {
        self.inner.way.begin_history();
    }

    /// Restarts all reflectors if the version of a write shows that the server was restored; see [`History::breaks_at`].
    pub(crate) fn on_written(&self, history: &mut History, version: Option<u64>, watched: Option<u64>) {
        if history.breaks_at(self.histories().changes(), version, watched) {
            self.on_restored();
        }
    }

    /// The server was restored to an older state, or its watches are wrong.
    pub(crate) fn on_restored(&self) {
        log!(warn, "API server was restored to an older state, relisting all objects");
        self.begin_history();
    }

    /// The newest resource version that watches have shown.
    pub(crate) fn watched_version(&self) -> Option<u64> {
        self.inner.way.watched.get()
    }

    /// A list or a watch has shown this version.
    pub(super) fn note_watched(&self, version: Option<u64>) {
        let watched = &self.inner.way.watched;
        watched.set(watched.get().max(version));
    }

    /// Notified when the server's history of objects has changed.
    pub(super) fn histories(&self) -> &Signal {
        &self.inner.way.histories
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.inner.connector.connected_link().is_some()
    }

    /// Why there is no connection, if an attempt has failed.
    pub(crate) fn failure(&self) -> Option<ApiError> {
        self.inner.connector.failure()
    }

    pub(crate) fn traffic(&self) -> &Traffic {
        &self.inner.way.traffic
    }

    /// The gate that admits requests.
    pub(crate) fn gate(&self) -> &Rc<Gate> {
        &self.inner.way.gate
    }
}

/// Sends a request within its limit, and repeats it after a failure that may pass. `send` gets the rest of the limit.
pub(super) async fn in_time(
    request: &Request,
    send: impl AsyncFn(Duration) -> Result<ApiResponse, ApiError>,
) -> Result<ApiResponse, ApiError> {
    let begun = rt::now();
    let left = || request.limit.saturating_sub(rt::elapsed(begun));
    let mut tries = 1;
    loop {
        let error = match send(left()).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        match retry::wait(&error, request.is_idempotent(), tries, left(), rt::random()) {
            Some(wait) => rt::sleep(wait).await,
            None => return Err(error),
        }
        tries += 1;
    }
}

/// NotFound and Conflict are answers too.
fn is_answered<T>(answer: &Result<T, ApiError>) -> bool {
    answer.as_ref().map_or_else(|error| matches!(error.code(), Some(404 | 409)), |_| true)
}

async fn whole(ongoing: &mut Ongoing) -> Result<Vec<u8>, ApiError> {
    let mut content = Vec::new();
    while let Some(more) = ongoing.content().await? {
        if content.is_empty() {
            content = more;
        } else {
            content.extend_from_slice(&more);
        }
        if content.len() > LARGEST {
            return Err(ApiError::Malformed(format!("longer than {LARGEST} bytes").into()));
        }
    }
    Ok(content)
}

impl ApiResponse {
    pub(super) fn of(content: Vec<u8>) -> Self {
        Self { content }
    }

    pub(crate) fn json(&self) -> Result<Value, ApiError> {
        serde_json::from_slice(&self.content).map_err(|error| ApiError::Malformed(error.to_string().into()))
    }

    /// The resource version of the object in the response, if it has one; also for responses read as raw bytes.
    pub(crate) fn version(&self) -> Option<u64> {
        history::version(&self.content)
    }

    /// Decodes the response, ignoring unknown fields.
    pub(crate) fn decode<T: Decode>(&self) -> Result<T, ApiError> {
        let decoded = decode(self.json()?).map_err(|error| ApiError::Malformed(error.to_string().into()))?;
        Ok(decoded.value)
    }
}

impl Stream {
    /// The next part of the content; `None` at the end. Has no timeout.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, ApiError> {
        self.ongoing.content().await
    }
}

impl Inner {
    async fn link(&self) -> Result<Rc<Link>, ApiError> {
        let connect = |attempt| rt::spawn(run(Rc::downgrade(&self.connector), attempt, Rc::clone(&self.way)));
        self.connector.link(connect).await
    }
}

impl Transport {
    async fn access(&self) -> Result<Access, ApiError> {
        let path = self.kubeconfig.clone();
        let access = rt::blocking(move || Access::load(&path)).await;
        access.map_err(|error| ApiError::Access(ErrorChain(&error).to_string().into()))
    }

    /// The pacing of requests on a new connection after a long absence; `None` without one.
    fn comes_back(&self) -> Option<ReconnectGuard> {
        let (moment, hurried) = self.lost.get()?;
        let most = spread(rt::elapsed(moment))?;
        let part =
            if self.gate.hurried.changes() == hurried { f64::from(rt::random()) / f64::from(u32::MAX) } else { 0.0 };
        self.gate.is_open().then(|| ReconnectGuard::begin(&self.gate, most, part))
    }

    fn begin_history(&self) {
        self.watched.set(None);
        self.histories.notify();
    }

    async fn connect(&self) -> Result<(Access, Socket), ApiError> {
        let access = self.access().await?;
        self.server.replace(access.url.authority());
        let former = self.authorities.replace(access.authorities.clone());
        if !former.is_empty() && former != access.authorities {
            // The address may belong to another cluster.
            self.begin_history();
        }
        let socket = rt::deadline(CONNECT, connect(&self.dialer, &access, &self.traffic)).await;
        let socket = match socket {
            Ok(Ok(socket)) => Ok(socket),
            Ok(Err(error)) => Err(unreachable(&access, &ErrorChain(&error))),
            Err(rt::Elapsed) => Err(unreachable(&access, &rt::Elapsed)),
        };
        Ok((access, socket?))
    }
}

pub(super) fn unreachable(access: &Access, why: &dyn fmt::Display) -> ApiError {
    ApiError::Unreachable(format!("connect to the API server {}: {why}", access.url.authority()).into())
}

/// The life of one connection, from the attempt until it is lost or the gate is shut.
async fn run(connector: Weak<Connector<Exchange>>, attempt: Rc<Attempt<Exchange>>, way: Rc<Transport>) {
    let gate = Rc::clone(&way.gate);
    let shut = async {
        gate.shut().await;
        true
    };
    let lived = async {
        live_open(connector.clone(), Rc::clone(&attempt), way).await;
        false
    };
    if rt::either(lived, shut).await {
        if let Some(connector) = connector.upgrade() {
            connector.give_up(&attempt, ApiError::Lost("connection closed by sync settings".into()));
        }
    }
}

async fn live_open(connector: Weak<Connector<Exchange>>, attempt: Rc<Attempt<Exchange>>, way: Rc<Transport>) {
    if let Some(moment) = attempt.not_before {
        rt::sleep_until(moment).await;
    }
    match way.connect().await {
        // In TLS 1.3 the server rejects a client certificate only in its first bytes after the handshake.
        Ok((access, socket)) => {
            let silent = |cause| unreachable(&access, &ended(&cause));
            let comeback = way.comes_back();
            let lives = live(&connector, &attempt, caller(&access), socket, CONNECT, silent);
            let comes_back = async {
                if let Some(comeback) = comeback {
                    comeback.run(&way.traffic, &way.overload).await;
                }
                std::future::pending().await
            };
            rt::either(lives, comes_back).await;
            // Without a connection, the absence continues.
            if attempt.came_about() {
                way.lost.set(Some((rt::now(), way.gate.hurried.changes())));
            }
        }
        Err(error) => {
            if let Some(connector) = connector.upgrade() {
                connector.failed(&attempt, error);
            }
        }
    }
}

pub(super) fn caller(access: &Access) -> Caller {
    Caller {
        scheme: match access.url.scheme {
            UriScheme::Http => "http",
            UriScheme::Https => "https",
        },
        authority: access.url.authority(),
        prefix: access.url.target.trim_end_matches('/').to_owned(),
        agent: agent(),
        token: access.token.clone(),
    }
}

/// The user agent.
fn agent() -> String {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        arch => arch,
    };
    format!("coracle/{} (linux/{arch})", env!("CARGO_PKG_VERSION"))
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({:?})", self.inner.way.kubeconfig)
    }
}
