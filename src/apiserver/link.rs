//! One connection: the requests on it, and what has come for each.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::request::{Caller, Request};
use super::{ApiError, Status};
use crate::rpc::{End, Signal};
use crate::wire::hpack::Field;
use crate::wire::http2::{self, Connection, Ending, ErrorCode, Event, StreamId};

pub(super) struct Link {
    state: RefCell<State>,
    work: Signal,
    /// Notified once the server has shown that it speaks HTTP/2.
    ready: Signal,
    caller: Caller,
    /// When the last bytes came.
    pub(super) heard: Cell<Instant>,
    pub(super) made: Instant,
}

struct State {
    connection: Connection,
    calls: Vec<Call>,
    /// How many bytes have left through the socket.
    written: u64,
    /// Why nothing more is heard or said.
    ended: Option<ApiError>,
}

/// What has come for one request.
struct Call {
    stream: StreamId,
    head: Option<Head>,
    /// Content that has not been taken; the server has been told of no more room for it.
    content: Vec<u8>,
    outcome: Option<Result<(), ApiError>>,
    waker: Option<Waker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) retry_after: Option<Duration>,
    pub(super) is_gzip: bool,
}

impl Link {
    pub(super) fn new(caller: Caller, now: Instant) -> Self {
        let state = State { connection: Connection::client(), calls: Vec::new(), written: 0, ended: None };
        let (work, ready) = (Signal::default(), Signal::default());
        Self { state: RefCell::new(state), work, ready, caller, heard: Cell::new(now), made: now }
    }

    pub(super) async fn ready(&self) {
        self.ready.beyond(0).await;
    }

    pub(super) fn takes_calls(&self) -> bool {
        let state = self.state.borrow();
        state.ended.is_none() && !state.connection.is_going_away()
    }

    /// Begins a request; dropping the result cancels it.
    pub(super) fn begin(self: Rc<Self>, request: &Request) -> Result<Ongoing, ApiError> {
        let mut state = self.state.borrow_mut();
        if state.ended.is_some() {
            return Err(ApiError::NeverSent);
        }
        let content = request.content();
        let opened = state.connection.open(request.head(&self.caller), content.is_empty());
        let stream = opened.map_err(|_| ApiError::NeverSent)?;
        if !content.is_empty() {
            state.connection.send_data(stream, content.to_vec(), true);
        }
        state.calls.push(Call { stream, head: None, content: Vec::new(), outcome: None, waker: None });
        drop(state);
        self.work.notify();
        Ok(Ongoing { link: self, stream })
    }

    /// Ends the connection: no request on it will hear anything.
    pub(super) fn end(&self, why: &str) {
        let mut state = self.state.borrow_mut();
        let State { connection, calls, written, ended } = &mut *state;
        let lost = ended.get_or_insert_with(|| ApiError::Lost(why.into())).clone();
        for call in calls {
            let unseen = connection.is_unseen(call.stream, *written);
            call.finish(Err(if unseen { ApiError::NeverSent } else { lost.clone() }));
        }
        drop(state);
        self.work.notify();
    }
}

impl End for Link {
    fn receive(&self, bytes: &[u8], now: Instant) -> Result<(), http2::Error> {
        self.heard.set(now);
        let mut events = Vec::new();
        let mut state = self.state.borrow_mut();
        let received = state.connection.receive(bytes, now, &mut events);
        for event in events {
            match event {
                Event::Ready => self.ready.notify(),
                Event::GoAway { .. } => {}
                Event::Head { stream, fields, end } => state.deliver(stream, |call| call.head(&fields, end)),
                Event::Data { stream, data, end } => state.deliver(stream, |call| call.data(&data, end)),
                Event::Trailers { stream, .. } => state.deliver(stream, |_| Some(Ok(()))),
                Event::Reset { stream, ending } => state.deliver(stream, |_| Some(Err(error_of(ending)))),
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

    /// A connection that takes no new requests is closed after its last one.
    fn allowance(&self) -> usize {
        let state = self.state.borrow();
        let through = state.connection.is_going_away() && !state.connection.has_streams();
        if state.ended.is_some() || through { 0 } else { usize::MAX }
    }

    fn work(&self) -> &Signal {
        &self.work
    }
}

impl State {
    fn deliver(&mut self, stream: StreamId, take: impl FnOnce(&mut Call) -> Option<Result<(), ApiError>>) {
        let Some(call) = self.calls.iter_mut().find(|call| call.stream == stream) else { return };
        if call.outcome.is_some() {
            return;
        }
        match take(call) {
            Some(outcome) => call.finish(outcome),
            None => call.wake(),
        }
    }
}

impl Call {
    fn finish(&mut self, outcome: Result<(), ApiError>) {
        self.outcome.get_or_insert(outcome);
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn head(&mut self, fields: &[Field], end: bool) -> Option<Result<(), ApiError>> {
        let value = |name: &str| {
            let field = fields.iter().find(|field| field.name == name.as_bytes())?;
            std::str::from_utf8(&field.value).ok()
        };
        let Some(status) = value(":status").and_then(|status| status.parse().ok()) else {
            return Some(Err(ApiError::Malformed("no status".into())));
        };
        let retry_after = value("retry-after").and_then(|seconds| seconds.trim().parse().ok()).map(Duration::from_secs);
        self.head = Some(Head { status, retry_after, is_gzip: value("content-encoding") == Some("gzip") });
        end.then_some(Ok(()))
    }

    fn data(&mut self, data: &[u8], end: bool) -> Option<Result<(), ApiError>> {
        self.content.extend_from_slice(data);
        end.then_some(Ok(()))
    }
}

/// A request that was begun. Dropping it cancels the request.
pub(super) struct Ongoing {
    pub(super) link: Rc<Link>,
    stream: StreamId,
}

impl Ongoing {
    pub(super) async fn head(&mut self) -> Result<Head, ApiError> {
        poll_fn(|context| self.poll(context, |call| call.head)).await?.ok_or(ApiError::Malformed("no answer".into()))
    }

    /// What has come of the content since the last time; `None` at its end.
    pub(super) async fn content(&mut self) -> Result<Option<Vec<u8>>, ApiError> {
        let take = |call: &mut Call| (!call.content.is_empty()).then(|| std::mem::take(&mut call.content));
        let taken = poll_fn(|context| self.poll(context, take)).await?;
        if let Some(taken) = &taken {
            self.link.state.borrow_mut().connection.consume(self.stream, taken.len());
            self.link.work.notify();
        }
        Ok(taken)
    }

    /// What it means that nobody waits any longer.
    pub(super) fn give_up(self) -> ApiError {
        let state = self.link.state.borrow();
        if state.connection.is_unseen(self.stream, state.written) { ApiError::NeverSent } else { ApiError::Timeout }
    }

    /// What `take` finds, or the end of the request.
    fn poll<T>(
        &self,
        context: &mut Context<'_>,
        take: impl FnOnce(&mut Call) -> Option<T>,
    ) -> Poll<Result<Option<T>, ApiError>> {
        let mut state = self.link.state.borrow_mut();
        let Some(call) = state.calls.iter_mut().find(|call| call.stream == self.stream) else {
            return Poll::Ready(Ok(None));
        };
        if let Some(taken) = take(call) {
            return Poll::Ready(Ok(Some(taken)));
        }
        match &call.outcome {
            Some(outcome) => Poll::Ready(outcome.clone().map(|()| None)),
            None => {
                call.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Ongoing {
    fn drop(&mut self) {
        let mut state = self.link.state.borrow_mut();
        state.calls.retain(|call| call.stream != self.stream);
        state.connection.reset(self.stream, ErrorCode::CANCEL);
        drop(state);
        self.link.work.notify();
    }
}

fn error_of(ending: Ending) -> ApiError {
    match ending {
        Ending::NotProcessed => ApiError::NeverSent,
        Ending::ByPeer(code) => ApiError::Lost(format!("the server gave the request up: {code}").into()),
        Ending::Violation(what) => ApiError::Malformed(what.into()),
    }
}

impl Head {
    /// Whether this is what was asked for; else the error that the content tells.
    pub(super) fn is_success(self) -> bool {
        (200..300).contains(&self.status)
    }

    pub(super) fn error(self, content: &[u8]) -> ApiError {
        ApiError::Refused(Box::new(Status::of_body(self.status, self.retry_after, content)))
    }
}
