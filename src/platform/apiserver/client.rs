//! The client: requests to one API server, over a connection that is made when it is needed.

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
use super::gate::{Gate, Pass};
use super::gzip;
use super::history;
use super::reconnect::{Comeback, spread};
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

/// A handle on the connection to the API server; clones share it.
#[derive(Clone)]
pub(crate) struct Client {
    inner: Rc<Inner>,
}

struct Inner {
    way: Rc<Way>,
    connector: Rc<Connector<Exchange>>,
    /// The server did not know who asks.
    unauthorized: Signal,
}

/// What it takes to connect.
struct Way {
    source: Source,
    dialer: Dialer,
    gate: Rc<Gate>,
    traffic: Rc<Traffic>,
    /// Host and port of the last try.
    server: RefCell<String>,
    /// Whom the last connection believes.
    authorities: RefCell<Vec<String>>,
    /// The server has begun another history of its objects.
    histories: Signal,
    /// When the last connection was lost, and how often somebody had not wanted to wait until then; `None` before the first.
    lost: Cell<Option<(Instant, u64)>>,
}

/// Where what it takes to connect comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// Read anew for each connection.
    Kubeconfig(PathBuf),
    Given(Box<Access>),
}

/// What the server has answered to a request that it has carried out.
#[derive(Debug)]
pub(crate) struct Answer {
    content: Vec<u8>,
}

/// The content of an answer that goes on for as long as the server has something to say.
pub(crate) struct Stream {
    ongoing: Ongoing,
    _client: Client,
    _pass: Option<Pass>,
}

/// No answer is larger: that is some thousand pods.
const LARGEST: usize = 32 << 20;
const BACKOFF_FIRST: Duration = Duration::from_millis(500);
const BACKOFF_MOST: Duration = Duration::from_secs(20);
/// A fleet whose server comes back does not arrive as one.
const SPREAD: f64 = 0.5;
/// From the name of the server to its first word.
const CONNECT: Duration = Duration::from_secs(15);
/// A server that knows the caller no more is asked with what stands on the disk now, so often at most.
const RENEW: Duration = Duration::from_secs(10);

impl Client {
    /// Nothing is connected before the first request.
    pub(crate) fn new(source: Source, dialer: Dialer) -> Self {
        Self::behind(Gate::none(), source, dialer)
    }

    /// Nothing is connected that the gate does not admit.
    pub(crate) fn behind(gate: Rc<Gate>, source: Source, dialer: Dialer) -> Self {
        Self::with(gate, Rc::default(), source, dialer)
    }

    /// One that asks with something else, behind the same gate; what it costs is counted together.
    pub(crate) fn beside(&self, source: Source, dialer: Dialer) -> Self {
        Self::with(Rc::clone(self.gate()), Rc::clone(&self.inner.way.traffic), source, dialer)
    }

    fn with(gate: Rc<Gate>, traffic: Rc<Traffic>, source: Source, dialer: Dialer) -> Self {
        let way = Way {
            source,
            dialer,
            gate,
            traffic,
            server: RefCell::default(),
            authorities: RefCell::default(),
            histories: Signal::default(),
            lost: Cell::default(),
        };
        let connector = Connector::new(Backoff::new(BACKOFF_FIRST, BACKOFF_MOST), SPREAD);
        let inner = Inner { way: Rc::new(way), connector: Rc::new(connector), unauthorized: Signal::default() };
        Self { inner: Rc::new(inner) }
    }

    /// One request, one answer, within the request's limit whatever happens. Dropping the future cancels it.
    ///
    /// While the gate does not admit it, it waits: that is no part of the limit.
    pub(crate) async fn send(&self, request: &Request) -> Result<Answer, ApiError> {
        let pass = self.pass(request).await?;
        let answer = self.send_in_time(request).await;
        pass.ended(is_answered(&answer));
        answer
    }

    async fn send_in_time(&self, request: &Request) -> Result<Answer, ApiError> {
        let begun = rt::now();
        let left = || request.limit.saturating_sub(rt::elapsed(begun));
        let mut tries = 1;
        loop {
            let error = match self.send_once(request, left()).await {
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

    async fn pass(&self, request: &Request) -> Result<Pass, ApiError> {
        if request.waits {
            self.gate().admitted(request.rank).await;
        } else if !self.gate().admits_now(request.rank) {
            return Err(ApiError::Unreachable("the API server is not asked now: see sync in coracle.yaml".into()));
        }
        Ok(self.gate().passes(request.rank))
    }

    /// Begins a request whose answer has no end. It returns when the server has taken it.
    pub(crate) async fn open(&self, request: &Request) -> Result<Stream, ApiError> {
        let pass = self.pass(request).await?;
        let opened = self.open_in_time(request).await;
        pass.ended(is_answered(&opened));
        // In an exchange everything is waited for; else it would be for ever.
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

    async fn send_once(&self, request: &Request, left: Duration) -> Result<Answer, ApiError> {
        let end = rt::now() + left;
        let (mut ongoing, begun) = self.begin(request, left).await?;
        let answer = async {
            let head = ongoing.head().await?;
            Ok((head, whole(&mut ongoing).await?))
        };
        let answer = rt::deadline(end.saturating_duration_since(rt::now()), answer).await;
        let Ok(answer) = answer else { return Err(self.give_up(ongoing, begun)) };
        let (head, content) = answer?;
        self.note(request, head.status, begun);
        let content = if head.is_gzip { gzip::inflate(&content, LARGEST)? } else { content };
        match head.is_success() {
            true => Ok(Answer { content }),
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
        // The connection may be the first one after an absence.
        if !self.is_admitted(request) {
            return Err(ApiError::NeverSent);
        }
        let head = request.head(&link.caller);
        Ok((link.begin(head, request.content().to_vec(), Exchange::default())?, begun))
    }

    /// Nobody waits any longer. A connection on which nothing at all has come meanwhile is dead, and with it every
    /// watch: the next request makes another.
    fn give_up(&self, ongoing: Ongoing, begun: Instant) -> ApiError {
        let error = if ongoing.is_unseen() { ApiError::NeverSent } else { ApiError::Timeout };
        let link = Rc::clone(&ongoing.link);
        drop(ongoing);
        if link.heard.get() <= begun {
            link.end(ApiError::Lost("nothing was heard any more".into()));
        }
        error
    }

    /// What stands on the disk may be newer than what the connection was made with.
    fn refused(&self, error: ApiError, link: &Link) -> ApiError {
        if error.is_unauthorized() {
            self.inner.unauthorized.notify();
        }
        if error.is_unauthorized() && rt::elapsed(link.made) >= RENEW {
            link.end(ApiError::Lost("the server does not know this client any more".into()));
        }
        error
    }

    /// Certificate, token or address have changed: what is asked from now on is asked with the new ones.
    pub(crate) fn renew(&self) {
        if let Some(link) = self.inner.connector.connected_link() {
            link.end(ApiError::Lost("what it takes to connect has changed".into()));
        }
        self.inner.connector.renewed();
    }

    /// What failed before says nothing of what is tried now.
    pub(crate) fn begin_anew(&self) {
        self.inner.connector.renewed();
    }

    /// Each time that the server does not know who asks.
    pub(crate) fn unauthorized(&self) -> &Signal {
        &self.inner.unauthorized
    }

    /// Host and port; empty before the first try.
    pub(crate) fn server(&self) -> String {
        self.inner.way.server.borrow().clone()
    }

    /// The digests of the certificates that are believed of the server; none before the first connection, and where
    /// everybody is believed.
    pub(crate) fn authorities(&self) -> Vec<String> {
        self.inner.way.authorities.borrow().clone()
    }

    /// The server's versions have gone back: whatever is followed is to be asked for anew.
    pub(crate) fn begin_history(&self) {
        self.inner.way.histories.notify();
    }

    /// Each time that the server has begun another history.
    pub(super) fn histories(&self) -> &Signal {
        &self.inner.way.histories
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.inner.connector.connected_link().is_some()
    }

    /// Why there is no connection, if one was tried.
    pub(crate) fn failure(&self) -> Option<ApiError> {
        self.inner.connector.failure()
    }

    pub(crate) fn traffic(&self) -> &Traffic {
        &self.inner.way.traffic
    }

    /// What may be asked now.
    pub(crate) fn gate(&self) -> &Rc<Gate> {
        &self.inner.way.gate
    }
}

/// That something is not there, or another, is an answer.
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

impl Answer {
    pub(crate) fn json(&self) -> Result<Value, ApiError> {
        serde_json::from_slice(&self.content).map_err(|error| ApiError::Malformed(error.to_string().into()))
    }

    /// The version of the object in it, if it says one; also of an answer that nobody reads otherwise.
    pub(crate) fn version(&self) -> Option<u64> {
        history::version(&self.content)
    }

    /// The answer as a type. Fields that the type does not have are passed over.
    pub(crate) fn decode<T: Decode>(&self) -> Result<T, ApiError> {
        let decoded = decode(self.json()?).map_err(|error| ApiError::Malformed(error.to_string().into()))?;
        Ok(decoded.value)
    }
}

impl Stream {
    /// What has come since the last time; `None` at the end. It waits for as long as the server is silent.
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

impl Way {
    async fn access(&self) -> Result<Access, ApiError> {
        match &self.source {
            Source::Given(access) => Ok(Access::clone(access)),
            Source::Kubeconfig(path) => {
                let path = path.clone();
                let access = rt::blocking(move || Access::load(&path)).await;
                access.map_err(|error| ApiError::Access(ErrorChain(&error).to_string().into()))
            }
        }
    }

    /// A connection comes about: what is asked over it, and when, if there was none for long.
    fn comes_back(&self) -> Option<Comeback> {
        let (moment, hurried) = self.lost.get()?;
        let most = spread(rt::elapsed(moment))?;
        let part =
            if self.gate.hurried.changes() == hurried { f64::from(rt::random()) / f64::from(u32::MAX) } else { 0.0 };
        let waits = most.map(|most| most.mul_f64(part));
        self.gate.is_open().then(|| Comeback::begin(&self.gate, waits))
    }

    async fn connect(&self) -> Result<(Access, Socket), ApiError> {
        let access = self.access().await?;
        self.server.replace(access.url.authority());
        let former = self.authorities.replace(access.authorities.clone());
        if !former.is_empty() && former != access.authorities {
            // It may be another cluster.
            self.histories.notify();
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

fn unreachable(access: &Access, why: &dyn fmt::Display) -> ApiError {
    ApiError::Unreachable(format!("connect to the API server {}: {why}", access.url.authority()).into())
}

/// The life of one connection, from the try to the loss, or until none may be held.
async fn run(connector: Weak<Connector<Exchange>>, attempt: Rc<Attempt<Exchange>>, way: Rc<Way>) {
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
            connector.give_up(&attempt, ApiError::Lost("no connection is held now".into()));
        }
    }
}

async fn live_open(connector: Weak<Connector<Exchange>>, attempt: Rc<Attempt<Exchange>>, way: Rc<Way>) {
    if let Some(moment) = attempt.not_before {
        rt::sleep_until(moment).await;
    }
    match way.connect().await {
        // With TLS 1.3 the server's first word is also that it does not want this client's certificate.
        Ok((access, socket)) => {
            let silent = |cause| unreachable(&access, &ended(&cause));
            let comeback = way.comes_back();
            let lives = live(&connector, &attempt, caller(&access), socket, CONNECT, silent);
            let comes_back = async {
                if let Some(comeback) = comeback {
                    comeback.run(&way.traffic).await;
                }
                std::future::pending().await
            };
            rt::either(lives, comes_back).await;
            // Where none came about, the absence goes on.
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

fn caller(access: &Access) -> Caller {
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

/// As the server's own log shows it.
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
        write!(f, "Client({:?})", self.inner.way.source)
    }
}
