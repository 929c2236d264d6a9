//! One connection of a client: the calls on it, and what has come for each.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::Error;
use super::drive::End;
use super::signal::Signal;
use crate::wire::grpc::{self, Status};
use crate::wire::hpack::Field;
use crate::wire::http2::{self, Connection, Ending, ErrorCode, Event, GoingAway, StreamId};

#[derive(Debug)]
pub(super) struct Link {
    state: RefCell<State>,
    work: Signal,
    /// Notified once the peer has shown that it speaks HTTP/2.
    ready: Signal,
    caller: Caller,
}

/// Who calls whom, as the headers of each call say.
#[derive(Debug)]
pub(super) struct Caller {
    agent: Field,
    authority: Field,
}

#[derive(Debug)]
struct State {
    connection: Connection,
    calls: Vec<Call>,
    /// How many bytes have left through the socket.
    written: u64,
    /// The socket is closed or about to be.
    ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answers {
    One,
    Many,
}

/// What has come for one call.
#[derive(Debug)]
struct Call {
    stream: StreamId,
    answers: Answers,
    /// Content that has not been taken.
    buf: Vec<u8>,
    /// How much of what arrived the peer has not been given back.
    held: usize,
    outcome: Option<Result<(), Error>>,
    waker: Option<Waker>,
}

impl Link {
    pub(super) fn new(caller: Caller) -> Self {
        let state = State { connection: Connection::client(), calls: Vec::new(), written: 0, ended: false };
        Self { state: RefCell::new(state), work: Signal::default(), ready: Signal::default(), caller }
    }

    pub(super) async fn ready(&self) {
        self.ready.beyond(0).await;
    }

    pub(super) fn takes_calls(&self) -> bool {
        let state = self.state.borrow();
        !state.ended && !state.connection.is_going_away()
    }

    /// Begins a call; dropping the result cancels it.
    pub(super) fn begin(
        self: Rc<Self>,
        method: &'static str,
        request: Vec<u8>,
        timeout: Option<Duration>,
        answers: Answers,
    ) -> Result<Ongoing, GoingAway> {
        let mut state = self.state.borrow_mut();
        if state.ended {
            return Err(GoingAway);
        }
        let stream = state.connection.open(self.caller.head(method, timeout), false)?;
        state.connection.send_data(stream, request, true);
        state.calls.push(Call { stream, answers, buf: Vec::new(), held: 0, outcome: None, waker: None });
        drop(state);
        self.work.notify();
        Ok(Ongoing { link: self, stream })
    }

    /// The socket is no more: no call on it will hear anything.
    pub(super) fn end(&self, cause: &Arc<io::Error>) {
        let mut state = self.state.borrow_mut();
        let State { connection, calls, written, ended } = &mut *state;
        *ended = true;
        for call in calls {
            let unseen = connection.is_unseen(call.stream, *written);
            call.finish(Err(if unseen { Error::NeverSent } else { Error::Lost(Arc::clone(cause)) }));
        }
    }
}

impl End for Link {
    fn receive(&self, bytes: &[u8], now: Instant) -> Result<(), http2::Error> {
        let mut events = Vec::new();
        let mut state = self.state.borrow_mut();
        let received = state.connection.receive(bytes, now, &mut events);
        for event in events {
            match event {
                Event::Ready => self.ready.notify(),
                Event::GoAway { .. } => {}
                Event::Head { stream, fields, end } => state.deliver(stream, |call| call.head(&fields, end)),
                Event::Data { stream, data, end } => state.deliver(stream, |call| call.data(data, end)),
                Event::Trailers { stream, fields } => state.deliver(stream, |_| Some(outcome_of(&fields))),
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

    /// A connection that takes no new calls is closed after its last one.
    fn allowance(&self) -> usize {
        let state = self.state.borrow();
        if state.connection.is_going_away() && !state.connection.has_streams() { 0 } else { usize::MAX }
    }

    fn work(&self) -> &Signal {
        &self.work
    }
}

impl State {
    /// Lets a call take what came for it; an outcome that follows from it ends the call.
    fn deliver(&mut self, stream: StreamId, take: impl FnOnce(&mut Call) -> Option<Result<(), Error>>) {
        let Some(call) = self.calls.iter_mut().find(|call| call.stream == stream) else { return };
        if call.outcome.is_some() {
            return;
        }
        match take(call) {
            Some(outcome) => {
                call.finish(outcome);
                // Whatever the peer or this side still had to say on the stream is of no use now.
                self.connection.reset(stream, ErrorCode::CANCEL);
            }
            None => {
                let given_back = call.give_back();
                self.connection.consume(stream, given_back);
            }
        }
    }
}

impl Call {
    fn finish(&mut self, outcome: Result<(), Error>) {
        self.outcome.get_or_insert(outcome);
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn head(&mut self, fields: &[Field], end: bool) -> Option<Result<(), Error>> {
        let value = |name: &[u8]| fields.iter().find(|field| field.name == name).map_or(&[][..], |field| &field.value);
        let status = value(b":status");
        if status != b"200" {
            let status = Status::of_trailers(fields).unwrap_or_else(|| Status::of_http(status));
            return Some(Err(Error::Status(status)));
        }
        if !value(b"content-type").starts_with(grpc::CONTENT_TYPE.as_bytes()) {
            return Some(Err(Error::Protocol("answer is no gRPC")));
        }
        end.then(|| outcome_of(fields))
    }

    fn data(&mut self, data: Vec<u8>, end: bool) -> Option<Result<(), Error>> {
        self.held += data.len();
        if self.buf.is_empty() {
            self.buf = data;
        } else {
            self.buf.extend_from_slice(&data);
        }
        match grpc::take_message(&self.buf, grpc::MESSAGE_LIMIT) {
            Err(grpc::FramingError::Compressed) => return Some(Err(Error::Protocol("answer is compressed"))),
            Err(grpc::FramingError::TooLong { .. }) => return Some(Err(Error::Protocol("answer is too long"))),
            Ok(Some((_, used))) if self.answers == Answers::One && used < self.buf.len() => {
                return Some(Err(Error::Protocol("more than one answer")));
            }
            Ok(Some(_)) if self.answers == Answers::Many => self.wake(),
            Ok(_) => {}
        }
        // Without trailers nobody knows whether this is all.
        end.then_some(Err(Error::Protocol("answer ends without a status")))
    }

    /// What the peer may send more: all that came while a message is incomplete or when there is but one, and
    /// otherwise nothing before the messages are taken. So no more than a window waits for a slow reader.
    fn give_back(&mut self) -> usize {
        let whole = matches!(grpc::take_message(&self.buf, grpc::MESSAGE_LIMIT), Ok(Some(_)));
        if whole && self.answers == Answers::Many { 0 } else { std::mem::take(&mut self.held) }
    }

    /// The next whole message, taken out of the buffer.
    fn take(&mut self) -> Option<Vec<u8>> {
        let (message, used) = grpc::take_message(&self.buf, grpc::MESSAGE_LIMIT).ok().flatten()?;
        if used == self.buf.len() {
            let head = used - message.len();
            let mut whole = std::mem::take(&mut self.buf);
            whole.drain(..head);
            return Some(whole);
        }
        let message = message.to_vec();
        self.buf.drain(..used);
        Some(message)
    }
}

/// A call that was begun. Dropping it cancels the call.
#[derive(Debug)]
pub(super) struct Ongoing {
    link: Rc<Link>,
    stream: StreamId,
}

impl Ongoing {
    /// The next message; `None` once the peer has ended the call well.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// The one message of a call that has one.
    pub(super) async fn only(&mut self) -> Result<Vec<u8>, Error> {
        // The answer counts when the status has come: a call that fails after its message has failed.
        let message = self.next().await?.ok_or(Error::Protocol("call ended well without an answer"))?;
        match self.next().await? {
            None => Ok(message),
            Some(_) => Err(Error::Protocol("more than one answer")),
        }
    }

    /// What it means that nobody waits any longer.
    pub(super) fn give_up(self) -> Error {
        let state = self.link.state.borrow();
        let unseen = state.connection.is_unseen(self.stream, state.written);
        if unseen { Error::NeverSent } else { Error::DeadlineExceeded }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Vec<u8>>, Error>> {
        let mut state = self.link.state.borrow_mut();
        let State { connection, calls, .. } = &mut *state;
        let Some(call) = calls.iter_mut().find(|call| call.stream == self.stream) else {
            return Poll::Ready(Ok(None));
        };
        if let Some(message) = call.take() {
            let given_back = call.give_back();
            connection.consume(self.stream, given_back);
            drop(state);
            self.link.work.notify();
            return Poll::Ready(Ok(Some(message)));
        }
        match &call.outcome {
            Some(Ok(())) if !call.buf.is_empty() => Poll::Ready(Err(Error::Protocol("answer ends inside a message"))),
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

impl Caller {
    /// This program calls a peer on its machine, which does not ask for its own name.
    pub(super) fn to_local() -> Self {
        Self {
            agent: Field::fixed("user-agent", concat!("coracle/", env!("CARGO_PKG_VERSION"))),
            authority: Field::fixed(":authority", "localhost"),
        }
    }

    pub(super) fn new(agent: String, authority: String) -> Self {
        Self { agent: Field::new("user-agent", agent), authority: Field::new(":authority", authority) }
    }

    fn head(&self, method: &'static str, timeout: Option<Duration>) -> Vec<Field> {
        let mut head = vec![
            Field::fixed(":method", "POST"),
            Field::fixed(":scheme", "http"),
            Field::fixed(":path", method),
            self.authority.clone(),
            Field::fixed("content-type", grpc::CONTENT_TYPE),
            Field::fixed("te", "trailers"),
            self.agent.clone(),
        ];
        if let Some(timeout) = timeout {
            head.push(Field::new("grpc-timeout", grpc::write_timeout(timeout)));
        }
        head
    }
}

fn outcome_of(trailers: &[Field]) -> Result<(), Error> {
    match Status::of_trailers(trailers) {
        None => Err(Error::Protocol("answer ends without a status")),
        Some(status) if status.code == grpc::Code::Ok => Ok(()),
        Some(status) => Err(Error::Status(status)),
    }
}

fn error_of(ending: Ending) -> Error {
    match ending {
        Ending::NotProcessed => Error::NeverSent,
        Ending::ByPeer(code) => Error::Reset(code),
        Ending::Violation(what) => Error::Protocol(what),
    }
}
