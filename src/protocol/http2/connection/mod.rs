//! The connection and its API. The other files of this folder handle received frames by type, except `transmit.rs`,
//! which writes. Pure.

mod control;
mod data;
mod headers;
mod receive;
mod settings;
mod transmit;

use std::fmt;

use super::error::{Error, ErrorCode};
use super::event::{Ending, Event};
use super::flood::Flood;
use super::frame::{self, Flags, Kind};
use super::limits;
use super::settings::write_settings;
use super::stream::{State, Stream};
use super::stream_id::StreamId;
use super::window::{ReceiveWindow, SendWindow};
use crate::protocol::hpack::{Decoder, Encoder, Field};
use headers::Block;
use settings::PeerSettings;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Client,
    Server,
}

/// One end of an HTTP/2 connection.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    /// An incomplete frame.
    input: Vec<u8>,
    greeting: Greeting,
    /// An incomplete header block; no other frame may come before its end.
    block: Option<Block>,
    decoder: Decoder,
    encoder: Encoder,
    peer: PeerSettings,
    /// The peer knows this side's limits.
    is_acked: bool,
    send_window: SendWindow,
    receive_window: ReceiveWindow,
    /// The streams that are not closed, ordered by id.
    streams: Vec<Stream>,
    /// The id of the next stream opened here.
    next_stream: StreamId,
    /// The highest stream id that the peer has opened.
    last_of_peer: StreamId,
    /// `refuses_new`: this side sent GOAWAY. `refused_new`: the peer did, or the stream ids are used up.
    refuses_new: bool,
    refused_new: bool,
    /// Complete frames to send that are not subject to flow control.
    control: Vec<u8>,
    /// How many frames of `control` are answers to the peer's frames.
    answers: u32,
    flood: Flood,
    failed: Option<Error>,
    /// Total bytes that `transmit` has returned.
    transmitted: u64,
    /// Index into `streams` of the stream that may send data next.
    next_sender: usize,
}

/// The progress of the peer's connection preface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Greeting {
    /// Waiting for the client's magic bytes.
    Magic,
    /// Waiting for the first frame, which must be SETTINGS.
    Settings,
    Done,
}

/// The connection accepts no new streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoingAway;

impl fmt::Display for GoingAway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("connection accepts no new streams")
    }
}

impl std::error::Error for GoingAway {}

impl Connection {
    pub fn client() -> Self {
        let mut connection = Self::new(Role::Client, Greeting::Settings, StreamId::FIRST_OF_CLIENT);
        connection.control.extend_from_slice(CLIENT_PREFACE);
        write_settings(false, &mut connection.control);
        connection
    }

    pub fn server() -> Self {
        let mut connection = Self::new(Role::Server, Greeting::Magic, StreamId::FIRST_OF_SERVER);
        write_settings(true, &mut connection.control);
        connection
    }

    fn new(role: Role, greeting: Greeting, next_stream: StreamId) -> Self {
        let peer = PeerSettings::default();
        Self {
            role,
            input: Vec::new(),
            greeting,
            block: None,
            decoder: Decoder::new(
                limits::HEADER_TABLE_BYTES,
                usize::try_from(limits::MAX_HEADER_LIST_BYTES).unwrap_or(usize::MAX),
            ),
            encoder: Encoder::new(limits::HEADER_TABLE_BYTES),
            peer,
            is_acked: false,
            send_window: SendWindow::new(limits::RECEIVE_WINDOW_BYTES),
            receive_window: ReceiveWindow::new(),
            streams: Vec::new(),
            next_stream,
            last_of_peer: StreamId::CONNECTION,
            refuses_new: false,
            refused_new: false,
            control: Vec::new(),
            answers: 0,
            flood: Flood::default(),
            failed: None,
            transmitted: 0,
            next_sender: 0,
        }
    }

    /// Opens a stream with a request; `end` means that no content follows. The request is sent once the peer's limit on
    /// streams allows it.
    pub fn open(&mut self, fields: Vec<Field>, end: bool) -> Result<StreamId, GoingAway> {
        if self.refused_new || self.failed.is_some() || self.next_stream > StreamId::LAST {
            return Err(GoingAway);
        }
        let id = self.next_stream;
        self.next_stream = id.next();
        let mut stream = Stream::new(id, State::Waiting, self.peer.initial_window);
        stream.outgoing.head = Some(fields);
        stream.outgoing.end = end;
        self.streams.push(stream);
        Ok(id)
    }

    /// Sends the response head; `end` means that no content follows. Like all methods below, does nothing if the stream
    /// is closed.
    pub fn respond(&mut self, id: StreamId, fields: Vec<Field>, end: bool) {
        if let Some(stream) = self.stream(id) {
            stream.outgoing.head = Some(fields);
            stream.outgoing.end = end;
        }
    }

    /// Queues content, which is sent as the windows allow. Nothing may follow after `end`.
    pub fn send_data(&mut self, id: StreamId, data: Vec<u8>, end: bool) {
        if let Some(stream) = self.stream(id) {
            stream.outgoing.push(data);
            stream.outgoing.end = end;
        }
    }

    /// Ends this side of the stream with trailers after the content.
    pub fn send_trailers(&mut self, id: StreamId, fields: Vec<Field>) {
        if let Some(stream) = self.stream(id) {
            stream.outgoing.trailers = Some(fields);
            stream.outgoing.end = true;
        }
    }

    /// Resets the stream. No event follows for it.
    pub fn reset(&mut self, id: StreamId, code: ErrorCode) {
        if let Some(stream) = self.remove(id) {
            if stream.state != State::Waiting {
                self.write_reset(id, code);
            }
        }
    }

    /// Returns `len` bytes of window to the peer.
    pub fn consume(&mut self, id: StreamId, len: usize) {
        let Some(stream) = self.stream(id) else { return };
        if !stream.state.may_receive() {
            return;
        }
        // No more than a window can have been received.
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        if let Some(increment) = stream.receive_window.consume(len) {
            self.write_window_update(id, increment);
        }
    }

    /// Refuses new streams of the peer; open streams continue.
    pub fn go_away(&mut self) {
        if !self.refuses_new {
            self.refuses_new = true;
            self.write_go_away(ErrorCode::NO_ERROR);
        }
    }

    /// Whether [`Connection::open`] would fail.
    pub fn is_going_away(&self) -> bool {
        self.refused_new || self.failed.is_some() || self.next_stream > StreamId::LAST
    }

    pub fn has_streams(&self) -> bool {
        !self.streams.is_empty()
    }

    /// How many streams the peer accepts from this side at a time.
    pub fn max_streams(&self) -> u32 {
        self.peer.max_streams
    }

    /// Sends a PING, which a live peer acknowledges at once. Its content is not compared, because any byte of the peer
    /// shows that it lives.
    pub fn ping(&mut self) {
        frame::write_frame(Kind::PING, Flags::NONE, StreamId::CONNECTION, &[0; 8], &mut self.control);
    }

    /// How many bytes of content are queued on a stream; `None` if it is closed.
    pub fn queued(&self, id: StreamId) -> Option<usize> {
        let stream = self.streams.iter().find(|stream| stream.id == id)?;
        Some(stream.outgoing.unsent().len())
    }

    /// Whether the peer cannot have seen a stream opened here, if only the first `written` bytes of all that
    /// [`Connection::transmit`] returned were sent. Remains correct after an error.
    pub fn is_unseen(&self, id: StreamId, written: u64) -> bool {
        let stream = self.streams.iter().find(|stream| stream.id == id);
        stream.is_some_and(|stream| stream.sent_from.is_none_or(|from| from >= written))
    }

    /// The size of the buffers in bytes.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.input.capacity() + self.control.capacity()
    }

    fn stream(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.streams.iter_mut().find(|stream| stream.id == id)
    }

    fn remove(&mut self, id: StreamId) -> Option<Stream> {
        let index = self.streams.iter().position(|stream| stream.id == id)?;
        Some(self.streams.remove(index))
    }

    /// Removes the stream if its state is `Closed`.
    fn drop_closed(&mut self, id: StreamId) {
        if self.stream(id).is_some_and(|stream| stream.state == State::Closed) {
            self.remove(id);
            self.flood.stream_completed();
        }
    }

    fn is_own(&self, id: StreamId) -> bool {
        id.is_of_client() == (self.role == Role::Client)
    }

    /// Whether neither side has used the stream yet.
    fn is_idle(&self, id: StreamId) -> bool {
        if self.is_own(id) {
            let waiting = |stream: &Stream| stream.id == id && stream.state == State::Waiting;
            id >= self.next_stream || self.streams.iter().any(waiting)
        } else {
            id > self.last_of_peer
        }
    }

    fn write_reset(&mut self, id: StreamId, code: ErrorCode) {
        frame::write_frame(Kind::RST_STREAM, Flags::NONE, id, &code.0.to_be_bytes(), &mut self.control);
    }

    fn write_window_update(&mut self, id: StreamId, increment: u32) {
        frame::write_frame(Kind::WINDOW_UPDATE, Flags::NONE, id, &increment.to_be_bytes(), &mut self.control);
    }

    fn write_go_away(&mut self, code: ErrorCode) {
        let mut payload = self.last_of_peer.bytes().to_vec();
        payload.extend(code.0.to_be_bytes());
        frame::write_frame(Kind::GOAWAY, Flags::NONE, StreamId::CONNECTION, &payload, &mut self.control);
    }
}

/// RFC 9113 section 3.4.
const CLIENT_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
