//! HTTP/2 input to a client or a server: events must not depend on how it is split, and output must stay bounded.
//!
//! The first byte selects the role and the piece size.

use std::time::Instant;

use coracle::protocol::hpack::Field;
use coracle::protocol::http2::{Connection, ErrorCode, Event};

pub(crate) fn check(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else { return };
    let is_server = choice & 1 == 1;
    let piece = usize::from(choice >> 1) + 1;
    let now = Instant::now();
    assert_eq!(hear(is_server, bytes, usize::MAX, now), hear(is_server, bytes, piece, now));
    converse(is_server, bytes, piece, now);
}

/// The events and output of a connection whose user does nothing.
fn hear(is_server: bool, bytes: &[u8], piece: usize, now: Instant) -> (Vec<Event>, bool, Vec<u8>) {
    let mut connection = begin(is_server, now);
    let mut events = Vec::new();
    let heard = bytes.chunks(piece).try_for_each(|piece| connection.receive(piece, now, &mut events));
    let mut out = Vec::new();
    transmit(&mut connection, &mut out);
    (events, heard.is_ok(), out)
}

/// Responds as a user of the connection would, and resets some streams.
fn converse(is_server: bool, bytes: &[u8], piece: usize, now: Instant) {
    let mut connection = begin(is_server, now);
    for piece in bytes.chunks(piece) {
        let mut events = Vec::new();
        let heard = connection.receive(piece, now, &mut events);
        for event in events {
            answer(&mut connection, is_server, event);
        }
        transmit(&mut connection, &mut Vec::new());
        if heard.is_err() {
            return;
        }
    }
}

fn answer(connection: &mut Connection, is_server: bool, event: Event) {
    match event {
        Event::Head { stream, end, .. } if is_server => {
            connection.respond(stream, vec![Field::fixed(":status", "200")], false);
            connection.send_data(stream, vec![0; 1000], false);
            if end {
                connection.send_trailers(stream, vec![Field::fixed("grpc-status", "0")]);
            }
        }
        Event::Data { stream, data, end } => {
            connection.consume(stream, data.len());
            if end {
                connection.send_data(stream, data, true);
            } else if data.len() == 7 {
                connection.reset(stream, ErrorCode::CANCEL);
            }
        }
        Event::GoAway { .. } => connection.go_away(),
        _ => {}
    }
}

/// Collects all output, which must be bounded.
fn transmit(connection: &mut Connection, out: &mut Vec<u8>) {
    loop {
        let before = out.len();
        connection.transmit(out);
        assert!(out.len() - before < 200_000, "one transmit returned {} bytes", out.len() - before);
        if out.len() == before {
            return;
        }
    }
}

/// A server that has received the client's preface, or a client with three requests in flight.
fn begin(is_server: bool, now: Instant) -> Connection {
    if is_server {
        let mut connection = Connection::server();
        connection.receive(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", now, &mut Vec::new()).expect("valid preface");
        return connection;
    }
    let mut connection = Connection::client();
    for len in [0, 10, 100_000] {
        let head = [(":method", "POST"), (":scheme", "http"), (":path", "/a.B/C")];
        let head = head.map(|(name, value)| Field::fixed(name, value)).to_vec();
        let stream = connection.open(head, false).expect("new connections accept streams");
        connection.send_data(stream, vec![0; len], true);
    }
    transmit(&mut connection, &mut Vec::new());
    connection
}
