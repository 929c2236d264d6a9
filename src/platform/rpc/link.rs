//! One connection of a client, and the exchanges on it.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::drive::End;
use super::signal::Signal;
use crate::protocol::hpack::Field;
use crate::protocol::http2::{self, Connection, Ending, ErrorCode, Event, StreamId};

/// A request and its response in a protocol over HTTP/2. An outcome ends it.
pub(crate) trait Exchange {
    type Error: Clone;
    /// The fields that identify the caller in each request.
    type Caller;

    fn head(&mut self, fields: &[Field], end: bool) -> Option<Result<(), Self::Error>>;

    fn data(&mut self, data: Vec<u8>, end: bool) -> Option<Result<(), Self::Error>>;

    fn trailers(&mut self, fields: &[Field]) -> Result<(), Self::Error>;

    /// How many received bytes to return to the peer's window now.
    fn give_back(&mut self) -> usize;

    /// The error if the peer has not seen the request.
    fn never_sent() -> Self::Error;

    /// The error if the peer or a protocol violation has reset the stream.
    fn reset(ending: Ending) -> Self::Error;

    /// The error if the connection has ended before the response.
    fn lost(cause: &Arc<io::Error>) -> Self::Error;
}

pub(crate) struct Link<X: Exchange> {
    state: RefCell<State<X>>,
    work: Signal,
    /// Notified once the peer has proved to speak HTTP/2.
    ready: Signal,
    pub(crate) caller: X::Caller,
    /// When bytes last arrived.
    pub(crate) last_received: Cell<Instant>,
    pub(crate) made: Instant,
}

struct State<X: Exchange> {
    connection: Connection,
    exchanges: Vec<PendingExchange<X>>,
    /// Total bytes written to the socket.
    written: u64,
    /// Why the connection has ended.
    ended: Option<X::Error>,
}

/// An exchange that a caller waits for.
struct PendingExchange<X: Exchange> {
    stream: StreamId,
    exchange: X,
    outcome: Option<Result<(), X::Error>>,
    waker: Option<Waker>,
}

impl<X: Exchange> Link<X> {
    pub(crate) fn new(caller: X::Caller, now: Instant) -> Self {
        let state = State { connection: Connection::client(), exchanges: Vec::new(), written: 0, ended: None };
        let (work, ready) = (Signal::default(), Signal::default());
        Self { state: RefCell::new(state), work, ready, caller, last_received: Cell::new(now), made: now }
    }

    pub(crate) async fn ready(&self) {
        self.ready.beyond(0).await;
    }

    pub(crate) fn takes_calls(&self) -> bool {
        let state = self.state.borrow();
        state.ended.is_none() && !state.connection.is_going_away()
    }

    /// How many exchanges the peer accepts at a time. Further ones wait in the order in which they began.
    pub(crate) fn max_exchanges(&self) -> usize {
        usize::try_from(self.state.borrow().connection.max_streams()).unwrap_or(usize::MAX)
    }

    /// The number of exchanges for which `is_counted` holds.
    pub(crate) fn count(&self, is_counted: impl Fn(&X) -> bool) -> usize {
        self.state.borrow().exchanges.iter().filter(|open_exchange| is_counted(&open_exchange.exchange)).count()
    }

    /// Asks the peer for a sign of life, which renews `last_received`.
    pub(crate) fn ping(&self) {
        self.state.borrow_mut().connection.ping();
        self.work.notify();
    }

    /// Begins an exchange. Dropping the result cancels it.
    pub(crate) fn begin(
        self: Rc<Self>,
        head: Vec<Field>,
        content: Vec<u8>,
        exchange: X,
    ) -> Result<Ongoing<X>, X::Error> {
        let mut state = self.state.borrow_mut();
        if state.ended.is_some() {
            return Err(X::never_sent());
        }
        let stream = state.connection.open(head, content.is_empty()).map_err(|_| X::never_sent())?;
        if !content.is_empty() {
            state.connection.send_data(stream, content, true);
        }
        state.exchanges.push(PendingExchange { stream, exchange, outcome: None, waker: None });
        drop(state);
        self.work.notify();
        Ok(Ongoing { link: self, stream })
    }

    /// Ends the connection and all of its exchanges.
    pub(crate) fn end(&self, cause: X::Error) {
        let mut state = self.state.borrow_mut();
        let State { connection, exchanges: places, written, ended } = &mut *state;
        let lost = ended.get_or_insert(cause).clone();
        for open_exchange in places {
            let unseen = connection.is_unseen(open_exchange.stream, *written);
            open_exchange.finish(Err(if unseen { X::never_sent() } else { lost.clone() }));
        }
        drop(state);
        self.work.notify();
    }
}

impl<X: Exchange> End for Link<X> {
    fn receive(&self, bytes: &[u8], now: Instant) -> Result<(), http2::Error> {
        self.last_received.set(now);
        let mut events = Vec::new();
        let mut state = self.state.borrow_mut();
        let received = state.connection.receive(bytes, now, &mut events);
        for event in events {
            match event {
                Event::Ready => self.ready.notify(),
                Event::GoAway { .. } => {}
                Event::Head { stream, fields, end } => state.deliver(stream, |exchange| exchange.head(&fields, end)),
                Event::Data { stream, data, end } => state.deliver(stream, |exchange| exchange.data(data, end)),
                Event::Trailers { stream, fields } => {
                    state.deliver(stream, |exchange| Some(exchange.trailers(&fields)))
                }
                Event::Reset { stream, ending } => state.deliver(stream, |_| Some(Err(X::reset(ending)))),
            }
        }
        received
    }

    fn transmit(&self, out: &mut Vec<u8>) {
        self.state.borrow_mut().connection.transmit(out);
    }

    fn written(&self, len: usize) {
        self.state.borrow_mut().written += u64::try_from(len).unwrap_or(u64::MAX);
    }

    /// A connection that accepts no new exchanges is closed after its last one.
    fn allowance(&self) -> usize {
        let state = self.state.borrow();
        let through = state.connection.is_going_away() && !state.connection.has_streams();
        if state.ended.is_some() || through { 0 } else { usize::MAX }
    }

    fn work(&self) -> &Signal {
        &self.work
    }
}

impl<X: Exchange> State<X> {
    /// Lets an exchange handle what arrived for it.
    fn deliver(&mut self, stream: StreamId, take: impl FnOnce(&mut X) -> Option<Result<(), X::Error>>) {
        let Some(open_exchange) = self.exchanges.iter_mut().find(|open_exchange| open_exchange.stream == stream) else {
            return;
        };
        if open_exchange.outcome.is_some() {
            return;
        }
        match take(&mut open_exchange.exchange) {
            Some(outcome) => {
                open_exchange.finish(outcome);
                // The exchange is over: neither side needs the rest of the stream.
                self.connection.reset(stream, ErrorCode::CANCEL);
            }
            None => {
                let given_back = open_exchange.exchange.give_back();
                open_exchange.wake();
                self.connection.consume(stream, given_back);
            }
        }
    }
}

impl<X: Exchange> PendingExchange<X> {
    fn finish(&mut self, outcome: Result<(), X::Error>) {
        self.outcome.get_or_insert(outcome);
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// A running exchange. Dropping it cancels the exchange.
pub(crate) struct Ongoing<X: Exchange> {
    pub(crate) link: Rc<Link<X>>,
    stream: StreamId,
}

impl<X: Exchange> Ongoing<X> {
    /// Waits until `take` returns something; `None` once the exchange has ended successfully before that.
    pub(crate) async fn take<T>(&mut self, mut take: impl FnMut(&mut X) -> Option<T>) -> Result<Option<T>, X::Error> {
        poll_fn(|context| self.poll(context, &mut take)).await
    }

    fn poll<T>(
        &self,
        context: &mut Context<'_>,
        take: impl FnOnce(&mut X) -> Option<T>,
    ) -> Poll<Result<Option<T>, X::Error>> {
        let mut state = self.link.state.borrow_mut();
        let State { connection, exchanges: places, .. } = &mut *state;
        let Some(open_exchange) = places.iter_mut().find(|open_exchange| open_exchange.stream == self.stream) else {
            return Poll::Ready(Ok(None));
        };
        if let Some(taken) = take(&mut open_exchange.exchange) {
            let given_back = open_exchange.exchange.give_back();
            if given_back > 0 {
                connection.consume(self.stream, given_back);
                drop(state);
                self.link.work.notify();
            }
            return Poll::Ready(Ok(Some(taken)));
        }
        match &open_exchange.outcome {
            Some(outcome) => Poll::Ready(outcome.clone().map(|()| None)),
            None => {
                open_exchange.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Whether the peer cannot have seen the request, as of now.
    pub(crate) fn is_unseen(&self) -> bool {
        let state = self.link.state.borrow();
        state.connection.is_unseen(self.stream, state.written)
    }
}

impl<X: Exchange> Drop for Ongoing<X> {
    fn drop(&mut self) {
        let mut state = self.link.state.borrow_mut();
        state.exchanges.retain(|open_exchange| open_exchange.stream != self.stream);
        state.connection.reset(self.stream, ErrorCode::CANCEL);
        drop(state);
        self.link.work.notify();
    }
}

impl<X: Exchange> fmt::Debug for Ongoing<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ongoing({:?})", self.stream)
    }
}
