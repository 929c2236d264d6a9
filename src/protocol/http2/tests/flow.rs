//! Flow control, both ways (RFC 9113 sections 5.2 and 6.9).

use super::*;

/// A client that has sent as much of a request's `len` bytes of content as the windows allow.
fn sending(len: usize, bytes: &[u8]) -> (Connection, usize) {
    let mut connection = client();
    feed(&mut connection, bytes).unwrap();
    let stream = connection.open(fields(&REQUEST), false).unwrap();
    connection.send_data(stream, vec![7; len], true);
    let gone = data_sent(&mut connection);
    (connection, gone)
}

fn data_sent(connection: &mut Connection) -> usize {
    sent(connection).iter().filter(|(kind, ..)| *kind == DATA).map(|(.., payload)| payload.len()).sum()
}

#[test]
fn content_stops_at_the_streams_window() {
    let (mut connection, gone) = sending(100, &setting(4, 30));
    assert_eq!(gone, 30);
    feed(&mut connection, &window_update(0, 1000)).unwrap();
    assert_eq!(data_sent(&mut connection), 0);
    feed(&mut connection, &window_update(1, 50)).unwrap();
    assert_eq!(data_sent(&mut connection), 50);
    feed(&mut connection, &window_update(1, 50)).unwrap();
    let last = sent(&mut connection);
    assert_eq!(last, [(DATA, END_STREAM, id(1), vec![7; 20])]);
}

#[test]
fn content_stops_at_the_connections_window() {
    let (mut connection, gone) = sending(70_000, &setting(4, 1_000_000));
    assert_eq!(gone, 65_535);
    feed(&mut connection, &window_update(1, 1000)).unwrap();
    assert_eq!(data_sent(&mut connection), 0);
    feed(&mut connection, &window_update(0, 10_000)).unwrap();
    assert_eq!(data_sent(&mut connection), 70_000 - 65_535);
}

#[test]
fn initial_window_changes_apply_to_open_streams() {
    let (mut connection, _) = sending(100, &setting(4, 30));
    feed(&mut connection, &setting(4, 45)).unwrap();
    assert_eq!(data_sent(&mut connection), 15);
}

#[test]
fn negative_window_blocks_content() {
    let (mut connection, _) = sending(100, &setting(4, 30));
    // 30 bytes are sent, so a window of 10 becomes -20.
    feed(&mut connection, &setting(4, 10)).unwrap();
    feed(&mut connection, &window_update(1, 20)).unwrap();
    assert_eq!(data_sent(&mut connection), 0);
    feed(&mut connection, &window_update(1, 1)).unwrap();
    assert_eq!(data_sent(&mut connection), 1);
}

#[test]
fn end_of_a_stream_needs_no_window() {
    let mut connection = server();
    feed(&mut connection, &[setting(4, 0), request(1, true), request(3, true)].concat()).unwrap();
    connection.respond(id(1), fields(&RESPONSE), false);
    connection.respond(id(3), fields(&RESPONSE), false);
    assert_eq!(sent(&mut connection).len(), 3);
    connection.send_data(id(1), Vec::new(), true);
    connection.send_data(id(3), b"x".to_vec(), false);
    connection.send_trailers(id(3), fields(&[("grpc-status", "0")]));
    // Trailers wait for the content before them.
    assert_eq!(sent(&mut connection), [(DATA, END_STREAM, id(1), vec![])]);
    assert_eq!(connection.queued(id(3)), Some(1));
}

#[test]
fn blocked_stream_does_not_block_others() {
    let (mut connection, _) = sending(100, &setting(4, 30));
    let second = connection.open(fields(&REQUEST), false).unwrap();
    connection.send_data(second, vec![8; 20], true);
    assert_eq!(data_sent(&mut connection), 20);
}

#[test]
fn streams_send_large_contents_in_turn() {
    let mut connection = client();
    for _ in 0..3 {
        let stream = connection.open(fields(&REQUEST), false).unwrap();
        connection.send_data(stream, vec![0; 20_000], true);
    }
    let order: Vec<_> =
        sent(&mut connection).into_iter().filter(|(kind, ..)| *kind == DATA).map(|(.., stream, _)| stream).collect();
    assert_eq!(order, [id(1), id(3), id(5), id(1), id(3), id(5)]);
}

#[test]
fn frames_never_exceed_the_default_size() {
    let mut connection = client();
    feed(&mut connection, &setting(5, 1_000_000)).unwrap();
    let stream = connection.open(fields(&REQUEST), false).unwrap();
    connection.send_data(stream, vec![0; 40_000], true);
    assert!(sent(&mut connection).iter().all(|(.., payload)| payload.len() <= 16_384));
}

#[test]
fn long_header_blocks_use_continuation_frames() {
    let (mut client, mut server) = (client(), server());
    let mut list = fields(&REQUEST);
    list.push(Field::new("x-long", "\u{1}".repeat(20_000)));
    let stream = client.open(list.clone(), true).unwrap();
    let frames = sent(&mut client);
    let kinds: Vec<_> = frames.iter().map(|(kind, flags, ..)| (*kind, *flags)).collect();
    assert_eq!(kinds[0], (HEADERS, END_STREAM));
    assert_eq!(kinds[1..], [(CONTINUATION, 0), (CONTINUATION, 0), (CONTINUATION, END_HEADERS)][4 - kinds.len()..]);
    let bytes: Vec<u8> = frames.iter().flat_map(|(kind, flags, _, payload)| frame(*kind, *flags, 1, payload)).collect();
    assert_eq!(feed(&mut server, &bytes), Ok(vec![Event::Head { stream, fields: list, end: true }]));
}

#[test]
fn connection_window_reopens_without_a_reader() {
    let mut connection = client_with_request();
    feed(&mut connection, &response(1, false)).unwrap();
    let chunk = frame(DATA, 0, 1, &[0; 16_000]);
    feed(&mut connection, &chunk.repeat(3)).unwrap();
    let updates: Vec<_> = sent(&mut connection).into_iter().map(|(kind, _, stream, _)| (kind, stream)).collect();
    assert_eq!(updates, [(WINDOW_UPDATE, StreamId::CONNECTION)]);
}

#[test]
fn stream_window_reopens_when_consumed() {
    let mut connection = client_with_request();
    feed(&mut connection, &[response(1, false), frame(DATA, 0, 1, &[0; 16_000]).repeat(4)].concat()).unwrap();
    sent(&mut connection);
    connection.consume(id(1), 10_000);
    assert_eq!(sent(&mut connection), [], "an update for every small piece");
    connection.consume(id(1), 30_000);
    let increment = 40_000_u32.to_be_bytes().to_vec();
    assert_eq!(sent(&mut connection), [(WINDOW_UPDATE, 0, id(1), increment)]);
    assert!(feed(&mut connection, &frame(DATA, 0, 1, &[0; 16_000]).repeat(2)).is_ok());
}

#[test]
fn consume_is_capped_at_the_received_bytes() {
    let mut connection = client_with_request();
    feed(&mut connection, &[response(1, false), frame(DATA, 0, 1, &[0; 16_000]).repeat(3)].concat()).unwrap();
    sent(&mut connection);
    connection.consume(id(1), usize::MAX);
    assert_eq!(sent(&mut connection), [(WINDOW_UPDATE, 0, id(1), 48_000_u32.to_be_bytes().to_vec())]);
}

#[test]
fn padding_is_consumed_automatically() {
    let mut connection = client_with_request();
    feed(&mut connection, &response(1, false)).unwrap();
    let padded = frame(DATA, PADDED, 1, &[&[255][..], &[0; 255]].concat());
    // More padding than the window allows.
    for _ in 0..300 {
        assert_eq!(feed(&mut connection, &padded), Ok(vec![]));
        sent(&mut connection);
    }
}
