//! An HTTP/2 connection: a thread for reading, and one for each request.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use coracle::protocol::hpack::Field;
use coracle::protocol::http2::{Connection, ErrorCode, Event, StreamId};
use rustls::ServerConnection;

use super::connection::{Socket, Wire};
use super::exchange::{Exchange, Seen};
use super::handle::{self, Client};
use super::http::{Message, Response};
use super::shared::{Shared, lock};
use super::world::World;

/// Both directions of a connection.
pub(crate) struct Duplex {
    state: Mutex<State>,
    tcp: TcpStream,
}

struct State {
    tls: Option<ServerConnection>,
    socket: Socket,
    http: Connection,
    /// GOAWAY was sent.
    leaves: bool,
}

impl Duplex {
    /// Applies `act` to the connection and sends the resulting bytes.
    fn act<T>(&self, act: impl FnOnce(&mut Connection) -> T) -> io::Result<T> {
        let mut state = lock(&self.state);
        let done = act(&mut state.http);
        state.flush()?;
        Ok(done)
    }

    /// The events in the received bytes, which may be empty.
    fn receive(&self, bytes: &[u8]) -> io::Result<Vec<Event>> {
        let mut state = lock(&self.state);
        let plain = state.open(bytes)?;
        let mut events = Vec::new();
        let received = state.http.receive(&plain, Instant::now(), &mut events);
        state.flush()?;
        received.map_err(|error| io::Error::other(error.to_string()))?;
        Ok(events)
    }

    /// Tells the client to send no new requests.
    pub(super) fn go_away(&self) {
        // The client may already be gone.
        let _ = self.act(Connection::go_away);
        lock(&self.state).leaves = true;
    }

    /// Whether GOAWAY was sent and the last request has ended.
    fn is_over(&self) -> bool {
        let state = lock(&self.state);
        state.leaves && !state.http.has_streams()
    }

    /// Whether a request is under way.
    fn is_used(&self) -> bool {
        lock(&self.state).http.has_streams()
    }

    fn count_received(&self, length: usize) {
        lock(&self.state).socket.count_received(length);
    }

    fn cut(&self) {
        let _ = self.tcp.shutdown(Shutdown::Both);
    }
}

impl State {
    /// Decrypts the received records.
    fn open(&mut self, mut bytes: &[u8]) -> io::Result<Vec<u8>> {
        let Some(tls) = &mut self.tls else { return Ok(bytes.to_vec()) };
        let mut plain = Vec::new();
        loop {
            let state = tls.process_new_packets().map_err(io::Error::other)?;
            let mut part = vec![0; state.plaintext_bytes_to_read()];
            tls.reader().read_exact(&mut part)?;
            plain.extend(part);
            if bytes.is_empty() {
                return Ok(plain);
            }
            tls.read_tls(&mut bytes)?;
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        loop {
            let mut out = Vec::new();
            self.http.transmit(&mut out);
            if out.is_empty() {
                return self.write(&[]);
            }
            self.write(&out)?;
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return self.socket.write_all(bytes) };
        tls.writer().write_all(bytes)?;
        while tls.wants_write() {
            tls.write_tls(&mut self.socket)?;
        }
        Ok(())
    }
}

/// A partly received request.
struct Arriving {
    stream: StreamId,
    token: u64,
    message: Message,
}

/// Serves a connection until it closes. `first` was already read.
pub(super) fn serve(shared: &Arc<Shared>, wire: Wire, number: u64, first: Vec<u8>) {
    let certificate = wire.client_certificate();
    let (tls, socket) = wire.into_parts();
    let Ok(mut tcp) = socket.try_clone() else { return };
    let Ok(own) = socket.try_clone() else { return };
    // The socket may already be closed.
    let _ = tcp.set_read_timeout(Some(shared.look(|world| world.options.idle)));
    let state = State { tls, socket, http: Connection::server(), leaves: false };
    let duplex = Arc::new(Duplex { state: Mutex::new(state), tcp: own });
    shared.add_duplex(number, &duplex);
    let client = Arc::new(Client { connection: number, certificate });
    let mut arriving = Vec::new();
    let mut tokens = Vec::new();
    let mut bytes = first;
    while let Ok(events) = duplex.receive(&bytes) {
        for event in events {
            if let Event::Reset { stream, .. } = &event {
                let gone = tokens.iter().find(|(open, _)| open == stream).map(|(_, token)| *token);
                shared.change(|world| world.left.extend(gone));
            }
            let Some(request) = take(shared, &duplex, &mut arriving, &mut tokens, event) else { continue };
            let (shared, duplex, client) = (Arc::clone(shared), Arc::clone(&duplex), Arc::clone(&client));
            let threads = Arc::clone(&shared);
            threads.spawn(move || {
                let goes_away = shared.change(World::goes_away);
                let mut stream = Stream { duplex: &duplex, stream: request.stream, goes_away };
                if handle::handle(&shared, &mut stream, &client, request.token, request.message).is_err() {
                    stream.cut();
                }
            });
        }
        let mut buffer = vec![0; 16 * 1024];
        let length = match tcp.read(&mut buffer) {
            Ok(length @ 1..) => length,
            // The time limit of a read.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && duplex.is_used() => {
                bytes = Vec::new();
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                duplex.go_away();
                break;
            }
            _ => break,
        };
        buffer.truncate(length);
        duplex.count_received(length);
        bytes = buffer;
        if !shared.pass(0) {
            break;
        }
    }
    duplex.cut();
    shared.change(|world| world.left.extend(tokens.into_iter().map(|(_, token)| token)));
}

/// Records an event. Returns the request that it completes.
fn take(
    shared: &Shared,
    duplex: &Duplex,
    arriving: &mut Vec<Arriving>,
    tokens: &mut Vec<(StreamId, u64)>,
    event: Event,
) -> Option<Arriving> {
    let ended = match event {
        Event::Head { stream, fields, end } => {
            let token = shared.change(|world| world.next_number());
            tokens.push((stream, token));
            arriving.push(Arriving { stream, token, message: message(&fields) });
            end.then_some(stream)
        }
        Event::Data { stream, data, end } => {
            // A client that cannot be reached has gone.
            let _ = duplex.act(|http| http.consume(stream, data.len()));
            let request = arriving.iter_mut().find(|request| request.stream == stream)?;
            request.message.push(&data);
            end.then_some(stream)
        }
        Event::Trailers { stream, .. } => Some(stream),
        Event::Reset { stream, .. } => {
            arriving.retain(|request| request.stream != stream);
            None
        }
        Event::Ready | Event::GoAway { .. } => None,
    };
    let place = arriving.iter().position(|request| Some(request.stream) == ended)?;
    Some(arriving.remove(place))
}

pub(crate) fn message(fields: &[Field]) -> Message {
    let mut message = Message::default();
    for field in fields {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match &*field.name {
            b":method" => message.method = text(&field.value),
            b":path" => message.target = text(&field.value),
            name if name.starts_with(b":") => {}
            name => message.headers.push((text(name), text(&field.value))),
        }
    }
    message
}

/// The stream of one request.
struct Stream<'a> {
    duplex: &'a Duplex,
    stream: StreamId,
    /// The response comes with GOAWAY.
    goes_away: bool,
}

impl Exchange for Stream<'_> {
    fn head(&mut self, response: &Response, length: Option<usize>) -> io::Result<()> {
        let mut fields = vec![Field::new(":status", response.status.to_string())];
        let length = length.map(|length| ("content-length".to_owned(), length.to_string()));
        for (name, value) in response.headers.iter().chain(&length) {
            let name = Cow::Owned(name.to_ascii_lowercase().into_bytes());
            fields.push(Field { name, value: Cow::Owned(value.clone().into_bytes()) });
        }
        if self.goes_away {
            self.duplex.go_away();
        }
        self.duplex.act(|http| http.respond(self.stream, fields, false))
    }

    fn body(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.duplex.act(|http| http.send_data(self.stream, bytes.to_vec(), false))
    }

    fn end(&mut self) -> io::Result<()> {
        self.duplex.act(|http| http.send_data(self.stream, Vec::new(), true))?;
        if self.duplex.is_over() {
            // The client may already be gone.
            let _ = self.duplex.tcp.shutdown(Shutdown::Write);
        }
        Ok(())
    }

    fn abort(&mut self, seen: Seen) {
        let code = if seen == Seen::Yes { ErrorCode::INTERNAL_ERROR } else { ErrorCode::REFUSED_STREAM };
        // The client may already be gone.
        let _ = self.duplex.act(|http| http.reset(self.stream, code));
    }

    fn cut(&mut self) {
        self.duplex.cut();
    }

    fn speak(&mut self, bytes: &[u8]) -> io::Result<()> {
        lock(&self.duplex.state).write(bytes)?;
        self.duplex.cut();
        Ok(())
    }
}
