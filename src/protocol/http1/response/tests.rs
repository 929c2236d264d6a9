use super::*;

/// A parsed response: status, location, body, and whether it was complete.
type Seen = (u16, Option<String>, String, bool);

fn read(parts: &[&[u8]], limit: usize) -> Result<Seen, Malformed> {
    let mut response = Response::new(limit);
    for part in parts {
        response.receive(part)?;
    }
    let whole = response.is_done() || response.end();
    let location = response.location().map(str::to_owned);
    Ok((response.status(), location, String::from_utf8(response.into_body()).unwrap(), whole))
}

/// Asserts the same result for every split of the bytes.
#[track_caller]
fn check(text: &str, expected: Result<(u16, &str, bool), Malformed>) {
    let bytes = text.as_bytes();
    let expected = expected.map(|(status, body, whole)| (status, None, body.to_owned(), whole));
    for split in 0..=bytes.len() {
        let (one, other) = bytes.split_at(split);
        assert_eq!(read(&[one, other], 100), expected, "split at {split}");
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(read(&single, 100), expected, "byte by byte");
}

#[test]
fn content_length_ends_the_body() {
    check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello, and more", Ok((200, "hello", true)));
    check("HTTP/1.1 200 OK\r\ncontent-length:0\r\n\r\n", Ok((200, "", true)));
    check("HTTP/1.0 500\nContent-Length: 2\n\nno", Ok((500, "no", true)));
    check("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", Ok((200, "hello", false)));
}

#[test]
fn body_without_a_length_ends_with_the_connection() {
    check("HTTP/1.0 404 Not Found\r\nServer: x\r\n\r\nnothing here", Ok((404, "nothing here", true)));
    check("HTTP/1.1 204 No Content\r\n\r\n", Ok((204, "", true)));
    check("HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", Ok((304, "", true)));
}

#[test]
fn chunks_are_joined() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    check(
        &format!("{head}5;x=y\r\nhello\r\nB\r\n and so on.\r\n0\r\nX: y\r\n\r\n"),
        Ok((200, "hello and so on.", true)),
    );
    check(&format!("{head}5\r\nhello\r\n"), Ok((200, "hello", false)));
    for wrong in ["x\r\n", "+5\r\n", "-1\r\n", "\r\n", "5\r\nhelloX\r\n", "fffffffffffffffff\r\n"] {
        check(&format!("{head}{wrong}"), Err(Malformed::Chunk));
    }
}

#[test]
fn interim_responses_are_skipped() {
    let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\nhi";
    check(text, Ok((200, "hi", true)));
}

#[test]
fn reading_stops_at_the_limit() {
    for head in ["Content-Length: 9000000000", "X: y", "Transfer-Encoding: chunked"] {
        let body = if head.starts_with('T') { "ffffffffff\r\n" } else { "" };
        let text = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}{}", "x".repeat(500));
        let mut response = Response::new(100);
        response.receive(text.as_bytes()).unwrap();
        assert!(response.is_done(), "{head}");
        assert_eq!(response.into_body().len(), 100, "{head}");
    }
    let none = read(&[b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"], 0);
    assert_eq!(none, Ok((200, None, String::new(), true)));
}

#[test]
fn redirects_have_a_location() {
    let moved = read(&[b"HTTP/1.1 302 Found\r\nLOCATION:  /login \r\nContent-Length: 0\r\n\r\n"], 10);
    assert_eq!(moved, Ok((302, Some("/login".to_owned()), String::new(), true)));
}

#[test]
fn malformed_responses_are_refused_and_quoted() {
    let line = |text: &str| Err(Malformed::Line(text.to_owned()));
    assert_eq!(read(&[b"SSH-2.0-OpenSSH_9.2\r\n"], 10), line("SSH-2.0-OpenSSH_9.2"));
    for version in ["HTTP/2", "HTTP/1.10", "HTTP/1,1", "HTTP/x.y"] {
        let text = format!("{version} 200 OK\r\n\r\n");
        assert_eq!(read(&[text.as_bytes()], 10), Err(Malformed::Version(version.to_owned())));
    }
    assert_eq!(read(&[b"HTTP/1.1\r\n\r\n"], 10), line("HTTP/1.1"));
    assert_eq!(read(&["é".repeat(500).as_bytes()], 10).map_err(|error| error.to_string().len()), Err(126));
    for code in ["2000", "abc", "-10", "099"] {
        let text = format!("HTTP/1.1 {code} x\r\n\r\n");
        assert_eq!(read(&[text.as_bytes()], 10), Err(Malformed::StatusCode(code.to_owned())), "{code}");
    }
    assert_eq!(read(&[b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n"], 10), Err(Malformed::Header));
    assert_eq!(read(&[b"HTTP/1.1 200 OK\r\n X: y\r\n\r\n"], 10), Err(Malformed::Header));
    assert_eq!(read(&[b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"], 10), Err(Malformed::Header));
}

#[test]
fn headers_may_continue_on_the_next_line() {
    check("HTTP/1.1 200 OK\r\nX-Info: one\r\n two\r\nContent-Length: 2\r\n\r\nok", Ok((200, "ok", true)));
    check("HTTP/1.0 200 OK\nContent-Length:\n\t2\nX: a\n \n  b: c\n\nok!", Ok((200, "ok", true)));
    let moved = read(&[b"HTTP/1.1 302 Found\r\nLocation:\r\n  /login\r\n \r\nContent-Length: 0\r\n\r\n"], 10);
    assert_eq!(moved, Ok((302, Some("/login".to_owned()), String::new(), true)));
}

#[test]
fn any_version_of_http_is_taken() {
    for version in ["0.9", "1.0", "1.2", "2.0"] {
        check(&format!("HTTP/{version} 200 OK\r\nContent-Length: 2\r\n\r\nok"), Ok((200, "ok", true)));
    }
    let chunked = "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    check(&format!("HTTP/1.2 200 OK\r\n{chunked}"), Ok((200, "ok", true)));
    check(&format!("HTTP/1.0 200 OK\r\n{chunked}"), Ok((200, "2\r\nok\r\n0\r\n\r\n", true)));
    check("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nabc", Ok((101, "", true)));
}

#[test]
fn long_heads_are_read_in_constant_memory() {
    let line = format!("X: {}\r\n", "x".repeat(100_000));
    let cookies = "Set-Cookie: a=b; Path=/\r\n".repeat(20_000);
    let text = format!("HTTP/1.1 200 OK\r\n{line} {line}{cookies}Content-Length: 2\r\n\r\nok");
    for size in [1, 1000, 8192, 1 << 20] {
        let mut response = Response::new(10);
        for part in text.as_bytes().chunks(size) {
            response.receive(part).unwrap();
            assert!(response.unread.len() + response.head.header.len() <= 2 * MAX_HEADER_BYTES, "parts of {size}");
        }
        assert_eq!((response.is_done(), response.into_body()), (true, b"ok".to_vec()), "parts of {size}");
    }
    let location = format!("HTTP/1.1 302 Found\r\nLocation: /{}\r\n\r\n", "x".repeat(MAX_HEADER_BYTES));
    assert_eq!(read(&[location.as_bytes()], 10), Err(Malformed::TooLong));
}

#[test]
fn endless_head_or_line_is_refused() {
    for filling in ["x", "X: y\r\n", " y\r\n"] {
        let head = format!("HTTP/1.1 200 OK\r\nX: {}", filling.repeat(MAX_RESPONSE_HEADS_BYTES / filling.len() + 1));
        assert_eq!(read(&[head.as_bytes()], 10), Err(Malformed::TooLong));
    }
    let mut chunk = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    chunk.resize(5000, b'0');
    assert_eq!(read(&[&chunk], 10), Err(Malformed::TooLong));
    let whole = [&chunk[..], b"\r\n"].concat();
    assert_eq!(read(&[&whole], 10), Err(Malformed::TooLong), "nor is one whose end came with it");
}

#[test]
fn interim_heads_and_trailers_are_bounded() {
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n".repeat(30_000);
    assert_eq!(read(&[interim.as_bytes()], 10), Err(Malformed::TooLong));
    let trailers = "X: y\r\n".repeat(12_000);
    let text = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n{trailers}");
    assert_eq!(read(&[text.as_bytes()], 10), Err(Malformed::TooLong));
}

#[test]
fn searched_bytes_are_not_searched_again() {
    for (head, line) in [
        ("HTTP/1.1 200 OK\r\nA: bbcc", "c\r\n\r\nhi"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;xxxx", "x\r\nhi\r\n0\r\n\r\n"),
    ] {
        let mut response = Response::new(2);
        response.receive(head.as_bytes()).unwrap();
        // The end of a line where it was searched before.
        let index = response.unread.len() - 4;
        let bytes: Vec<u8> = response.unread.splice(index..index + 2, *b"\n\n").collect();
        let state = response.state;
        response.receive(b"y").unwrap();
        assert_eq!((response.state, response.is_done()), (state, false), "{head}");
        response.unread.splice(index..index + 2, bytes);
        response.receive(line.as_bytes()).unwrap();
        assert!(response.is_done(), "{head}");
        assert_eq!((response.status(), response.into_body()), (200, b"hi".to_vec()));
    }
}

#[test]
fn extensions_of_chunks_are_bounded() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let small = "1\r\nx\r\n".repeat(10_000);
    assert_eq!(read(&[head.as_bytes(), small.as_bytes()], 10_000).unwrap().2.len(), 10_000);
    let long = format!("1;{}\r\nx\r\n", "y".repeat(1000)).repeat(100);
    assert_eq!(read(&[head.as_bytes(), long.as_bytes()], 10_000), Err(Malformed::TooLong));
}
