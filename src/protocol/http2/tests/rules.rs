//! The rules of RFC 9113 that a peer can violate, by section.

use super::*;

#[test]
fn s3_4_a_client_begins_with_the_magic() {
    ends_connection(Connection::server(), b"GET / HTTP/1.1\r\n", ErrorCode::PROTOCOL_ERROR);
    // At the first wrong byte, not at the end of the magic.
    ends_connection(Connection::server(), b"PRI * HTTP/1", ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn s3_4_the_first_frame_is_settings() {
    ends_connection(Connection::client(), &frame(PING, 0, 0, &[0; 8]), ErrorCode::PROTOCOL_ERROR);
    ends_connection(Connection::client(), &frame(SETTINGS, ACK, 0, &[]), ErrorCode::PROTOCOL_ERROR);
    ends_connection(Connection::server(), &[MAGIC, &request(1, true)].concat(), ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn s3_4_each_side_begins_with_its_settings() {
    let first = |mut connection: Connection| sent(&mut connection).remove(0);
    assert_eq!(first(Connection::client()).0, SETTINGS);
    assert_eq!(first(Connection::server()).0, SETTINGS);
    let mut bytes = Vec::new();
    Connection::client().transmit(&mut bytes);
    assert!(bytes.starts_with(MAGIC));
}

#[test]
fn s4_1_the_reserved_bit_is_ignored() {
    let events = feed(&mut server(), &request(0x8000_0001, true)).unwrap();
    assert_eq!(events, [Event::Head { stream: id(1), fields: fields(&REQUEST), end: true }]);
}

#[test]
fn s4_2_an_oversized_frame_fails_at_its_header() {
    ends_connection(client(), &[0, 0x40, 1, DATA, 0, 0, 0, 0, 1], ErrorCode::FRAME_SIZE_ERROR);
}

#[test]
fn s4_3_header_block_frames_are_contiguous() {
    let begun = frame(HEADERS, 0, 1, &block(&REQUEST));
    for other in [frame(PING, 0, 0, &[0; 8]), frame(0x77, 0, 0, &[]), request(1, true)] {
        ends_connection(server(), &[begun.clone(), other].concat(), ErrorCode::PROTOCOL_ERROR);
    }
    let stranger = frame(CONTINUATION, END_HEADERS, 3, &[]);
    ends_connection(server(), &[begun, stranger].concat(), ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn s4_3_a_decompression_error_ends_the_connection() {
    ends_connection(server(), &frame(HEADERS, END_HEADERS, 1, &[0x80]), ErrorCode::COMPRESSION_ERROR);
}

#[test]
fn s4_3_header_blocks_of_closed_streams_are_decompressed() {
    let mut connection = client_with_request();
    connection.reset(id(1), ErrorCode::CANCEL);
    assert_eq!(connection.open(fields(&REQUEST), true), Ok(id(3)));
    sent(&mut connection);
    // `a: b` is indexed on stream 1 and referenced on stream 3.
    let late = frame(HEADERS, END_HEADERS, 1, &[0x88, 0x40, 1, b'a', 1, b'b']);
    assert_eq!(feed(&mut connection, &late), Ok(vec![]));
    let events = feed(&mut connection, &frame(HEADERS, END_HEADERS, 3, &[0x88, 0xbe])).unwrap();
    let list = fields(&[(":status", "200"), ("a", "b")]);
    assert_eq!(events, [Event::Head { stream: id(3), fields: list, end: false }]);
}

#[test]
fn s5_1_only_headers_and_priority_reach_an_idle_stream() {
    for (kind, payload) in [(DATA, &b"x"[..]), (RST_STREAM, &[0; 4]), (WINDOW_UPDATE, &[0, 0, 0, 1])] {
        ends_connection(server(), &frame(kind, 0, 1, payload), ErrorCode::PROTOCOL_ERROR);
        ends_connection(client(), &frame(kind, 0, 1, payload), ErrorCode::PROTOCOL_ERROR);
    }
    assert_eq!(feed(&mut server(), &frame(PRIORITY, 0, 1, &[0; 5])), Ok(vec![]));
}

#[test]
fn s5_1_only_control_frames_follow_end_stream() {
    let with = |frame: Vec<u8>| [request(1, true), frame].concat();
    ends_stream(server(), &with(frame(DATA, 0, 1, b"x")), 1, ErrorCode::STREAM_CLOSED);
    ends_stream(server(), &with(request(1, true)), 1, ErrorCode::STREAM_CLOSED);
    assert!(feed(&mut server(), &with(window_update(1, 5))).is_ok());
    let reset = feed(&mut server(), &with(frame(RST_STREAM, 0, 1, &[0; 4]))).unwrap();
    assert_eq!(reset[1], Event::Reset { stream: id(1), ending: Ending::ByPeer(ErrorCode::NO_ERROR) });
}

#[test]
fn s5_1_frames_for_reset_streams_are_ignored() {
    let mut connection = client_with_request();
    connection.reset(id(1), ErrorCode::CANCEL);
    assert_eq!(sent(&mut connection), [(RST_STREAM, 0, id(1), vec![0, 0, 0, 8])]);
    let late = [response(1, false), frame(DATA, END_STREAM, 1, b"x"), window_update(1, 7)].concat();
    assert_eq!(feed(&mut connection, &late), Ok(vec![]));
    assert_eq!(sent(&mut connection), []);
}

#[test]
fn s5_1_1_client_stream_ids_are_odd_and_ascend() {
    ends_connection(server(), &request(2, true), ErrorCode::PROTOCOL_ERROR);
    let mut connection = server();
    let events = feed(&mut connection, &[request(5, true), request(3, true)].concat()).unwrap();
    // Stream 3 was skipped, which closed it.
    assert_eq!(events.len(), 1);
}

#[test]
fn s5_1_1_servers_open_no_streams() {
    ends_connection(client(), &response(2, true), ErrorCode::PROTOCOL_ERROR);
    ends_connection(client(), &response(1, true), ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn s5_1_1_own_stream_ids_are_odd_and_ascend() {
    let mut connection = client();
    let ids: Vec<_> = (0..3).map(|_| connection.open(fields(&REQUEST), true).unwrap()).collect();
    assert_eq!(ids, [id(1), id(3), id(5)]);
    let order: Vec<_> = sent(&mut connection).into_iter().map(|(.., stream, _)| stream).collect();
    assert_eq!(order, ids);
}

#[test]
fn s5_5_unknown_frames_are_ignored() {
    assert_eq!(feed(&mut client(), &frame(0xfa, 0xff, 77, b"anything")), Ok(vec![]));
}

#[test]
fn s6_1_data_needs_a_stream() {
    ends_connection(client(), &frame(DATA, 0, 0, b"x"), ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn s6_1_padding_fits_into_its_frame() {
    let padded = |payload: &[u8]| [response(1, false), frame(DATA, PADDED, 1, payload)].concat();
    ends_connection(client_with_request(), &padded(&[5, 0, 0, 0, 0]), ErrorCode::PROTOCOL_ERROR);
    ends_connection(client_with_request(), &padded(&[]), ErrorCode::FRAME_SIZE_ERROR);
    // A frame may consist of padding only.
    let events = feed(&mut client_with_request(), &padded(&[4, 0, 0, 0, 0])).unwrap();
    assert_eq!(events.len(), 1);
}

#[test]
fn s6_2_padding_and_priority_of_headers_are_dropped() {
    let head = [&[2][..], &[0; 5], &block(&REQUEST), &[0, 0]].concat();
    let events = feed(&mut server(), &frame(HEADERS, END_HEADERS | PADDED | 0x20, 1, &head)).unwrap();
    assert_eq!(events, [Event::Head { stream: id(1), fields: fields(&REQUEST), end: false }]);
    ends_connection(server(), &frame(HEADERS, END_HEADERS | 0x20, 1, &[0; 4]), ErrorCode::FRAME_SIZE_ERROR);
    ends_connection(server(), &frame(HEADERS, END_HEADERS, 0, &block(&REQUEST)), ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn s6_3_priority_needs_a_stream_and_five_bytes() {
    ends_connection(client(), &frame(PRIORITY, 0, 0, &[0; 5]), ErrorCode::PROTOCOL_ERROR);
    ends_stream(
        server(),
        &[request(1, false), frame(PRIORITY, 0, 1, &[0; 4])].concat(),
        1,
        ErrorCode::FRAME_SIZE_ERROR,
    );
}

#[test]
fn s6_4_rst_stream_needs_a_stream_and_a_code() {
    ends_connection(client_with_request(), &frame(RST_STREAM, 0, 0, &[0; 4]), ErrorCode::PROTOCOL_ERROR);
    ends_connection(client_with_request(), &frame(RST_STREAM, 0, 1, &[0; 3]), ErrorCode::FRAME_SIZE_ERROR);
}

#[test]
fn s6_5_settings_are_acknowledged() {
    let mut connection = client();
    feed(&mut connection, &setting(3, 10)).unwrap();
    assert_eq!(sent(&mut connection), [(SETTINGS, ACK, StreamId::CONNECTION, vec![])]);
    feed(&mut connection, &frame(SETTINGS, ACK, 0, &[])).unwrap();
    assert_eq!(sent(&mut connection), []);
}

#[test]
fn s6_5_malformed_settings_end_the_connection() {
    ends_connection(client(), &frame(SETTINGS, 0, 1, &[]), ErrorCode::PROTOCOL_ERROR);
    ends_connection(client(), &frame(SETTINGS, 0, 0, &[0; 5]), ErrorCode::FRAME_SIZE_ERROR);
    ends_connection(client(), &frame(SETTINGS, ACK, 0, &[0; 6]), ErrorCode::FRAME_SIZE_ERROR);
}

#[test]
fn s6_5_2_settings_out_of_range_are_refused() {
    ends_connection(server(), &setting(2, 2), ErrorCode::PROTOCOL_ERROR);
    ends_connection(client(), &setting(2, 1), ErrorCode::PROTOCOL_ERROR);
    ends_connection(client(), &setting(4, 0x8000_0000), ErrorCode::FLOW_CONTROL_ERROR);
    ends_connection(client(), &setting(5, 16_383), ErrorCode::PROTOCOL_ERROR);
    ends_connection(client(), &setting(5, 16_777_216), ErrorCode::PROTOCOL_ERROR);
    for good in [setting(2, 0), setting(4, 0x7fff_ffff), setting(5, 16_777_215), setting(0x99, 7)] {
        assert_eq!(feed(&mut client(), &good), Ok(vec![]));
    }
}

#[test]
fn s6_6_push_is_refused() {
    ends_connection(
        client_with_request(),
        &frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]),
        ErrorCode::PROTOCOL_ERROR,
    );
    ends_connection(server(), &frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]), ErrorCode::PROTOCOL_ERROR);
    let mut connection = Connection::client();
    // The id of SETTINGS_ENABLE_PUSH is 2.
    assert!(sent(&mut connection)[0].3.starts_with(&[0, 2, 0, 0, 0, 0]));
}

#[test]
fn s6_7_a_ping_is_echoed() {
    let mut connection = client();
    feed(&mut connection, &frame(PING, 0, 0, b"abcdefgh")).unwrap();
    feed(&mut connection, &frame(PING, ACK, 0, b"whatever")).unwrap();
    assert_eq!(sent(&mut connection), [(PING, ACK, StreamId::CONNECTION, b"abcdefgh".to_vec())]);
    ends_connection(client(), &frame(PING, 0, 1, &[0; 8]), ErrorCode::PROTOCOL_ERROR);
    ends_connection(client(), &frame(PING, 0, 0, &[0; 7]), ErrorCode::FRAME_SIZE_ERROR);
}

#[test]
fn s6_8_goaway_has_stream_id_0() {
    ends_connection(client(), &frame(GOAWAY, 0, 1, &[0; 8]), ErrorCode::PROTOCOL_ERROR);
    ends_connection(client(), &frame(GOAWAY, 0, 0, &[0; 7]), ErrorCode::FRAME_SIZE_ERROR);
}

#[test]
fn s6_9_window_increments_are_positive_and_bounded() {
    ends_connection(client(), &window_update(0, 0), ErrorCode::PROTOCOL_ERROR);
    ends_connection(client(), &window_update(0, 0x7fff_ffff), ErrorCode::FLOW_CONTROL_ERROR);
    ends_connection(client(), &frame(WINDOW_UPDATE, 0, 0, &[0; 3]), ErrorCode::FRAME_SIZE_ERROR);
    let open = || {
        let mut connection = client();
        connection.open(fields(&REQUEST), false).unwrap();
        sent(&mut connection);
        connection
    };
    ends_stream(open(), &window_update(1, 0), 1, ErrorCode::PROTOCOL_ERROR);
    ends_stream(open(), &window_update(1, 0x7fff_ffff), 1, ErrorCode::FLOW_CONTROL_ERROR);
    // A setting that overflows one stream's window is a connection error.
    let bytes = [window_update(1, 0x7fff_0000), setting(4, 0x7fff_ffff)].concat();
    ends_connection(open(), &bytes, ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn s6_9_1_content_beyond_the_window_is_an_error() {
    let chunk = frame(DATA, 0, 1, &[0; 16_384]);
    let all = [response(1, false), chunk.repeat(4)].concat();
    ends_stream(client_with_request(), &all, 1, ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn s6_10_continuation_follows_headers() {
    ends_connection(server(), &frame(CONTINUATION, END_HEADERS, 1, &[]), ErrorCode::PROTOCOL_ERROR);
    let done = [request(1, false), frame(CONTINUATION, END_HEADERS, 1, &[])].concat();
    ends_connection(server(), &done, ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn s8_1_trailers_end_their_stream() {
    let trailers = frame(HEADERS, END_HEADERS, 1, &block(&[("grpc-status", "0")]));
    ends_stream(client_with_request(), &[response(1, false), trailers].concat(), 1, ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn s8_1_content_comes_after_a_head() {
    ends_stream(client_with_request(), &frame(DATA, 0, 1, b"x"), 1, ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn s8_1_informational_responses_are_dropped() {
    let early = block(&[(":status", "103")]);
    let mut connection = client_with_request();
    let bytes = [frame(HEADERS, END_HEADERS, 1, &early), response(1, true)].concat();
    let events = feed(&mut connection, &bytes).unwrap();
    assert_eq!(events, [Event::Head { stream: id(1), fields: fields(&RESPONSE), end: true }]);
    let last = frame(HEADERS, END_HEADERS | END_STREAM, 1, &early);
    ends_stream(client_with_request(), &last, 1, ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn s8_1_1_content_matches_content_length() {
    let head = |length| block(&[(":status", "200"), ("content-length", length)]);
    let response = |length, end: u8| frame(HEADERS, END_HEADERS | end, 1, &head(length));
    let data = |bytes: &[u8], end: u8| frame(DATA, end, 1, bytes);
    let trailers = frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&[("a", "b")]));
    for bad in [
        response("1", END_STREAM),
        response("x", 0),
        response("+1", 0),
        [response("2", 0), data(b"abc", 0)].concat(),
        [response("4", 0), data(b"abc", END_STREAM)].concat(),
        [response("4", 0), data(b"abc", 0), trailers.clone()].concat(),
    ] {
        ends_stream(client_with_request(), &bad, 1, ErrorCode::PROTOCOL_ERROR);
    }
    for good in [
        response("0", END_STREAM),
        [response("3", 0), data(b"abc", END_STREAM)].concat(),
        [response("3", 0), data(b"ab", 0), data(b"c", 0), trailers].concat(),
    ] {
        let mut connection = client_with_request();
        feed(&mut connection, &good).unwrap();
        assert_eq!(sent(&mut connection), []);
        assert!(!connection.has_streams());
    }
}

#[test]
fn s8_2_malformed_fields_end_their_stream() {
    for (name, value) in [
        ("Upper", "x"),
        ("", "x"),
        ("a b", "x"),
        ("a:b", "x"),
        ("\u{e9}", "x"),
        ("a", "new\nline"),
        ("a", "return\r"),
        ("a", "nul\0"),
        ("connection", "close"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("te", "gzip"),
        (":new", "x"),
        (":status", "200"),
        (":path", "/twice"),
    ] {
        let list = [&REQUEST[..], &[(name, value)]].concat();
        ends_stream(server(), &frame(HEADERS, END_HEADERS, 1, &block(&list)), 1, ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn s8_3_requests_begin_with_three_pseudo_headers() {
    for list in [
        &[(":method", "GET"), (":scheme", "http")][..],
        &[(":method", "GET"), (":path", "/")],
        &[(":scheme", "http"), (":path", "/")],
        &[(":method", "GET"), (":scheme", "http"), (":path", "")],
        &[(":method", "GET"), (":scheme", "http"), ("a", "b"), (":path", "/")],
    ] {
        ends_stream(server(), &frame(HEADERS, END_HEADERS, 1, &block(list)), 1, ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn s8_3_responses_have_a_three_digit_status() {
    for list in [&[("a", "b")][..], &[(":status", "20")], &[(":status", "abc")], &[(":status", "200"), (":path", "/")]]
    {
        let head = frame(HEADERS, END_HEADERS, 1, &block(list));
        ends_stream(client_with_request(), &head, 1, ErrorCode::PROTOCOL_ERROR);
    }
    let trailers = frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&[(":status", "200")]));
    ends_stream(client_with_request(), &[response(1, false), trailers].concat(), 1, ErrorCode::PROTOCOL_ERROR);
}
