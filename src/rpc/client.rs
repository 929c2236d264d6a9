//! The client: calls to one Unix socket, over a connection that is made when it is needed.
//!
//! ```text
//!          a call                    the peer's SETTINGS
//!   Away ----------> Connecting ------------------------> Connected
//!    ^                   | failed: the next try waits          |
//!    |<------------------'  or for a new socket               |
//!    '------------------- lost, or the peer goes away ---------'
//! ```

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Error;
use super::appearance::{self, Identity};
use super::drive::drive;
use super::link::{Answers, Caller, Link, Ongoing};
use super::signal::Signal;
use crate::rt::{self, Task, UnixStream};
use crate::time::Backoff;
use crate::wire::grpc;

/// A handle on the connection to one endpoint; clones share it.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Rc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    endpoint: Arc<str>,
    place: RefCell<Place>,
    backoff: RefCell<Backoff>,
    /// No try to connect before this moment, unless the socket is made anew.
    not_before: Cell<Option<Instant>>,
    /// Why the last try failed.
    failure: RefCell<Option<Arc<io::Error>>>,
    /// The socket at the last try.
    tried: Cell<Option<Identity>>,
    /// One for each connection that is not closed: those that the peer is leaving still have calls to end.
    tasks: RefCell<Vec<Task<()>>>,
    /// Notified when a connection is made and when it is lost, in turn.
    changed: Signal,
}

#[derive(Clone, Debug)]
enum Place {
    Away,
    Connecting(Rc<Attempt>),
    Connected(Rc<Link>),
}

/// A try to connect, for all calls that wait for it.
#[derive(Debug, Default)]
struct Attempt {
    outcome: RefCell<Option<Result<Rc<Link>, Arc<io::Error>>>>,
    done: Signal,
}

impl Client {
    /// `endpoint` is `unix:///path` or a path. Nothing is connected before the first call.
    pub fn new(endpoint: &str) -> Self {
        let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
        let inner = Inner {
            path: PathBuf::from(path),
            endpoint: Arc::from(endpoint),
            place: RefCell::new(Place::Away),
            backoff: RefCell::new(Backoff::new(BACKOFF_FIRST, BACKOFF_MOST)),
            not_before: Cell::new(None),
            failure: RefCell::new(None),
            tried: Cell::new(None),
            tasks: RefCell::new(Vec::new()),
            changed: Signal::default(),
        };
        Self { inner: Rc::new(inner) }
    }

    /// One request, one answer. `method` is the path, as `/runtime.v1.RuntimeService/Version`. The call ends within
    /// `timeout` whatever happens; dropping the future cancels it.
    pub async fn unary(&self, method: &'static str, request: Vec<u8>, timeout: Duration) -> Result<Vec<u8>, Error> {
        let request = grpc::frame_message(request).map_err(|_| Error::NeverSent)?;
        let begun = Instant::now();
        match self.unary_once(method, request.clone(), timeout).await {
            // The peer was leaving as the call began. Its successor gets it, once.
            Err(Error::NeverSent) => self.unary_once(method, request, timeout.saturating_sub(begun.elapsed())).await,
            outcome => outcome,
        }
    }

    async fn unary_once(&self, method: &'static str, request: Vec<u8>, timeout: Duration) -> Result<Vec<u8>, Error> {
        let begun = Instant::now();
        let Ok(link) = rt::deadline(timeout, self.inner.link()).await else {
            let last = self.inner.failure.borrow().clone();
            return Err(self.inner.connect_error(last.unwrap_or_else(|| Arc::new(io::ErrorKind::TimedOut.into()))));
        };
        let left = timeout.saturating_sub(begun.elapsed());
        let ongoing = link?.begin(method, request, Some(left), Answers::One);
        let mut ongoing = ongoing.map_err(|_| Error::NeverSent)?;
        match rt::deadline(left, ongoing.only()).await {
            Ok(answer) => answer,
            Err(rt::Elapsed) => Err(ongoing.give_up()),
        }
    }

    /// One request, any number of answers. It returns when the request is on its way.
    pub async fn server_streaming(&self, method: &'static str, request: Vec<u8>) -> Result<Streaming, Error> {
        let request = grpc::frame_message(request).map_err(|_| Error::NeverSent)?;
        let link = self.inner.link().await?;
        let ongoing = link.begin(method, request, None, Answers::Many).map_err(|_| Error::NeverSent)?;
        Ok(Streaming { ongoing, _client: self.clone() })
    }

    /// Sees the connection come and go from now on.
    pub fn watch(&self) -> Watch {
        Watch { client: self.clone(), seen: self.inner.changed.changes() }
    }
}

/// The answers of a call, one by one. Dropping it cancels the call.
#[derive(Debug)]
pub struct Streaming {
    ongoing: Ongoing,
    /// The connection lives as long as a client does.
    _client: Client,
}

impl Streaming {
    /// The next message; `None` once the peer has ended the call well. It waits for as long as the peer is silent.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        self.ongoing.next().await
    }
}

/// An observer of the connection.
#[derive(Debug)]
pub struct Watch {
    client: Client,
    /// The changes that were told; each one is, however fast they come.
    seen: u64,
}

impl Watch {
    /// Waits for the next change: `true` when a connection was made, `false` when it was lost.
    pub async fn changed(&mut self) -> bool {
        self.client.inner.changed.beyond(self.seen).await;
        self.seen += 1;
        // Away at first, and each change is to the other state.
        self.seen % 2 == 1
    }
}

impl Inner {
    /// The connection for a call: the one there is, or the next one that comes about.
    async fn link(self: &Rc<Self>) -> Result<Rc<Link>, Error> {
        let place = self.place.borrow().clone();
        let attempt = match place {
            Place::Connected(link) if link.takes_calls() => return Ok(link),
            Place::Connected(_) | Place::Away => self.connect(),
            Place::Connecting(attempt) => attempt,
        };
        attempt.done.beyond(0).await;
        let outcome = attempt.outcome.borrow().clone();
        match outcome {
            Some(Ok(link)) => Ok(link),
            Some(Err(cause)) => Err(self.connect_error(cause)),
            // `done` comes after the outcome.
            None => Err(Error::NeverSent),
        }
    }

    fn connect(self: &Rc<Self>) -> Rc<Attempt> {
        let attempt = Rc::new(Attempt::default());
        self.move_to(Place::Connecting(Rc::clone(&attempt)));
        let task = rt::spawn(run(Rc::downgrade(self), Rc::clone(&attempt), self.path.clone(), self.not_before.take()));
        let mut tasks = self.tasks.borrow_mut();
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
        attempt
    }

    fn connect_error(&self, cause: Arc<io::Error>) -> Error {
        Error::Connect { endpoint: Arc::clone(&self.endpoint), cause }
    }

    fn move_to(&self, place: Place) {
        let is_connected = |place: &Place| matches!(place, Place::Connected(_));
        let now = is_connected(&place);
        let before = self.place.replace(place);
        if is_connected(&before) != now {
            self.changed.notify();
        }
    }

    fn connected(&self, link: Rc<Link>) {
        self.backoff.borrow_mut().reset();
        self.failure.take();
        self.move_to(Place::Connected(link));
    }

    /// The server is back: what failed before says nothing of it.
    fn renewed(&self) {
        self.backoff.borrow_mut().reset();
    }

    fn failed(&self, cause: &Arc<io::Error>) {
        self.failure.replace(Some(Arc::clone(cause)));
        self.not_before.set(Instant::now().checked_add(self.backoff.borrow_mut().next_wait()));
        self.move_to(Place::Away);
    }

    /// Calls may already be on their way through another connection.
    fn lost(&self, link: &Rc<Link>) {
        let current = matches!(&*self.place.borrow(), Place::Connected(current) if Rc::ptr_eq(current, link));
        if current {
            self.move_to(Place::Away);
        }
    }
}

impl Attempt {
    fn finish(&self, outcome: Result<Rc<Link>, Arc<io::Error>>) {
        *self.outcome.borrow_mut() = Some(outcome);
        self.done.notify();
    }
}

/// The life of one connection, from the try to the loss.
async fn run(client: Weak<Inner>, attempt: Rc<Attempt>, path: PathBuf, not_before: Option<Instant>) {
    if let Some(moment) = not_before {
        wait(&client, &path, moment).await;
    }
    if let Some(client) = client.upgrade() {
        client.tried.set(Identity::of(&path));
    }
    let link = Rc::new(Link::new(Caller::to_local()));
    let lost = match rt::deadline(CONNECT, UnixStream::connect(&path)).await {
        Err(rt::Elapsed) => Err(io::ErrorKind::TimedOut.into()),
        Ok(Err(error)) => Err(error),
        Ok(Ok(stream)) => {
            let (mut reader, mut writer) = (stream.clone(), stream);
            let mut driven = pin!(drive(&mut reader, &mut writer, &*link));
            let ready = async {
                link.ready().await;
                None
            };
            let early = async { Some(driven.as_mut().await) };
            // A peer counts as connected when it has answered: a call never leaves to one that has not.
            match rt::deadline(CONNECT, rt::either(ready, early)).await {
                Err(rt::Elapsed) => Err(io::ErrorKind::TimedOut.into()),
                Ok(Some(ended)) => ended.and(Err(io::ErrorKind::UnexpectedEof.into())),
                Ok(None) => {
                    if let Some(client) = client.upgrade() {
                        client.connected(Rc::clone(&link));
                    }
                    attempt.finish(Ok(Rc::clone(&link)));
                    Ok(driven.await)
                }
            }
        }
    };
    match lost {
        Err(cause) => {
            let cause = Arc::new(cause);
            if let Some(client) = client.upgrade() {
                client.failed(&cause);
            }
            attempt.finish(Err(cause));
        }
        Ok(ended) => {
            let cause = ended.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into());
            link.end(&Arc::new(cause));
            if let Some(client) = client.upgrade() {
                client.lost(&link);
            }
        }
    }
}

/// Until the moment, or until the socket is made anew.
async fn wait(client: &Weak<Inner>, path: &Path, moment: Instant) {
    let tried = client.upgrade().and_then(|client| client.tried.get());
    let renewed = async {
        appearance::renewed(path, tried).await;
        if let Some(client) = client.upgrade() {
            client.renewed();
        }
    };
    rt::either(rt::sleep_until(moment), renewed).await;
}

const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MOST: Duration = Duration::from_secs(5);

/// For the socket, and again for the peer's first word.
const CONNECT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::{Reply, Server, handler};

    const HOUR: Duration = Duration::from_secs(3600);

    /// A client that waits for an hour after a failed try, and the folder that its socket is to be in.
    fn patient(name: &str) -> (Client, PathBuf) {
        let folder = std::env::temp_dir().join(format!("coracle-client-{name}-{}", std::process::id()));
        let client = Client::new(&folder.join("s").to_string_lossy());
        client.inner.backoff.replace(Backoff::new(HOUR, HOUR));
        (client, folder)
    }

    #[test]
    fn a_server_that_comes_is_found_before_the_back_off_is_over() {
        let (client, folder) = patient("comes");
        let answer = rt::block_on(async {
            let call = || client.unary("/test/Echo", b"x".to_vec(), HOUR);
            assert!(matches!(call().await, Err(Error::Connect { .. })));
            let serve = async {
                rt::yield_now().await;
                std::fs::create_dir(&folder).unwrap();
                let server = Server::bind(&folder.join("s")).unwrap();
                let echo = handler(|request| async move { Ok(Reply::Message(request.message)) });
                server.serve(echo).await.unwrap();
                unreachable!("a server serves until it is dropped");
            };
            rt::deadline(Duration::from_secs(30), rt::either(call(), serve)).await
        });
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(answer.unwrap().unwrap(), b"x");
    }

    #[test]
    fn a_call_whose_time_is_up_before_the_next_try_tells_why_the_last_one_failed() {
        let (client, _) = patient("tells");
        rt::block_on(async {
            for _ in 0..2 {
                let error = client.unary("/test/Echo", Vec::new(), Duration::from_millis(50)).await.unwrap_err();
                let Error::Connect { cause, .. } = error else { panic!("{error:?}") };
                assert_eq!(cause.kind(), io::ErrorKind::NotFound);
            }
        });
    }
}
