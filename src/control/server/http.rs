//! HTTP/1.1 responses. Pure.

use super::stream_slots::TooManyStreams;
use crate::protocol::http1::Refusal;

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) status: Status,
    pub(super) content_type: &'static str,
    pub(super) body: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    Created,
    Accepted,
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    NotAcceptable,
    Conflict,
    ContentTooLarge,
    UnprocessableContent,
    TooManyRequests,
    HeadersTooLarge,
    InternalServerError,
    NotImplemented,
    ServiceUnavailable,
}

impl Status {
    const fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::Created => "201 Created",
            Self::Accepted => "202 Accepted",
            Self::BadRequest => "400 Bad Request",
            Self::Unauthorized => "401 Unauthorized",
            Self::Forbidden => "403 Forbidden",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::NotAcceptable => "406 Not Acceptable",
            Self::Conflict => "409 Conflict",
            Self::ContentTooLarge => "413 Content Too Large",
            Self::UnprocessableContent => "422 Unprocessable Content",
            Self::TooManyRequests => "429 Too Many Requests",
            Self::HeadersTooLarge => "431 Request Header Fields Too Large",
            Self::InternalServerError => "500 Internal Server Error",
            Self::NotImplemented => "501 Not Implemented",
            Self::ServiceUnavailable => "503 Service Unavailable",
        }
    }
}

/// What happens to the connection after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterResponse {
    Close,
    Keep,
}

impl AfterResponse {
    /// HTTP/1.1 connections are persistent by default.
    const fn header(self) -> &'static str {
        match self {
            Self::Close => "Connection: close\r\n",
            Self::Keep => "",
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

    /// The response to an invalid request.
    pub(super) fn refusal(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Malformed => Self::text(Status::BadRequest, "not a request\n"),
            Refusal::TooLong => Self::text(Status::HeadersTooLarge, "the head of the request is too long\n"),
            Refusal::Encoded => Self::text(Status::NotImplemented, "a body must have a length\n"),
        }
    }

    /// The response to a request with a parameter that cannot be unescaped.
    pub(super) fn not_utf8(parameter: &str) -> Self {
        Self::text(Status::BadRequest, format!("{parameter}: expected UTF-8\n"))
    }

    pub(super) fn too_large() -> Self {
        Self::text(Status::ContentTooLarge, "the body is too large\n")
    }

    pub(super) fn too_many_streams(full: TooManyStreams) -> Self {
        let whose = match full {
            TooManyStreams::OfAll => "this node",
            TooManyStreams::OfClient => "this client",
        };
        let text = format!("too many streams of {whose}: end a followed log, exec, attach or port-forward\n");
        Self::text(Status::TooManyRequests, text)
    }

    pub(super) fn too_many_unread() -> Self {
        Self::text(Status::TooManyRequests, "too many responses wait for their readers: try again in a minute\n")
    }

    pub(super) fn only_get() -> Self {
        Self::text(Status::MethodNotAllowed, "only GET is answered here\n")
    }

    pub(super) fn not_allowed() -> Self {
        Self::text(Status::MethodNotAllowed, "405: Method Not Allowed")
    }

    pub(super) fn not_found() -> Self {
        Self::text(Status::NotFound, "404 page not found\n")
    }

    /// The bytes on the wire. `headers` are additional header lines, each with its line end.
    pub(super) fn bytes(&self, head_only: bool, after: AfterResponse, headers: &str) -> Vec<u8> {
        let head = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nX-Content-Type-Options: nosniff\r\nContent-Length: {}\r\n{headers}{}\r\n",
            self.status.line(),
            self.content_type,
            self.body.len(),
            after.header(),
        );
        let mut bytes = head.into_bytes();
        if !head_only {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

/// The head of a chunked response; its body consists of [`chunk`]s.
pub(super) fn stream_head(content_type: &str, after: AfterResponse, headers: &str) -> Vec<u8> {
    let rest = "X-Content-Type-Options: nosniff\r\nTransfer-Encoding: chunked";
    format!("HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n{rest}\r\n{headers}{}\r\n", after.header()).into_bytes()
}

/// The head of another server's response, which is sent in chunks.
pub(super) fn passed_head(status: u16, fields: &[(&str, &str)], after: AfterResponse) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status} \r\nTransfer-Encoding: chunked\r\n{}", after.header());
    // A control character could end the line, and begin another field or the body.
    for (name, value) in fields.iter().filter(|(_, value)| !value.contains(char::is_control)) {
        head.extend([*name, ": ", *value, "\r\n"]);
    }
    head.push_str("\r\n");
    head.into_bytes()
}

/// One chunk. An empty chunk ends the body.
pub(super) fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

/// Splits a response of this server into its status line and body; `None` if malformed.
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
    fn response_parses_back_only_when_complete() {
        for after in [AfterResponse::Close, AfterResponse::Keep] {
            let bytes = Response::text(Status::Ok, "ok").bytes(false, after, "");
            for cut in 0..bytes.len() {
                assert_eq!(parse_response(&bytes[..cut]), None, "{cut}");
            }
            assert_eq!(parse_response(&bytes), Some(("200 OK", &b"ok"[..])));
        }
    }

    #[test]
    fn response_tells_whether_the_connection_is_kept() {
        let response = Response::text(Status::Ok, "ok");
        assert!(
            response.bytes(true, AfterResponse::Close, "").ends_with(b"Content-Length: 2\r\nConnection: close\r\n\r\n")
        );
        assert!(response.bytes(true, AfterResponse::Keep, "A: b\r\n").ends_with(b"Content-Length: 2\r\nA: b\r\n\r\n"));
        let head = stream_head("text/plain", AfterResponse::Keep, "A: b\r\n");
        assert!(head.ends_with(b"Transfer-Encoding: chunked\r\nA: b\r\n\r\n"));
    }
}
