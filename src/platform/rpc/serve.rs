//! One connection of a server: collects requests, calls the handler, and sends its replies.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use super::drive::{End, drive};
use super::handler::{Handler, Reply, Request, Wire};
use super::server_limits::ServerLimits;
use super::signal::Signal;
use crate::platform::rt::{self, Task, UnixStream};
use crate::protocol::grpc::{self, Code, Status};
use crate::protocol::hpack::Field;
use crate::protocol::http2::{self, ErrorCode, Event, StreamId};

/// Serves one client until it disconnects.
pub async fn serve_connection(stream: UnixStream, handler: Handler, limits: ServerLimits) -> io::Result<()> {
    Connection::new(stream, handler, limits).serve().await
}

/// The connection of an accepted client.
pub(super) struct Connection {
    stream: UnixStream,
    link: Closing,
}

impl Connection {
    pub(super) fn new(stream: UnixStream, handler: Handler, limits: ServerLimits) -> Self {
        let link = Rc::new_cyclic(|this| Link {
            this: Weak::clone(this),
            state: RefCell::new(State { connection: http2::Connection::server(), calls: Vec::new() }),
            work: Signal::default(),
            drained: Signal::default(),
            handler,
            limits,
            is_busy: Rc::default(),
            wire: Wire::new(stream.clone()),
        });
        Self { stream, link: Closing(link) }
    }

    /// Whether a handler is running for the client.
    pub(super) fn is_busy(&self) -> Rc<Cell<bool>> {
        Rc::clone(&self.link.0.is_busy)
    }

    pub(super) async fn serve(self) -> io::Result<()> {
        let Self { stream, link } = self;
        drive(&mut stream.clone(), &mut stream.clone(), &*link.0).await
    }
}

/// Stops the running handlers when the connection is closed. Dropping the link would not: a stream that waits for a
/// slow client holds it.
struct Closing(Rc<Link>);

impl Drop for Closing {
    fn drop(&mut self) {
        let calls = std::mem::take(&mut self.0.state.borrow_mut().calls);
        drop(calls);
    }
}

struct Link {
    this: Weak<Link>,
    state: RefCell<State>,
    work: Signal,
    /// Notified when content was sent.
    drained: Signal,
    handler: Handler,
    limits: ServerLimits,
    is_busy: Rc<Cell<bool>>,
    wire: Wire,
}

struct State {
    connection: http2::Connection,
    calls: Vec<Call>,
}

impl State {
    /// Bytes of all requests without a reply yet.
    fn received(&self) -> usize {
        self.calls.iter().map(|call| call.received).sum()
    }
}

/// A call from its request head to its reply.
struct Call {
    stream: StreamId,
    method: String,
    timeout: Option<Duration>,
    message: Vec<u8>,
    /// Bytes of the method and the message so far.
    received: usize,
    /// The running handler. Dropping it stops the handler.
    task: Option<Task<()>>,
}

impl End for Link {
    fn receive(&self, bytes: &[u8], now: Instant) -> Result<(), http2::Error> {
        let mut events = Vec::new();
        let received = self.state.borrow_mut().connection.receive(bytes, now, &mut events);
        for event in events {
            match event {
                Event::Ready | Event::GoAway { .. } => {}
                Event::Head { stream, fields, end } => self.on_head(stream, &fields, end),
                Event::Data { stream, data, end } => self.on_data(stream, &data, end),
                Event::Trailers { stream, .. } => self.on_data(stream, &[], true),
                Event::Reset { stream, .. } => self.forget(stream),
            }
        }
        received
    }

    fn transmit(&self, out: &mut Vec<u8>) {
        self.state.borrow_mut().connection.transmit(out);
    }

    fn written(&self, len: usize) {
        self.wire.written(len);
        self.drained.notify();
    }

    fn allowance(&self) -> usize {
        self.wire.bytes_left()
    }

    fn work(&self) -> &Signal {
        &self.work
    }
}

impl Link {
    fn on_head(&self, stream: StreamId, fields: &[Field], end: bool) {
        let value = |name: &[u8]| fields.iter().find(|field| field.name == name).map_or(&[][..], |field| &field.value);
        let status = match value(b":method") {
            _ if !value(b"content-type").starts_with(grpc::GRPC_CONTENT_TYPE.as_bytes()) => "415",
            b"POST" => "200",
            _ => "405",
        };
        if status != "200" {
            let mut state = self.state.borrow_mut();
            return state.connection.respond(stream, vec![Field::fixed(":status", status)], true);
        }
        let method = String::from_utf8_lossy(value(b":path")).into_owned();
        let timeout = grpc::read_timeout(value(b"grpc-timeout"));
        let received = method.len();
        let call = Call { stream, method, timeout, message: Vec::new(), received, task: None };
        self.state.borrow_mut().calls.push(call);
        // The method's length counts against the limits too.
        self.on_data(stream, &[], end);
    }

    fn on_data(&self, stream: StreamId, data: &[u8], end: bool) {
        let mut state = self.state.borrow_mut();
        // The window is returned at once: the limits bound the memory.
        state.connection.consume(stream, data.len());
        let has_room = state.received().saturating_add(data.len()) <= self.limits.connection;
        let Some(call) = state.calls.iter_mut().find(|call| call.stream == stream) else { return };
        call.message.extend_from_slice(data);
        call.received = call.received.saturating_add(data.len());
        let taken = grpc::take_message(&call.message, self.limits.message).map(|taken| taken.map(|(_, used)| used));
        let refused = match taken {
            _ if !has_room => {
                Status::new(Code::ResourceExhausted, format!("requests exceed {} bytes", self.limits.connection))
            }
            Err(error) => Status::new(Code::ResourceExhausted, error.to_string()),
            Ok(Some(used)) if used < call.message.len() => Status::new(Code::Internal, "more than one request"),
            Ok(Some(_)) if end => {
                let mut message = std::mem::take(&mut call.message);
                message.drain(..RPC_SERVER_HEADER_BYTES.min(message.len()));
                let method = std::mem::take(&mut call.method);
                let request = Request { method, message, timeout: call.timeout, wire: self.wire.clone() };
                drop(state);
                return self.start_response(stream, request);
            }
            Ok(None) if end => Status::new(Code::Internal, "request ends within its message"),
            Ok(_) => return,
        };
        state.calls.retain(|call| call.stream != stream);
        state.connection.respond(stream, response_head(Some(&refused)), true);
    }

    fn start_response(&self, stream: StreamId, request: Request) {
        let response = (self.handler)(request);
        let link = Weak::clone(&self.this);
        let task = rt::spawn(async move { reply(link, stream, response.await).await });
        let mut state = self.state.borrow_mut();
        if let Some(call) = state.calls.iter_mut().find(|call| call.stream == stream) {
            call.task = Some(task);
            self.is_busy.set(true);
        }
    }

    /// Handles a call that the client has cancelled.
    fn forget(&self, stream: StreamId) {
        let mut state = self.state.borrow_mut();
        state.calls.retain(|call| call.stream != stream);
        self.is_busy.set(state.calls.iter().any(|call| call.task.is_some()));
    }

    fn with(&self, act: impl FnOnce(&mut http2::Connection)) {
        act(&mut self.state.borrow_mut().connection);
        self.work.notify();
    }

    fn finish(&self, stream: StreamId, act: impl FnOnce(&mut http2::Connection)) {
        self.with(act);
        self.forget(stream);
    }
}

/// Sends the handler's reply, unless the connection is closed.
async fn reply(link: Weak<Link>, stream: StreamId, result: Result<Reply, Status>) {
    let Some(now) = link.upgrade() else { return };
    match result {
        Err(status) => now.finish(stream, |http| http.respond(stream, response_head(Some(&status)), true)),
        Ok(Reply::Message(message)) => now.finish(stream, |http| {
            http.respond(stream, response_head(None), false);
            send(http, stream, message);
            http.send_trailers(stream, Status::ok().trailers());
        }),
        Ok(Reply::Stream(messages)) => {
            now.with(|http| http.respond(stream, response_head(None), false));
            drop(now);
            reply_stream(link, stream, messages).await;
        }
    }
}

async fn reply_stream(link: Weak<Link>, stream: StreamId, messages: async_channel::Receiver<Result<Vec<u8>, Status>>) {
    let mut status = Status::ok();
    while let Ok(message) = messages.recv().await {
        let Some(now) = link.upgrade() else { return };
        match message {
            Ok(message) => now.with(|http| send(http, stream, message)),
            Err(error) => {
                status = error;
                break;
            }
        }
        // The handler bounds the channel. At most one message is queued here for a slow client.
        loop {
            let seen = now.drained.changes();
            let queued = now.state.borrow().connection.queued(stream);
            if queued.is_none_or(|queued| queued == 0) {
                break;
            }
            now.drained.beyond(seen).await;
        }
    }
    if let Some(now) = link.upgrade() {
        now.finish(stream, |http| http.send_trailers(stream, status.trailers()));
    }
}

fn send(http: &mut http2::Connection, stream: StreamId, message: Vec<u8>) {
    match grpc::frame_message(message) {
        Ok(framed) => http.send_data(stream, framed, false),
        Err(_) => http.reset(stream, ErrorCode::INTERNAL_ERROR),
    }
}

/// The head of a response; the whole response if it is an error.
fn response_head(status: Option<&Status>) -> Vec<Field> {
    let mut head = vec![Field::fixed(":status", "200"), Field::fixed("content-type", grpc::GRPC_CONTENT_TYPE)];
    head.extend(status.into_iter().flat_map(Status::trailers));
    head
}

/// The length of a message's header.
const RPC_SERVER_HEADER_BYTES: usize = 5;
