//! The one connection of a client: made when somebody needs it, for all who need it meanwhile.
//!
//! ```text
//!        somebody asks              the peer's first word
//!   Away ----------> Connecting ------------------------> Connected
//!    ^                   | failed: the next try waits          |
//!    |<------------------'                                     |
//!    '------------------- lost, or the peer goes away ---------'
//! ```

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::drive::drive;
use super::link::{Exchange, Link};
use super::signal::Signal;
use crate::platform::rt::{self, AsyncRead, AsyncWrite, Task};
use crate::types::time::{Backoff, jitter};

pub(crate) struct Connector<X: Exchange> {
    place: RefCell<Place<X>>,
    backoff: RefCell<Backoff>,
    /// Waits are stretched by up to such a part of themselves: a fleet does not come back as one.
    spread: f64,
    /// No try to connect before this moment.
    not_before: Cell<Option<Instant>>,
    /// Why the last try failed; nothing once one has not.
    failure: RefCell<Option<X::Error>>,
    /// One for each connection that is not closed: those that the peer is leaving still have exchanges to end.
    tasks: RefCell<Vec<Task<()>>>,
    /// Notified when a connection is made and when it is lost, in turn.
    pub(crate) changed: Signal,
}

enum Place<X: Exchange> {
    Away,
    Connecting(Rc<Attempt<X>>),
    Connected(Rc<Link<X>>),
}

type Outcome<X> = Result<Rc<Link<X>>, <X as Exchange>::Error>;

/// A try to connect, for all who wait for it.
pub(crate) struct Attempt<X: Exchange> {
    /// Nothing may be tried before.
    pub(crate) not_before: Option<Instant>,
    outcome: RefCell<Option<Outcome<X>>>,
    done: Signal,
}

impl<X: Exchange> Connector<X> {
    pub(crate) fn new(backoff: Backoff, spread: f64) -> Self {
        Self {
            place: RefCell::new(Place::Away),
            backoff: RefCell::new(backoff),
            spread,
            not_before: Cell::new(None),
            failure: RefCell::new(None),
            tasks: RefCell::new(Vec::new()),
            changed: Signal::default(),
        }
    }

    /// The connection there is, or the next one that comes about. `connect` begins a try that calls [`live`], or
    /// [`Connector::failed`], for its attempt.
    pub(crate) async fn link(&self, connect: impl FnOnce(Rc<Attempt<X>>) -> Task<()>) -> Outcome<X> {
        if let Some(link) = self.connected_link() {
            return Ok(link);
        }
        let under_way = match &*self.place.borrow() {
            Place::Connecting(attempt) => Some(Rc::clone(attempt)),
            Place::Connected(_) | Place::Away => None,
        };
        let attempt = under_way.unwrap_or_else(|| self.connect(connect));
        attempt.done.beyond(0).await;
        let outcome = attempt.outcome.borrow().clone();
        // `done` comes after the outcome.
        outcome.unwrap_or_else(|| Err(X::never_sent()))
    }

    fn connect(&self, connect: impl FnOnce(Rc<Attempt<X>>) -> Task<()>) -> Rc<Attempt<X>> {
        let not_before = self.not_before.take();
        let attempt = Rc::new(Attempt { not_before, outcome: RefCell::new(None), done: Signal::default() });
        self.move_to(Place::Connecting(Rc::clone(&attempt)));
        let task = connect(Rc::clone(&attempt));
        let mut tasks = self.tasks.borrow_mut();
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
        attempt
    }

    /// One that takes calls.
    pub(crate) fn connected_link(&self) -> Option<Rc<Link<X>>> {
        match &*self.place.borrow() {
            Place::Connected(link) if link.takes_calls() => Some(Rc::clone(link)),
            Place::Connected(_) | Place::Connecting(_) | Place::Away => None,
        }
    }

    /// Why there is no connection, if one was tried.
    pub(crate) fn failure(&self) -> Option<X::Error> {
        self.failure.borrow().clone()
    }

    /// What failed before says nothing of what is tried next.
    pub(crate) fn renewed(&self) {
        self.backoff.borrow_mut().reset();
        self.not_before.set(None);
        self.failure.take();
    }

    fn connected(&self, link: &Rc<Link<X>>) {
        self.backoff.borrow_mut().reset();
        self.failure.take();
        self.move_to(Place::Connected(Rc::clone(link)));
    }

    pub(crate) fn failed(&self, attempt: &Attempt<X>, error: X::Error) {
        self.failure.replace(Some(error.clone()));
        let wait = jitter(self.backoff.borrow_mut().next_wait(), self.spread, rt::random());
        self.not_before.set(rt::now().checked_add(wait));
        self.move_to(Place::Away);
        attempt.finish(Err(error));
    }

    /// No connection may be held, and none be tried: it is as if none had been.
    pub(crate) fn give_up(&self, attempt: &Attempt<X>, why: X::Error) {
        let link = attempt.outcome.borrow().as_ref().and_then(|outcome| outcome.as_ref().ok().cloned());
        match link {
            Some(link) => {
                link.end(why);
                self.lost(&link);
            }
            None => {
                self.move_to(Place::Away);
                attempt.finish(Err(why));
            }
        }
    }

    /// Others may already be on their way through another connection.
    fn lost(&self, link: &Rc<Link<X>>) {
        let current = matches!(&*self.place.borrow(), Place::Connected(current) if Rc::ptr_eq(current, link));
        if current {
            self.move_to(Place::Away);
        }
    }

    fn move_to(&self, place: Place<X>) {
        let is_connected = |place: &Place<X>| matches!(place, Place::Connected(_));
        let now = is_connected(&place);
        let before = self.place.replace(place);
        if is_connected(&before) != now {
            self.changed.notify();
        }
    }
}

impl<X: Exchange> fmt::Debug for Connector<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let connected = self.connected_link().is_some();
        f.debug_struct("Connector").field("connected", &connected).finish_non_exhaustive()
    }
}

impl<X: Exchange> Attempt<X> {
    /// Whether there has been a connection.
    pub(crate) fn came_about(&self) -> bool {
        self.outcome.borrow().as_ref().is_some_and(Result::is_ok)
    }

    fn finish(&self, outcome: Outcome<X>) {
        *self.outcome.borrow_mut() = Some(outcome);
        self.done.notify();
    }
}

/// The life of a connection, from the socket to the loss. `unreachable` tells of a peer that has not said a first word
/// within `patience`: it counts as connected when it has answered, and nothing ever leaves to one that has not.
pub(crate) async fn live<X: Exchange>(
    connector: &Weak<Connector<X>>,
    attempt: &Attempt<X>,
    caller: X::Caller,
    socket: impl AsyncRead + AsyncWrite + Clone + Unpin + 'static,
    patience: Duration,
    unreachable: impl FnOnce(io::Error) -> X::Error,
) {
    let link = Rc::new(Link::new(caller, rt::now()));
    let (mut reader, mut writer) = (socket.clone(), socket);
    let mut driven = pin!(drive(&mut reader, &mut writer, &*link));
    let ready = async {
        link.ready().await;
        None
    };
    let early = async { Some(driven.as_mut().await) };
    let closed = || io::ErrorKind::UnexpectedEof.into();
    let silent = match rt::deadline(patience, rt::either(ready, early)).await {
        Err(rt::Elapsed) => Some(io::ErrorKind::TimedOut.into()),
        Ok(Some(ended)) => Some(ended.err().unwrap_or_else(closed)),
        Ok(None) => None,
    };
    let Some(client) = connector.upgrade() else { return };
    if let Some(cause) = silent {
        return client.failed(attempt, unreachable(cause));
    }
    client.connected(&link);
    drop(client);
    attempt.finish(Ok(Rc::clone(&link)));
    let ended = driven.await;
    link.end(X::lost(&Arc::new(ended.err().unwrap_or_else(closed))));
    if let Some(client) = connector.upgrade() {
        client.lost(&link);
    }
}
