//! The connection of a client: made on demand and shared by all callers.
//!
//! ```text
//!        first caller               the peer's first bytes
//!   Away ----------> Connecting ------------------------> Connected
//!    ^                   | failed: the next attempt waits      |
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
    state: RefCell<ConnectorState<X>>,
    backoff: RefCell<Backoff>,
    /// The part of a delay that jitter may add, so that a fleet does not reconnect all at once.
    spread: f64,
    /// No attempt before this time.
    not_before: Cell<Option<Instant>>,
    /// Why the last attempt failed; cleared by a success.
    failure: RefCell<Option<X::Error>>,
    /// One per connection that is not closed: those that are shutting down may still have exchanges.
    tasks: RefCell<Vec<Task<()>>>,
    /// Notified alternately when a connection is made and when it is lost.
    pub(crate) changed: Signal,
}

enum ConnectorState<X: Exchange> {
    Disconnected,
    Connecting(Rc<Attempt<X>>),
    Connected(Rc<Link<X>>),
}

type Outcome<X> = Result<Rc<Link<X>>, <X as Exchange>::Error>;

/// An attempt to connect, shared by all callers that wait for it.
pub(crate) struct Attempt<X: Exchange> {
    /// The attempt must not start before this time.
    pub(crate) not_before: Option<Instant>,
    outcome: RefCell<Option<Outcome<X>>>,
    done: Signal,
}

impl<X: Exchange> Connector<X> {
    pub(crate) fn new(backoff: Backoff, spread: f64) -> Self {
        Self {
            state: RefCell::new(ConnectorState::Disconnected),
            backoff: RefCell::new(backoff),
            spread,
            not_before: Cell::new(None),
            failure: RefCell::new(None),
            tasks: RefCell::new(Vec::new()),
            changed: Signal::default(),
        }
    }

    /// The current connection, or the next one made. `connect` starts an attempt, which must call [`live`] or
    /// [`Connector::failed`].
    pub(crate) async fn link(&self, connect: impl FnOnce(Rc<Attempt<X>>) -> Task<()>) -> Outcome<X> {
        if let Some(link) = self.connected_link() {
            return Ok(link);
        }
        let under_way = match &*self.state.borrow() {
            ConnectorState::Connecting(attempt) => Some(Rc::clone(attempt)),
            ConnectorState::Connected(_) | ConnectorState::Disconnected => None,
        };
        let attempt = under_way.unwrap_or_else(|| self.connect(connect));
        attempt.done.beyond(0).await;
        let outcome = attempt.outcome.borrow().clone();
        // `done` is notified after the outcome is set.
        outcome.unwrap_or_else(|| Err(X::never_sent()))
    }

    fn connect(&self, connect: impl FnOnce(Rc<Attempt<X>>) -> Task<()>) -> Rc<Attempt<X>> {
        let not_before = self.not_before.take();
        let attempt = Rc::new(Attempt { not_before, outcome: RefCell::new(None), done: Signal::default() });
        self.move_to(ConnectorState::Connecting(Rc::clone(&attempt)));
        let task = connect(Rc::clone(&attempt));
        let mut tasks = self.tasks.borrow_mut();
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
        attempt
    }

    /// The current connection, if it accepts calls.
    pub(crate) fn connected_link(&self) -> Option<Rc<Link<X>>> {
        match &*self.state.borrow() {
            ConnectorState::Connected(link) if link.takes_calls() => Some(Rc::clone(link)),
            ConnectorState::Connected(_) | ConnectorState::Connecting(_) | ConnectorState::Disconnected => None,
        }
    }

    /// Why there is no connection, if an attempt has failed.
    pub(crate) fn failure(&self) -> Option<X::Error> {
        self.failure.borrow().clone()
    }

    /// Resets the back-off, because earlier failures say nothing about the new socket.
    pub(crate) fn renewed(&self) {
        self.backoff.borrow_mut().reset();
        self.not_before.set(None);
        self.failure.take();
    }

    fn connected(&self, link: &Rc<Link<X>>) {
        self.backoff.borrow_mut().reset();
        self.failure.take();
        self.move_to(ConnectorState::Connected(Rc::clone(link)));
    }

    pub(crate) fn failed(&self, attempt: &Attempt<X>, error: X::Error) {
        self.failure.replace(Some(error.clone()));
        let wait = jitter(self.backoff.borrow_mut().next_wait(), self.spread, rt::random());
        self.not_before.set(rt::now().checked_add(wait));
        self.move_to(ConnectorState::Disconnected);
        attempt.finish(Err(error));
    }

    /// Closes the attempt's connection, or drops the attempt without counting it as a failure.
    pub(crate) fn give_up(&self, attempt: &Attempt<X>, cause: X::Error) {
        match attempt.link() {
            Some(link) => {
                link.end(cause);
                self.lost(&link);
            }
            None => {
                self.move_to(ConnectorState::Disconnected);
                attempt.finish(Err(cause));
            }
        }
    }

    /// Others may already be using a newer connection.
    fn lost(&self, link: &Rc<Link<X>>) {
        let current = matches!(&*self.state.borrow(), ConnectorState::Connected(current) if Rc::ptr_eq(current, link));
        if current {
            self.move_to(ConnectorState::Disconnected);
        }
    }

    fn move_to(&self, state: ConnectorState<X>) {
        let is_connected = |state: &ConnectorState<X>| matches!(state, ConnectorState::Connected(_));
        let now = is_connected(&state);
        let before = self.state.replace(state);
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
    /// Whether the attempt has led to a connection.
    pub(crate) fn came_about(&self) -> bool {
        self.link().is_some()
    }

    /// The connection, once the attempt has succeeded.
    pub(crate) async fn connected(&self) -> Rc<Link<X>> {
        self.done.beyond(0).await;
        match self.link() {
            Some(link) => link,
            None => std::future::pending().await,
        }
    }

    fn link(&self) -> Option<Rc<Link<X>>> {
        self.outcome.borrow().as_ref().and_then(|outcome| outcome.as_ref().ok().cloned())
    }

    fn finish(&self, outcome: Outcome<X>) {
        *self.outcome.borrow_mut() = Some(outcome);
        self.done.notify();
    }
}

/// The life of a connection, from the socket to the loss. It counts as connected, and exchanges begin, once the peer
/// has sent its first bytes; a peer that sends none within `patience` fails with `unreachable`.
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
