//! One connection: HTTP/2 and gRPC on a Unix socket, with a thread for reading and one for each call.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use coracle::protocol::grpc::{Code, GRPC_CONTENT_TYPE, Status, frame_message, read_timeout, take_message};
use coracle::protocol::hpack::Field;
use coracle::protocol::http2::{Connection, Event, StreamId};

use super::faults::{self, Fault};
use super::world::{Call, World};
use super::{Shared, answers, lock};

pub(crate) struct Wire {
    stream: UnixStream,
    http: Mutex<Connection>,
}

impl Wire {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, http: Mutex::new(Connection::server()) }
    }

    /// Closes the connection without another byte.
    pub(super) fn cut(&self) {
        // The peer may already have closed it.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Begins a stream of response messages.
    pub(super) fn begin(&self, id: StreamId) {
        self.send(|http| http.respond(id, head(), false));
    }

    /// Sends one message of a stream.
    pub(super) fn message(&self, id: StreamId, message: Vec<u8>) {
        self.send(|http| http.send_data(id, frame_message(message).unwrap(), false));
    }

    fn answer(&self, id: StreamId, answer: Result<Vec<u8>, Status>) {
        self.send(|http| match answer {
            Ok(message) => {
                http.respond(id, head(), false);
                http.send_data(id, frame_message(message).unwrap(), false);
                http.send_trailers(id, Status::ok().trailers());
            }
            Err(status) => http.respond(id, [head(), status.trailers()].concat(), true),
        });
    }

    fn half_answer(&self, id: StreamId, message: Vec<u8>) {
        let mut framed = frame_message(message).unwrap();
        framed.truncate(framed.len() / 2);
        self.send(|http| {
            http.respond(id, head(), false);
            http.send_data(id, framed, false);
        });
    }

    fn speak(&self, bytes: &[u8]) {
        let _http = lock(&self.http);
        // The peer may be gone.
        let _ = (&self.stream).write_all(bytes);
    }

    /// Applies `act` to the connection and sends the resulting bytes.
    fn send<T>(&self, act: impl FnOnce(&mut Connection) -> T) -> T {
        let mut http = lock(&self.http);
        let done = act(&mut http);
        // Each call gives the next piece.
        loop {
            let mut out = Vec::new();
            http.transmit(&mut out);
            // The peer may be gone.
            if out.is_empty() || (&self.stream).write_all(&out).is_err() {
                return done;
            }
        }
    }
}

fn head() -> Vec<Field> {
    vec![Field::fixed(":status", "200"), Field::fixed("content-type", GRPC_CONTENT_TYPE)]
}

/// Serves a connection until it closes.
pub(super) fn serve(wire: &Arc<Wire>, shared: &Arc<Shared>) {
    let mut requests = Vec::new();
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = (&wire.stream).read(&mut buffer) {
        let mut events = Vec::new();
        if wire.send(|http| http.receive(&buffer[..length], Instant::now(), &mut events)).is_err() {
            break;
        }
        for event in events {
            if let Some(request) = take_event(wire, &mut requests, event) {
                let (wire, shared) = (Arc::clone(wire), Arc::clone(shared));
                thread::spawn(move || handle(&wire, &shared, &request));
            }
        }
    }
    wire.cut();
}

/// containerd's limit of messages both ways: `max_recv_message_size` and `max_send_message_size`. That of CRI-O is five
/// times as large.
pub(super) const MAX_CRI_MESSAGE_BYTES: u32 = 16 << 20;
/// The length of a message's header.
const HEAD: usize = 5;

/// Refuses a response that is too large.
pub(super) fn sendable(message: Vec<u8>) -> Result<Vec<u8>, Status> {
    if u32::try_from(message.len()).is_ok_and(|length| length <= MAX_CRI_MESSAGE_BYTES) {
        return Ok(message);
    }
    let text = format!("grpc: trying to send message larger than max ({} vs. {MAX_CRI_MESSAGE_BYTES})", message.len());
    Err(Status::new(Code::ResourceExhausted, text))
}

struct Request {
    id: StreamId,
    method: String,
    timeout: Option<Duration>,
    body: Vec<u8>,
}

/// Records an event. Returns the request that it completes.
fn take_event(wire: &Wire, requests: &mut Vec<Request>, event: Event) -> Option<Request> {
    let ended = match event {
        Event::Head { stream: id, fields, end } => {
            let value = |name: &[u8]| Some(&*fields.iter().find(|field| *field.name == *name)?.value);
            let path = String::from_utf8_lossy(value(b":path").expect("a path"));
            let method = path.rsplit('/').next().expect("a method").to_owned();
            let timeout = value(b"grpc-timeout").and_then(read_timeout);
            requests.push(Request { id, method, timeout, body: Vec::new() });
            end.then_some(id)
        }
        Event::Data { stream, data, end } => {
            wire.send(|http| http.consume(stream, data.len()));
            let request = requests.iter_mut().find(|request| request.id == stream).expect("a head before the data");
            request.body.extend(data);
            end.then_some(stream)
        }
        Event::Reset { stream, .. } => {
            requests.retain(|request| request.id != stream);
            None
        }
        Event::Ready | Event::Trailers { .. } | Event::GoAway { .. } => None,
    };
    let place = requests.iter().position(|request| Some(request.id) == ended)?;
    Some(requests.remove(place))
}

fn handle(wire: &Arc<Wire>, shared: &Shared, request: &Request) {
    let &Request { id, ref method, timeout, ref body } = request;
    let Ok(request) = take_message(body, MAX_CRI_MESSAGE_BYTES) else {
        let message =
            format!("grpc: received message larger than max ({} vs. {MAX_CRI_MESSAGE_BYTES})", body.len() - HEAD);
        return wire.answer(id, Err(Status::new(Code::ResourceExhausted, message)));
    };
    let request = request.expect("a whole request").0;
    let (fault, released) = shared.change(|world| {
        world.calls.push(Call { method: method.clone(), request: request.to_vec(), timeout });
        (faults::fault(&mut world.rules, method, request), world.released(method))
    });
    if let Some(Fault::Hold) = fault {
        let held = |world: &mut World| !world.ended && world.released(method) == released;
        drop(shared.changed.wait_while(lock(&shared.world), held).unwrap_or_else(PoisonError::into_inner));
    }
    let act = || answers::answer(shared, wire, id, method, request).map(|answer| answer.and_then(sendable));
    match fault {
        None | Some(Fault::Hold) => {
            if let Some(answer) = act() {
                wire.answer(id, answer);
            }
        }
        Some(Fault::Fail(status)) => wire.answer(id, Err(status)),
        Some(Fault::Hang) => {}
        Some(Fault::HangAfterEffect) => drop(act()),
        Some(Fault::Answer(bytes)) => wire.answer(id, Ok(bytes)),
        Some(Fault::Speak(bytes)) => {
            wire.speak(&bytes);
            wire.cut();
        }
        Some(Fault::CutBeforeEffect) => wire.cut(),
        Some(Fault::CutAfterEffect) => {
            drop(act());
            wire.cut();
        }
        Some(Fault::CutInAnswer) => {
            if let Some(Ok(answer)) = act() {
                wire.half_answer(id, answer);
            }
            wire.cut();
        }
    }
}
