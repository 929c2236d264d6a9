//! Stream life cycles: waiting to be opened, and ending.

use super::*;

fn kinds(connection: &mut Connection) -> Vec<(u8, StreamId)> {
    sent(connection).into_iter().map(|(kind, _, stream, _)| (kind, stream)).collect()
}

#[test]
fn streams_above_the_peers_limit_wait_in_order() {
    let mut connection = client();
    feed(&mut connection, &setting(3, 2)).unwrap();
    sent(&mut connection);
    for _ in 0..4 {
        connection.open(fields(&REQUEST), true).unwrap();
    }
    assert_eq!(kinds(&mut connection), [(HEADERS, id(1)), (HEADERS, id(3))]);
    feed(&mut connection, &response(3, true)).unwrap();
    assert_eq!(kinds(&mut connection), [(HEADERS, id(5))]);
    feed(&mut connection, &setting(3, 100)).unwrap();
    assert_eq!(kinds(&mut connection)[1..], [(HEADERS, id(7))]);
}

#[test]
fn reset_waiting_stream_is_never_sent() {
    let mut connection = client();
    feed(&mut connection, &setting(3, 0)).unwrap();
    let first = connection.open(fields(&REQUEST), true).unwrap();
    let second = connection.open(fields(&REQUEST), true).unwrap();
    sent(&mut connection);
    connection.reset(first, ErrorCode::CANCEL);
    assert!(connection.is_unseen(second, u64::MAX));
    feed(&mut connection, &setting(3, 9)).unwrap();
    assert_eq!(kinds(&mut connection)[1..], [(HEADERS, second)]);
}

#[test]
fn stream_is_unseen_until_its_first_byte_is_written() {
    let mut connection = Connection::client();
    let mut bytes = Vec::new();
    connection.transmit(&mut bytes);
    let greeting = bytes.len();
    let first = connection.open(fields(&REQUEST), true).unwrap();
    let second = connection.open(fields(&REQUEST), true).unwrap();
    assert!(connection.is_unseen(first, u64::MAX));
    connection.transmit(&mut bytes);
    let end = bytes.len();
    let unseen = |stream| (0..=end).filter(|written| connection.is_unseen(stream, *written as u64)).max().unwrap();
    assert_eq!(unseen(first), greeting);
    // That byte belongs to a HEADERS frame.
    let begin = unseen(second);
    assert_eq!((bytes[begin + 3], bytes[begin + 8]), (HEADERS, 3));
    // A later violation by the peer does not change the answer.
    feed(&mut connection, b"neither settings nor any other frame").unwrap_err();
    assert!(!connection.is_unseen(first, end as u64));
    assert!(connection.is_unseen(first, greeting as u64));
}

#[test]
fn goaway_ends_only_unprocessed_streams() {
    let mut connection = client();
    feed(&mut connection, &setting(3, 3)).unwrap();
    for _ in 0..4 {
        connection.open(fields(&REQUEST), true).unwrap();
    }
    sent(&mut connection);
    let events = feed(&mut connection, &frame(GOAWAY, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0])).unwrap();
    let lost = |number| Event::Reset { stream: id(number), ending: Ending::NotProcessed };
    assert_eq!(events, [Event::GoAway { code: ErrorCode::NO_ERROR }, lost(5), lost(7)]);
    assert_eq!(connection.open(fields(&REQUEST), true), Err(GoingAway));
    assert_eq!(feed(&mut connection, &[response(1, true), response(3, true)].concat()).unwrap().len(), 2);
    assert!(!connection.has_streams());
}

#[test]
fn refused_stream_is_not_processed() {
    let mut connection = client_with_request();
    let events = feed(&mut connection, &frame(RST_STREAM, 0, 1, &7_u32.to_be_bytes())).unwrap();
    assert_eq!(events, [Event::Reset { stream: id(1), ending: Ending::NotProcessed }]);
}

#[test]
fn server_finishes_open_streams_after_goaway() {
    let mut connection = server();
    feed(&mut connection, &request(1, true)).unwrap();
    connection.go_away();
    connection.go_away();
    assert_eq!(sent(&mut connection), [(GOAWAY, 0, StreamId::CONNECTION, vec![0, 0, 0, 1, 0, 0, 0, 0])]);
    assert_eq!(feed(&mut connection, &request(3, true)), Ok(vec![]));
    connection.respond(id(1), fields(&RESPONSE), true);
    assert_eq!(kinds(&mut connection), [(RST_STREAM, id(3)), (HEADERS, id(1))]);
}

#[test]
fn response_may_precede_the_end_of_the_request() {
    let mut connection = client();
    let stream = connection.open(fields(&REQUEST), false).unwrap();
    connection.send_data(stream, vec![0; 100_000], true);
    sent(&mut connection);
    let events = feed(&mut connection, &response(1, true)).unwrap();
    assert_eq!(events.len(), 1);
    // The rest of the request remains queued until the user resets the stream.
    assert!(connection.queued(stream).is_some_and(|left| left > 0));
    connection.reset(stream, ErrorCode::NO_ERROR);
    assert_eq!(kinds(&mut connection), [(RST_STREAM, stream)]);
}

#[test]
fn content_queued_in_pieces_arrives_in_order() {
    let (mut client, mut server) = (client(), server());
    let stream = client.open(fields(&REQUEST), false).unwrap();
    let mut events = Vec::new();
    for round in 0..20_u8 {
        client.send_data(stream, vec![round; 5000], round == 19);
        if round % 3 == 0 {
            events.extend(pump(&mut client, &mut server, 999).1);
            server.consume(stream, 15_000);
        }
    }
    server.consume(stream, 65_535);
    events.extend(pump(&mut client, &mut server, 999).1);
    let expected: Vec<u8> = (0..20).flat_map(|turn| [turn; 5000]).collect();
    assert_eq!(content(&events, stream), expected);
    assert!(matches!(events.last(), Some(Event::Data { end: true, .. })));
}

#[test]
fn peers_smaller_header_table_is_respected() {
    let (mut client, mut server) = (client(), server());
    for size in [4096, 0, 60, 4096] {
        feed(&mut client, &setting(1, size)).unwrap();
        for _ in 0..3 {
            let stream = client.open(fields(&REQUEST), true).unwrap();
            let (_, events) = pump(&mut client, &mut server, 100);
            assert_eq!(events.last(), Some(&Event::Head { stream, fields: fields(&REQUEST), end: true }));
        }
    }
}

#[test]
fn calls_on_closed_streams_do_nothing() {
    let mut connection = client_with_request();
    feed(&mut connection, &frame(RST_STREAM, 0, 1, &[0; 4])).unwrap();
    connection.send_data(id(1), b"x".to_vec(), true);
    connection.send_trailers(id(1), Vec::new());
    connection.respond(id(1), Vec::new(), true);
    connection.consume(id(1), 100_000);
    connection.reset(id(1), ErrorCode::CANCEL);
    assert_eq!(sent(&mut connection), []);
}
