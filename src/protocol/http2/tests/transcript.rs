//! Whole connections: the events do not depend on how the bytes are split.

use super::*;

#[track_caller]
fn every_split_gives_the_same(new: impl Fn() -> Connection, transcript: &[u8]) {
    let now = Instant::now();
    let run = |pieces: &[&[u8]]| {
        let (mut connection, mut events) = (new(), Vec::new());
        let mut outcome = Ok(());
        for piece in pieces {
            outcome = outcome.and_then(|()| connection.receive(piece, now, &mut events));
        }
        (events, outcome, sent(&mut connection))
    };
    let whole = run(&[transcript]);
    assert!(whole.0.len() > 2, "too little happens: {:?}", whole.0);
    for at in 0..=transcript.len() {
        let (left, right) = transcript.split_at(at);
        assert_eq!(run(&[left, right]), whole, "cut at {at}");
    }
    let bytes: Vec<&[u8]> = transcript.chunks(1).collect();
    assert_eq!(run(&bytes), whole, "byte by byte");
    let threes: Vec<&[u8]> = transcript.chunks(3).collect();
    assert_eq!(run(&threes), whole, "three bytes at a time");
}

/// A server's responses to three requests.
fn answers() -> Vec<u8> {
    let head = block(&RESPONSE);
    let (first, second) = head.split_at(4);
    [
        setting(4, 100_000),
        frame(SETTINGS, ACK, 0, &[]),
        frame(HEADERS, 0, 1, first),
        frame(CONTINUATION, 0, 1, &[]),
        frame(CONTINUATION, END_HEADERS, 1, second),
        frame(DATA, PADDED, 1, b"\x02hello\0\0"),
        frame(PING, 0, 0, b"12345678"),
        frame(PRIORITY, 0, 3, &[0; 5]),
        frame(0x77, 0xff, 9, b"who knows"),
        frame(DATA, 0, 1, b" world"),
        window_update(0, 10),
        frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&[("grpc-status", "0")])),
        response(3, true),
        frame(RST_STREAM, 0, 5, &8_u32.to_be_bytes()),
        frame(GOAWAY, 0, 0, &[0, 0, 0, 5, 0, 0, 0, 0, b'b', b'y', b'e']),
    ]
    .concat()
}

fn client_with_three_requests() -> Connection {
    let mut connection = Connection::client();
    for _ in 0..3 {
        connection.open(fields(&REQUEST), false).unwrap();
    }
    sent(&mut connection);
    connection
}

#[test]
fn client_events_do_not_depend_on_splits() {
    every_split_gives_the_same(client_with_three_requests, &answers());
}

#[test]
fn server_events_do_not_depend_on_splits() {
    let transcript = [
        MAGIC.to_vec(),
        setting(3, 10),
        request(1, false),
        frame(DATA, END_STREAM, 1, b"message"),
        request(3, true),
        request(5, false),
        frame(RST_STREAM, 0, 5, &8_u32.to_be_bytes()),
        frame(DATA, 0, 5, b"too late"),
        frame(HEADERS, END_HEADERS, 7, &block(&[(":method", "GET"), ("Bad", "name")])),
        request(9, false),
        frame(GOAWAY, 0, 0, &[0; 8]),
    ];
    every_split_gives_the_same(Connection::server, &transcript.concat());
}

#[test]
fn events_before_an_error_do_not_depend_on_splits() {
    let transcript = [answers(), frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2])].concat();
    every_split_gives_the_same(client_with_three_requests, &transcript);
}

#[test]
fn events_follow_the_order_of_frames() {
    let mut connection = client_with_three_requests();
    let events = feed(&mut connection, &answers()).unwrap();
    let data = |data: &[u8]| Event::Data { stream: id(1), data: data.to_vec(), end: false };
    let expected = [
        Event::Ready,
        Event::Head { stream: id(1), fields: fields(&RESPONSE), end: false },
        data(b"hello"),
        data(b" world"),
        Event::Trailers { stream: id(1), fields: fields(&[("grpc-status", "0")]) },
        Event::Head { stream: id(3), fields: fields(&RESPONSE), end: true },
        Event::Reset { stream: id(5), ending: Ending::ByPeer(ErrorCode::CANCEL) },
        Event::GoAway { code: ErrorCode::NO_ERROR },
    ];
    assert_eq!(events, expected);
}

#[test]
fn client_and_server_work_with_any_piece_size() {
    for piece in [1, 2, 7, 9, 100, 16_393, usize::MAX] {
        let (mut client, mut server) = (Connection::client(), Connection::server());
        let body: Vec<u8> = (0..60_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let stream = client.open(fields(&REQUEST), false).unwrap();
        client.send_data(stream, body.clone(), true);
        let (to_client, to_server) = pump(&mut client, &mut server, piece);
        assert_eq!(to_client, [Event::Ready]);
        assert_eq!(to_server[..2], [Event::Ready, Event::Head { stream, fields: fields(&REQUEST), end: false }]);
        assert_eq!(content(&to_server, stream), body);

        server.respond(stream, fields(&RESPONSE), false);
        server.send_data(stream, body.clone(), false);
        server.send_trailers(stream, fields(&[("grpc-status", "0")]));
        let (to_client, _) = pump(&mut client, &mut server, piece);
        assert_eq!(content(&to_client, stream), body);
        let end = Event::Trailers { stream, fields: fields(&[("grpc-status", "0")]) };
        assert_eq!(to_client.last(), Some(&end));
        assert!(!client.has_streams() && !server.has_streams(), "a finished stream is kept");
    }
}
