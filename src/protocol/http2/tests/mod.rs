//! Drives both roles with raw frames and against each other.

mod flow;
mod limits;
mod rules;
mod streams;
mod transcript;

use std::time::Instant;

use super::frame::{Flags, Kind, take_frame, write_frame};
use super::*;
use crate::protocol::hpack::{Encoder, Field};

const MAGIC: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

fn id(number: u32) -> StreamId {
    StreamId::read(number.to_be_bytes())
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_frame(Kind(kind), Flags(flags), StreamId::CONNECTION, payload, &mut out);
    // Any bits, including the reserved one.
    out[5..9].copy_from_slice(&stream.to_be_bytes());
    out
}

fn setting(name: u16, value: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
}

fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

/// A header block that leaves the dynamic tables unchanged.
fn block(fields: &[(&'static str, &'static str)]) -> Vec<u8> {
    let fields: Vec<Field> = fields.iter().map(|(name, value)| Field::fixed(name, value)).collect();
    let mut encoder = Encoder::new(0);
    // The first block only announces the empty table.
    encoder.encode(&[], &mut Vec::new());
    let mut out = Vec::new();
    encoder.encode(&fields, &mut out);
    out
}

const REQUEST: [(&str, &str); 3] = [(":method", "POST"), (":scheme", "http"), (":path", "/a.B/C")];
const RESPONSE: [(&str, &str); 2] = [(":status", "200"), ("content-type", "application/grpc")];

fn request(stream: u32, end: bool) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | u8::from(end), stream, &block(&REQUEST))
}

fn response(stream: u32, end: bool) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | u8::from(end), stream, &block(&RESPONSE))
}

fn fields(list: &[(&'static str, &'static str)]) -> Vec<Field> {
    list.iter().map(|(name, value)| Field::fixed(name, value)).collect()
}

/// A client whose peer is ready, with nothing to send.
fn client() -> Connection {
    let mut connection = Connection::client();
    feed(&mut connection, &frame(SETTINGS, 0, 0, &[])).unwrap();
    sent(&mut connection);
    connection
}

/// The same with a request without content on stream 1.
fn client_with_request() -> Connection {
    let mut connection = client();
    assert_eq!(connection.open(fields(&REQUEST), true), Ok(id(1)));
    sent(&mut connection);
    connection
}

fn server() -> Connection {
    let mut connection = Connection::server();
    feed(&mut connection, &[MAGIC, &frame(SETTINGS, 0, 0, &[])].concat()).unwrap();
    sent(&mut connection);
    connection
}

fn feed(connection: &mut Connection, bytes: &[u8]) -> Result<Vec<Event>, Error> {
    let mut events = Vec::new();
    connection.receive(bytes, Instant::now(), &mut events)?;
    Ok(events)
}

/// All frames to send, as type, flags, stream and payload.
fn sent(connection: &mut Connection) -> Vec<(u8, u8, StreamId, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        let before = bytes.len();
        connection.transmit(&mut bytes);
        if bytes.len() == before {
            break;
        }
    }
    let mut rest = bytes.strip_prefix(MAGIC).unwrap_or(&bytes);
    let mut frames = Vec::new();
    while let Some((frame, after)) = take_frame(rest).unwrap() {
        frames.push((frame.kind.0, frame.flags.0, frame.stream, frame.payload.to_vec()));
        rest = after;
    }
    assert!(rest.is_empty(), "half a frame");
    frames
}

/// Asserts that the bytes end the connection, with a GOAWAY of this code.
#[track_caller]
fn ends_connection(mut connection: Connection, bytes: &[u8], code: ErrorCode) {
    let error = feed(&mut connection, bytes).expect_err("the connection goes on");
    assert_eq!(error.code, code, "{error}");
    let last = sent(&mut connection).pop().expect("no farewell");
    assert_eq!((last.0, &last.3[4..]), (GOAWAY, &code.0.to_be_bytes()[..]));
    assert_eq!(feed(&mut connection, &[]), Err(error), "the connection lives again");
    assert!(connection.is_going_away());
}

/// Asserts that the bytes reset the stream, and that the user gets an event if it knew the stream.
#[track_caller]
fn ends_stream(mut connection: Connection, bytes: &[u8], stream: u32, code: ErrorCode) {
    let stream = id(stream);
    let opened_here = connection.queued(stream).is_some();
    let events = feed(&mut connection, bytes).expect("the connection ends");
    let reset = (RST_STREAM, 0, stream, code.0.to_be_bytes().to_vec());
    assert!(sent(&mut connection).contains(&reset), "not reset; events: {events:?}");
    let known = opened_here || events.iter().any(|event| matches!(event, Event::Head { .. }));
    let reported = matches!(events.last(), Some(Event::Reset { ending: Ending::Violation(_), .. }));
    assert_eq!(reported, known, "events: {events:?}");
    assert_eq!(connection.queued(stream), None, "the stream lives on");
}

/// Carries bytes both ways, in pieces of `piece` bytes, until both sides are idle.
fn pump(a: &mut Connection, b: &mut Connection, piece: usize) -> (Vec<Event>, Vec<Event>) {
    let (mut events_a, mut events_b) = (Vec::new(), Vec::new());
    while carry(a, b, piece, &mut events_b) | carry(b, a, piece, &mut events_a) {}
    (events_a, events_b)
}

fn carry(from: &mut Connection, to: &mut Connection, piece: usize, events: &mut Vec<Event>) -> bool {
    let mut bytes = Vec::new();
    from.transmit(&mut bytes);
    for piece in bytes.chunks(piece) {
        to.receive(piece, Instant::now(), events).unwrap();
    }
    !bytes.is_empty()
}

/// The content of a stream's events.
fn content(events: &[Event], stream: StreamId) -> Vec<u8> {
    let data = events.iter().filter_map(|event| match event {
        Event::Data { stream: of, data, .. } if *of == stream => Some(&data[..]),
        _ => None,
    });
    data.collect::<Vec<_>>().concat()
}
