//! The least of HTTP/1.1: one GET a connection, answered and closed. Pure.
//!
//! Enough for a health probe, for `curl --unix-socket` and for the command line of this program. A request has a bound,
//! its body is not read, and there is no keep-alive, so that no client has a state here.

/// What the first bytes of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head<'a> {
    /// Come back with more bytes.
    Partial,
    /// A GET or HEAD of this path, and its query.
    Get { path: &'a str, query: &'a str, head_only: bool },
    /// A request of another kind.
    OtherMethod,
    /// No HTTP, or too much of it.
    Malformed,
}

pub(super) fn parse_head(bytes: &[u8]) -> Head<'_> {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        return if bytes.len() < MOST_HEAD { Head::Partial } else { Head::Malformed };
    };
    let Some(head) = bytes.get(..end).and_then(|head| std::str::from_utf8(head).ok()) else { return Head::Malformed };
    let line = head.split("\r\n").next().unwrap_or_default();
    let mut words = line.split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) = (method, target, version, words.next())
    else {
        return Head::Malformed;
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    match method {
        _ if !path.starts_with('/') => Head::Malformed,
        "GET" => Head::Get { path, query, head_only: false },
        "HEAD" => Head::Get { path, query, head_only: true },
        _ => Head::OtherMethod,
    }
}

/// A request with more than this before its empty line is refused.
pub(super) const MOST_HEAD: usize = 4096;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) status: Status,
    pub(super) content_type: &'static str,
    pub(super) body: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    BadRequest,
    NotFound,
    MethodNotAllowed,
    InternalServerError,
}

impl Status {
    const fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::InternalServerError => "500 Internal Server Error",
        }
    }
}

impl Response {
    pub(super) fn text(status: Status, text: impl Into<String>) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: text.into().into_bytes() }
    }

    pub(super) fn json(body: Vec<u8>) -> Self {
        Self { status: Status::Ok, content_type: "application/json", body }
    }

    /// The answer to what is no GET; `None` where there is a path to answer for, or more to read.
    pub(super) fn refusal(head: &Head<'_>) -> Option<Self> {
        match head {
            Head::Partial | Head::Get { .. } => None,
            Head::OtherMethod => Some(Self::text(Status::MethodNotAllowed, "only GET is answered here\n")),
            Head::Malformed => Some(Self::text(Status::BadRequest, "not a request\n")),
        }
    }

    pub(super) fn not_found() -> Self {
        Self::text(Status::NotFound, "404 page not found\n")
    }

    /// The bytes on the wire.
    pub(super) fn bytes(&self, head_only: bool) -> Vec<u8> {
        let head = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nX-Content-Type-Options: nosniff\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            self.status.line(),
            self.content_type,
            self.body.len()
        );
        let mut bytes = head.into_bytes();
        if !head_only {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

/// The head of an answer that comes in chunks, each as long as the line before it says: [`chunk`].
pub(super) const STREAM_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\n\
    X-Content-Type-Options: nosniff\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";

/// One chunk; an empty one is the end.
pub(super) fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

/// Splits an answer of this server into its status line and its body; `None` if it is none.
pub(crate) fn parse_response(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let (head, rest) = bytes.split_at_checked(end)?;
    let head = std::str::from_utf8(head).ok()?;
    let status = head.split("\r\n").next()?.strip_prefix("HTTP/1.1 ")?;
    let length = head.split("\r\n").find_map(|line| line.strip_prefix("Content-Length: "))?.parse::<usize>().ok()?;
    rest.get(4..).filter(|body| body.len() == length).map(|body| (status, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_partial_until_its_empty_line_wherever_it_is_cut() {
        let whole = b"GET /healthz?verbose HTTP/1.1\r\nHost: localhost\r\nUser-Agent: x\r\n\r\n";
        for cut in 0..whole.len() {
            assert_eq!(parse_head(&whole[..cut]), Head::Partial, "{cut}");
        }
        assert_eq!(parse_head(whole), Head::Get { path: "/healthz", query: "verbose", head_only: false });
    }

    #[test]
    fn only_a_get_or_head_of_a_path_is_answered() {
        for (line, head) in [
            ("HEAD /x HTTP/1.0", Head::Get { path: "/x", query: "", head_only: true }),
            ("POST /x HTTP/1.1", Head::OtherMethod),
            ("GET /x", Head::Malformed),
            ("GET /x HTTP/2.0", Head::Malformed),
            ("GET http://x/ HTTP/1.1", Head::Malformed),
            ("GET /a b HTTP/1.1", Head::Malformed),
            ("\u{16}\u{3}\u{1}", Head::Malformed),
            ("", Head::Malformed),
        ] {
            assert_eq!(parse_head(format!("{line}\r\n\r\n").as_bytes()), head, "{line}");
        }
        assert_eq!(parse_head(b"\xff\r\n\r\n"), Head::Malformed);
    }

    #[test]
    fn a_request_without_end_is_refused_at_its_bound() {
        assert_eq!(parse_head(&vec![b'x'; MOST_HEAD - 1]), Head::Partial);
        assert_eq!(parse_head(&vec![b'x'; MOST_HEAD]), Head::Malformed);
    }

    #[test]
    fn an_answer_reads_back_whole_and_never_in_part() {
        let bytes = Response::text(Status::Ok, "ok").bytes(false);
        for cut in 0..bytes.len() {
            assert_eq!(parse_response(&bytes[..cut]), None, "{cut}");
        }
        assert_eq!(parse_response(&bytes), Some(("200 OK", &b"ok"[..])));
        let head = Response::text(Status::Ok, "ok").bytes(true);
        assert!(head.ends_with(b"Content-Length: 2\r\nConnection: close\r\n\r\n"));
    }
}
