//! A peer cannot make this side store or answer without bound.

use std::time::Duration;

use super::*;

/// Feeds `frame` repeatedly while reading the answers; returns how often it was accepted.
fn endure(connection: &mut Connection, frame: &[u8], limit: usize) -> usize {
    let now = Instant::now();
    for round in 0..limit {
        if let Err(error) = connection.receive(frame, now, &mut Vec::new()) {
            assert_eq!(error.code, ErrorCode::ENHANCE_YOUR_CALM, "{error}");
            return round;
        }
        sent(connection);
    }
    limit
}

#[test]
fn flood_of_useless_frames_ends_the_connection() {
    for flood in [
        frame(PING, 0, 0, &[0; 8]),
        frame(PING, ACK, 0, &[0; 8]),
        setting(3, 7),
        frame(SETTINGS, ACK, 0, &[]),
        frame(PRIORITY, 0, 1, &[0; 5]),
        frame(0x77, 0, 0, &[]),
        frame(DATA, 0, 1, &[]),
        frame(DATA, PADDED, 1, &[0]),
        window_update(1, 1),
    ] {
        let mut connection = server();
        feed(&mut connection, &request(1, false)).unwrap();
        let endured = endure(&mut connection, &flood, 20_000);
        assert!((5000..=10_000).contains(&endured), "{endured} of {flood:?}");
    }
}

#[test]
fn opening_and_resetting_streams_is_a_flood_too() {
    let mut connection = server();
    let now = Instant::now();
    for round in 0..20_000 {
        let number = 2 * round + 1;
        let bytes = [request(number, true), frame(RST_STREAM, 0, number, &[0; 4])].concat();
        if connection.receive(&bytes, now, &mut Vec::new()).is_err() {
            return assert!(round > 5000, "{round}");
        }
    }
    panic!("nobody minds");
}

#[test]
fn slow_useless_frames_are_no_flood() {
    let mut connection = client();
    let begin = Instant::now();
    for round in 0..50_000 {
        let now = begin + Duration::from_secs(round);
        connection.receive(&frame(PING, 0, 0, &[0; 8]), now, &mut Vec::new()).unwrap();
        sent(&mut connection);
    }
}

#[test]
fn completed_streams_earn_back_useless_frames() {
    let mut client = client();
    let noise = [frame(PING, 0, 0, &[0; 8]), window_update(0, 1), window_update(0, 1)].concat();
    for _ in 0..20_000 {
        let stream = client.open(fields(&REQUEST), true).unwrap();
        sent(&mut client);
        let number = u32::from_be_bytes(stream.bytes());
        feed(&mut client, &[noise.clone(), response(number, true)].concat()).unwrap();
    }
}

#[test]
fn frequent_window_updates_are_no_flood() {
    let mut connection = client();
    feed(&mut connection, &setting(4, 0)).unwrap();
    let stream = connection.open(fields(&REQUEST), false).unwrap();
    connection.send_data(stream, vec![0; 50_000], true);
    sent(&mut connection);
    let now = Instant::now();
    let updates = [window_update(1, 1), window_update(0, 1), frame(PING, 0, 0, &[0; 8])].concat();
    for _ in 0..50_000 {
        connection.receive(&updates, now, &mut Vec::new()).unwrap();
        sent(&mut connection);
    }
    assert_eq!(connection.queued(stream), Some(0));
}

#[test]
fn unread_answers_end_the_connection() {
    let pings = frame(PING, 0, 0, &[0; 8]).repeat(1001);
    ends_connection(client(), &pings, ErrorCode::ENHANCE_YOUR_CALM);
    let mut patient = client();
    feed(&mut patient, &frame(PING, 0, 0, &[0; 8]).repeat(1000)).unwrap();
    let answers = sent(&mut patient).into_iter().filter(|(kind, flags, ..)| (*kind, *flags) == (PING, ACK));
    assert_eq!(answers.count(), 1000);
}

#[test]
fn resets_of_faulty_streams_count_as_answers() {
    let faulty = |number: u32| frame(HEADERS, END_HEADERS, 2 * number + 1, &block(&[("a", "b")]));
    let many: Vec<u8> = (0..1001).flat_map(faulty).collect();
    ends_connection(server(), &many, ErrorCode::ENHANCE_YOUR_CALM);
}

#[test]
fn endless_header_block_ends_the_connection() {
    let begun = frame(HEADERS, 0, 1, &[]);
    let large = [begun.clone(), frame(CONTINUATION, 0, 1, &[0x82; 16_384]).repeat(5)].concat();
    ends_connection(server(), &large, ErrorCode::ENHANCE_YOUR_CALM);
    let many = [begun, frame(CONTINUATION, 0, 1, &[]).repeat(65)].concat();
    ends_connection(server(), &many, ErrorCode::ENHANCE_YOUR_CALM);
}

#[test]
fn oversized_header_list_ends_only_its_stream() {
    // One field of 4000 bytes, repeated with one byte each.
    let mut bomb = block(&REQUEST);
    bomb.extend([0x40, 1, b'a', 0x7f, 0xa1, 0x1e]);
    bomb.extend([b'x'; 4000]);
    bomb.extend([0xbe; 10_000]);
    ends_stream(server(), &frame(HEADERS, END_HEADERS | END_STREAM, 1, &bomb), 1, ErrorCode::ENHANCE_YOUR_CALM);
}

#[test]
fn streams_over_the_limit_are_refused() {
    let mut connection = server();
    for number in 0..100 {
        feed(&mut connection, &request(2 * number + 1, true)).unwrap();
    }
    assert_eq!(feed(&mut connection, &request(201, true)), Ok(vec![]));
    let reset = |number: u32, code: ErrorCode| (RST_STREAM, 0, id(number), code.0.to_be_bytes().to_vec());
    assert_eq!(sent(&mut connection), [reset(201, ErrorCode::REFUSED_STREAM)]);
    // A client that knows the limit violates the protocol.
    let mut late = frame(SETTINGS, ACK, 0, &[]);
    late.extend(request(203, true));
    assert_eq!(feed(&mut connection, &late), Ok(vec![]));
    assert_eq!(sent(&mut connection), [reset(203, ErrorCode::PROTOCOL_ERROR)]);
    connection.reset(id(1), ErrorCode::CANCEL);
    assert_eq!(feed(&mut connection, &request(205, true)).unwrap().len(), 1);
}

#[test]
fn idle_connection_has_empty_buffers() {
    let (mut client, mut server) = (Connection::client(), Connection::server());
    let stream = client.open(fields(&REQUEST), true).unwrap();
    pump(&mut client, &mut server, 5);
    server.respond(stream, fields(&RESPONSE), false);
    server.send_data(stream, vec![1; 50_000], true);
    pump(&mut client, &mut server, 5);
    for connection in [client, server] {
        assert_eq!(connection.kept(), 0);
        assert!(!connection.has_streams());
    }
}

/// A block of this status with `size` bytes in its fields.
fn large_block(status: &'static str, size: usize) -> Vec<u8> {
    let value: &'static str = "x".repeat(1000).leak();
    let fields = vec![("a", value); size / 1033];
    block(&[&[(":status", status)][..], &fields].concat())
}

/// HEADERS with as many CONTINUATION frames as the block needs.
fn headers(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    let mut parts = block.chunks(16_384).peekable();
    let mut bytes = Vec::new();
    let mut kind = HEADERS;
    while let Some(part) = parts.next() {
        let last = if parts.peek().is_none() { END_HEADERS } else { 0 };
        let flags = if kind == HEADERS { flags | last } else { last };
        bytes.extend(frame(kind, flags, stream, part));
        kind = CONTINUATION;
    }
    bytes
}

#[test]
fn informational_responses_of_a_stream_are_bounded_in_bytes() {
    let mut connection = client();
    let stream = connection.open(fields(&REQUEST), true).unwrap();
    sent(&mut connection);
    let interim = headers(1, 0, &large_block("103", 30_000));
    let mut events = Vec::new();
    for _ in 0..3 {
        connection.receive(&interim, Instant::now(), &mut events).unwrap();
    }
    assert!(matches!(events.last(), Some(Event::Reset { stream: id, .. }) if *id == stream), "{events:?}");
}

#[test]
fn useless_header_blocks_are_a_flood_by_their_bytes() {
    let mut connection = client();
    let stream = connection.open(fields(&REQUEST), true).unwrap();
    sent(&mut connection);
    connection.reset(stream, ErrorCode::CANCEL);
    let late = headers(1, 0, &large_block("103", 60_000));
    let endured = endure(&mut connection, &late, 10_000);
    assert!((100..=200).contains(&endured), "{endured}");
    let mut connection = client();
    let endured = endure(&mut connection, &frame(0x77, 0, 0, &[0; 16_384]), 10_000);
    assert!((500..=700).contains(&endured), "{endured}");
}
