//! What a peer cannot do: make this side keep or answer without bound.

use std::time::Duration;

use super::*;

/// Feeds `frame` again and again while the answers are read; how often it went well.
fn endure(connection: &mut Connection, frame: &[u8], most: usize) -> usize {
    let now = Instant::now();
    for turn in 0..most {
        if let Err(error) = connection.receive(frame, now, &mut Vec::new()) {
            assert_eq!(error.code, ErrorCode::ENHANCE_YOUR_CALM, "{error}");
            return turn;
        }
        sent(connection);
    }
    most
}

#[test]
fn a_flood_of_frames_that_bring_nothing_ends_the_connection() {
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
    for turn in 0..20_000 {
        let number = 2 * turn + 1;
        let bytes = [request(number, true), frame(RST_STREAM, 0, number, &[0; 4])].concat();
        if connection.receive(&bytes, now, &mut Vec::new()).is_err() {
            return assert!(turn > 5000, "{turn}");
        }
    }
    panic!("nobody minds");
}

#[test]
fn the_same_frames_over_a_day_are_no_flood() {
    let mut connection = client();
    let begin = Instant::now();
    for turn in 0..50_000 {
        let now = begin + Duration::from_secs(turn);
        connection.receive(&frame(PING, 0, 0, &[0; 8]), now, &mut Vec::new()).unwrap();
        sent(&mut connection);
    }
}

#[test]
fn finished_calls_make_up_for_the_frames_around_them() {
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
fn a_peer_with_a_narrow_window_may_open_it_often() {
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
fn answers_that_the_peer_does_not_read_end_the_connection() {
    let pings = frame(PING, 0, 0, &[0; 8]).repeat(1001);
    ends_connection(client(), &pings, ErrorCode::ENHANCE_YOUR_CALM);
    assert!(feed(&mut client(), &frame(PING, 0, 0, &[0; 8]).repeat(1000)).is_ok());
}

#[test]
fn resets_for_faulty_streams_are_answers_too() {
    let faulty = |number: u32| frame(HEADERS, END_HEADERS, 2 * number + 1, &block(&[("a", "b")]));
    let many: Vec<u8> = (0..1001).flat_map(faulty).collect();
    ends_connection(server(), &many, ErrorCode::ENHANCE_YOUR_CALM);
}

#[test]
fn a_header_block_without_end_ends_the_connection() {
    let begun = frame(HEADERS, 0, 1, &[]);
    let large = [begun.clone(), frame(CONTINUATION, 0, 1, &[0x82; 16_384]).repeat(5)].concat();
    ends_connection(server(), &large, ErrorCode::ENHANCE_YOUR_CALM);
    let many = [begun, frame(CONTINUATION, 0, 1, &[]).repeat(65)].concat();
    ends_connection(server(), &many, ErrorCode::ENHANCE_YOUR_CALM);
}

#[test]
fn a_header_list_that_unfolds_too_far_ends_only_its_stream() {
    // One field of 4000 bytes, and a byte for each time it is there again.
    let mut bomb = block(&REQUEST);
    bomb.extend([0x40, 1, b'a', 0x7f, 0xa1, 0x1e]);
    bomb.extend([b'x'; 4000]);
    bomb.extend([0xbe; 10_000]);
    ends_stream(server(), &frame(HEADERS, END_HEADERS | END_STREAM, 1, &bomb), 1, ErrorCode::ENHANCE_YOUR_CALM);
}

#[test]
fn a_client_that_opens_more_streams_than_announced_is_refused() {
    let mut connection = server();
    for number in 0..100 {
        feed(&mut connection, &request(2 * number + 1, true)).unwrap();
    }
    assert_eq!(feed(&mut connection, &request(201, true)), Ok(vec![]));
    let refused = (RST_STREAM, 0, id(201), ErrorCode::REFUSED_STREAM.0.to_be_bytes().to_vec());
    assert_eq!(sent(&mut connection), [refused]);
    connection.reset(id(1), ErrorCode::CANCEL);
    assert_eq!(feed(&mut connection, &request(203, true)).unwrap().len(), 1);
}

#[test]
fn nothing_of_a_connection_at_rest_is_kept() {
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
