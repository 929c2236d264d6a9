//! The client: requests to one API server, over a connection that is made when it is needed.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::path::PathBuf;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::ApiError;
use super::access::Access;
use super::connect::connect;
use super::gzip;
use super::history;
use super::link::{Link, Ongoing};
use super::request::{Caller, Request};
use super::retry;
use super::traffic::Traffic;
use crate::api::{Decode, UriScheme, decode};
use crate::error::ErrorChain;
use crate::net::Dialer;
use crate::rpc::{Signal, drive};
use crate::rt::{self, Task};
use crate::time::{Backoff, jitter};

/// A handle on the connection to the API server; clones share it.
#[derive(Clone)]
pub(crate) struct Client {
    inner: Rc<Inner>,
}

struct Inner {
    source: Source,
    dialer: Dialer,
    place: RefCell<Place>,
    backoff: RefCell<Backoff>,
    /// No try to connect before this moment.
    not_before: Cell<Option<Instant>>,
    /// Host and port of the last try.
    server: RefCell<String>,
    /// Why the last try failed; nothing once one has not.
    failure: RefCell<Option<ApiError>>,
    /// One for each connection that is not closed: those that the server is leaving still have requests to end.
    tasks: RefCell<Vec<Task<()>>>,
    traffic: Rc<Traffic>,
    /// The server did not know who asks.
    unauthorized: Signal,
    /// The server has begun another history of its objects.
    histories: Signal,
}

/// Where what it takes to connect comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// Read anew for each connection.
    Kubeconfig(PathBuf),
    Given(Box<Access>),
}

#[derive(Clone)]
enum Place {
    Away,
    Connecting(Rc<Attempt>),
    Connected(Rc<Link>),
}

/// A try to connect, for all requests that wait for it.
#[derive(Default)]
struct Attempt {
    outcome: RefCell<Option<Result<Rc<Link>, ApiError>>>,
    done: Signal,
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
}

/// No answer is larger: that is some thousand pods.
const LARGEST: usize = 32 << 20;
const BACKOFF_FIRST: Duration = Duration::from_millis(500);
const BACKOFF_MOST: Duration = Duration::from_secs(20);
/// From the name of the server to its first word.
const CONNECT: Duration = Duration::from_secs(15);
/// A server that knows the caller no more is asked with what stands on the disk now, so often at most.
const RENEW: Duration = Duration::from_secs(10);

impl Client {
    /// Nothing is connected before the first request.
    pub(crate) fn new(source: Source, dialer: Dialer) -> Self {
        let inner = Inner {
            source,
            dialer,
            place: RefCell::new(Place::Away),
            backoff: RefCell::new(Backoff::new(BACKOFF_FIRST, BACKOFF_MOST)),
            not_before: Cell::new(None),
            server: RefCell::default(),
            failure: RefCell::new(None),
            tasks: RefCell::new(Vec::new()),
            traffic: Rc::default(),
            unauthorized: Signal::default(),
            histories: Signal::default(),
        };
        Self { inner: Rc::new(inner) }
    }

    /// One request, one answer, within the request's limit whatever happens. Dropping the future cancels it.
    pub(crate) async fn send(&self, request: &Request) -> Result<Answer, ApiError> {
        let begun = Instant::now();
        let left = || request.limit.saturating_sub(begun.elapsed());
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

    /// Begins a request whose answer has no end. It returns when the server has taken it.
    pub(crate) async fn open(&self, request: &Request) -> Result<Stream, ApiError> {
        let (mut ongoing, begun) = self.begin(request, request.limit).await?;
        let left = request.limit.saturating_sub(begun.elapsed());
        let head = rt::deadline(left, ongoing.head()).await;
        let Ok(head) = head else { return Err(self.give_up(ongoing, begun)) };
        let head = head?;
        if head.is_success() {
            return Ok(Stream { ongoing, _client: self.clone() });
        }
        let left = request.limit.saturating_sub(begun.elapsed());
        match rt::deadline(left, whole(&mut ongoing)).await {
            Ok(content) => Err(self.refused(head.error(&content?), &ongoing.link)),
            Err(rt::Elapsed) => Err(self.give_up(ongoing, begun)),
        }
    }

    async fn send_once(&self, request: &Request, left: Duration) -> Result<Answer, ApiError> {
        let end = Instant::now() + left;
        let (mut ongoing, begun) = self.begin(request, left).await?;
        let answer = async {
            let head = ongoing.head().await?;
            Ok((head, whole(&mut ongoing).await?))
        };
        let answer = rt::deadline(end.saturating_duration_since(Instant::now()), answer).await;
        let Ok(answer) = answer else { return Err(self.give_up(ongoing, begun)) };
        let (head, content) = answer?;
        let content = if head.is_gzip { gzip::inflate(&content, LARGEST)? } else { content };
        match head.is_success() {
            true => Ok(Answer { content }),
            false => Err(self.refused(head.error(&content), &ongoing.link)),
        }
    }

    async fn begin(&self, request: &Request, left: Duration) -> Result<(Ongoing, Instant), ApiError> {
        let Ok(link) = rt::deadline(left, self.inner.link()).await else {
            let last = self.inner.failure.borrow().clone();
            return Err(last.unwrap_or(ApiError::NeverSent));
        };
        let begun = Instant::now();
        Ok((link?.begin(request)?, begun))
    }

    /// Nobody waits any longer. A connection on which nothing at all has come meanwhile is dead, and with it every
    /// watch: the next request makes another.
    fn give_up(&self, ongoing: Ongoing, begun: Instant) -> ApiError {
        let link = Rc::clone(&ongoing.link);
        let error = ongoing.give_up();
        if link.heard.get() <= begun {
            link.end("nothing was heard any more");
        }
        error
    }

    /// What stands on the disk may be newer than what the connection was made with.
    fn refused(&self, error: ApiError, link: &Link) -> ApiError {
        if error.is_unauthorized() {
            self.inner.unauthorized.notify();
        }
        if error.is_unauthorized() && link.made.elapsed() >= RENEW {
            link.end("the server does not know this client any more");
        }
        error
    }

    /// Certificate, token or address have changed: what is asked from now on is asked with the new ones.
    pub(crate) fn renew(&self) {
        let place = self.inner.place.borrow().clone();
        if let Place::Connected(link) = place {
            link.end("what it takes to connect has changed");
        }
        self.inner.backoff.borrow_mut().reset();
        self.inner.not_before.set(None);
    }

    /// Each time that the server does not know who asks.
    pub(crate) fn unauthorized(&self) -> &Signal {
        &self.inner.unauthorized
    }

    /// Host and port; empty before the first try.
    pub(crate) fn server(&self) -> String {
        self.inner.server.borrow().clone()
    }

    /// The server's versions have gone back: whatever is followed is to be asked for anew.
    pub(crate) fn begin_history(&self) {
        self.inner.histories.notify();
    }

    /// Each time that the server has begun another history.
    pub(super) fn histories(&self) -> &Signal {
        &self.inner.histories
    }

    pub(crate) fn is_connected(&self) -> bool {
        matches!(&*self.inner.place.borrow(), Place::Connected(link) if link.takes_calls())
    }

    /// Why there is no connection, if one was tried.
    pub(crate) fn failure(&self) -> Option<ApiError> {
        self.inner.failure.borrow().clone()
    }

    pub(crate) fn traffic(&self) -> &Traffic {
        &self.inner.traffic
    }
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
    /// The connection for a request: the one there is, or the next one that comes about.
    async fn link(self: &Rc<Self>) -> Result<Rc<Link>, ApiError> {
        let place = self.place.borrow().clone();
        let attempt = match place {
            Place::Connected(link) if link.takes_calls() => return Ok(link),
            Place::Connected(_) | Place::Away => self.connect(),
            Place::Connecting(attempt) => attempt,
        };
        attempt.done.beyond(0).await;
        let outcome = attempt.outcome.borrow().clone();
        // `done` comes after the outcome.
        outcome.unwrap_or(Err(ApiError::NeverSent))
    }

    fn connect(self: &Rc<Self>) -> Rc<Attempt> {
        let attempt = Rc::new(Attempt::default());
        self.place.replace(Place::Connecting(Rc::clone(&attempt)));
        let task = rt::spawn(run(Rc::downgrade(self), Rc::clone(&attempt)));
        let mut tasks = self.tasks.borrow_mut();
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
        attempt
    }

    fn connected(&self, link: &Rc<Link>) {
        self.backoff.borrow_mut().reset();
        self.failure.take();
        self.place.replace(Place::Connected(Rc::clone(link)));
    }

    /// The waits are stretched, each by another bit: a fleet whose server comes back does not arrive as one.
    fn failed(&self, error: &ApiError) {
        self.failure.replace(Some(error.clone()));
        let wait = jitter(self.backoff.borrow_mut().next_wait(), 0.5, rt::random());
        self.not_before.set(Instant::now().checked_add(wait));
        self.place.replace(Place::Away);
    }

    fn lost(&self, link: &Rc<Link>) {
        let current = matches!(&*self.place.borrow(), Place::Connected(current) if Rc::ptr_eq(current, link));
        if current {
            self.place.replace(Place::Away);
        }
    }

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
}

impl Attempt {
    fn finish(&self, outcome: Result<Rc<Link>, ApiError>) {
        *self.outcome.borrow_mut() = Some(outcome);
        self.done.notify();
    }
}

/// The life of one connection, from the try to the loss.
async fn run(client: Weak<Inner>, attempt: Rc<Attempt>) {
    let not_before = client.upgrade().and_then(|client| client.not_before.take());
    if let Some(moment) = not_before {
        rt::sleep_until(moment).await;
    }
    let Some(inner) = client.upgrade() else { return };
    let access = match inner.access().await {
        Ok(access) => access,
        Err(error) => {
            inner.failed(&error);
            return attempt.finish(Err(error));
        }
    };
    inner.server.replace(access.url.authority());
    let unreachable = |why: &dyn fmt::Display| {
        ApiError::Unreachable(format!("connect to the API server {}: {why}", access.url.authority()).into())
    };
    let link = Rc::new(Link::new(caller(&access), Instant::now()));
    let socket = {
        let connecting = connect(&inner.dialer, &access, &inner.traffic);
        rt::deadline(CONNECT, connecting).await
    };
    drop(inner);
    let lost = match socket {
        Err(rt::Elapsed) => Err(unreachable(&rt::Elapsed)),
        Ok(Err(error)) => Err(unreachable(&ErrorChain(&error))),
        Ok(Ok(socket)) => {
            let (mut reader, mut writer) = (socket.clone(), socket);
            let mut driven = pin!(drive(&mut reader, &mut writer, &*link));
            let ready = async {
                link.ready().await;
                None
            };
            let early = async { Some(driven.as_mut().await) };
            // A server counts as connected when it has answered: a request never leaves to one that has not. With TLS
            // 1.3 it says only now that it does not want this client's certificate.
            match rt::deadline(CONNECT, rt::either(ready, early)).await {
                Err(rt::Elapsed) => Err(unreachable(&rt::Elapsed)),
                Ok(Some(Ok(()))) => Err(unreachable(&"the server has closed the connection")),
                Ok(Some(Err(error))) => Err(unreachable(&ErrorChain(&error))),
                Ok(None) => {
                    if let Some(client) = client.upgrade() {
                        client.connected(&link);
                    }
                    attempt.finish(Ok(Rc::clone(&link)));
                    Ok(driven.await)
                }
            }
        }
    };
    match lost {
        Err(error) => {
            if let Some(client) = client.upgrade() {
                client.failed(&error);
            }
            attempt.finish(Err(error));
        }
        Ok(ended) => {
            let why = ended.err().map(|error| ErrorChain(&error).to_string());
            link.end(why.as_deref().unwrap_or("the server has closed it"));
            if let Some(client) = client.upgrade() {
                client.lost(&link);
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
        write!(f, "Client({:?})", self.inner.source)
    }
}
