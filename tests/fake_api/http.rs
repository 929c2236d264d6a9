//! Server side of HTTP/1.1: parses requests, formats responses.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

/// The limit of kube-apiserver; it refuses larger bodies.
const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;
const MAX_HEAD_BYTES: usize = 1024 * 1024;
/// Go's server announces no length for longer bodies.
pub(crate) const BUFFERED: usize = 2048;
/// The size of one write of Go's server.
pub(crate) const CHUNK: usize = 32 * 1024;

/// A request as received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    pub method: String,
    /// Path and query, percent-encoded.
    pub target: String,
    /// Header names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Whether the body exceeded the limit and was dropped.
    pub is_too_large: bool,
}

impl Message {
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    /// Appends to the body.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.body.extend_from_slice(bytes);
        self.is_too_large |= self.body.len() > MAX_BODY_BYTES;
    }

    pub(crate) fn wants_close(&self) -> bool {
        self.header("connection").eq_ignore_ascii_case("close")
    }

    /// The decoded path and the query parameters.
    pub(crate) fn path_and_query(&self) -> (String, Vec<(String, String)>) {
        let (path, query) = self.target.split_once('?').unwrap_or((&self.target, ""));
        let pair = |part: &str| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            (unescaped(&name.replace('+', " ")), unescaped(&value.replace('+', " ")))
        };
        let pairs = query.split('&').filter(|part| !part.is_empty()).map(pair);
        (unescaped(path), pairs.collect())
    }
}

fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = after.split_at_checked(2).filter(|_| byte == b'%');
        let value = escaped
            .and_then(|(hex, after)| Some((u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?, after)));
        let (byte, after) = value.unwrap_or((byte, after));
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads one request after another from a stream.
#[derive(Debug)]
pub(crate) struct Reader {
    buffer: Vec<u8>,
}

impl Reader {
    /// Starts with bytes that were already read.
    pub(crate) fn new(buffer: Vec<u8>) -> Self {
        Self { buffer }
    }

    /// `None` when the client has closed the connection, even within a request.
    pub(crate) fn read(&mut self, stream: &mut (impl Read + Write)) -> io::Result<Option<Message>> {
        let head = loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let head: Vec<u8> = self.buffer.drain(..end + 4).collect();
                break String::from_utf8_lossy(&head).into_owned();
            }
            if self.buffer.len() > MAX_HEAD_BYTES || !self.more(stream)? {
                return Ok(None);
            }
        };
        let mut lines = head.lines();
        let mut start = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(target)) = (start.next(), start.next()) else { return Ok(None) };
        let headers = lines.filter_map(|line| line.split_once(':'));
        let headers = headers.map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        let mut message = Message {
            method: method.to_owned(),
            target: target.to_owned(),
            headers: headers.collect(),
            body: Vec::new(),
            is_too_large: false,
        };
        if message.header("expect").eq_ignore_ascii_case("100-continue") {
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            stream.flush()?;
        }
        if message.header("transfer-encoding").eq_ignore_ascii_case("chunked") {
            return self.read_chunks(stream, message);
        }
        let length: usize = message.header("content-length").parse().unwrap_or_default();
        if length > MAX_BODY_BYTES {
            message.is_too_large = true;
            return Ok(Some(message));
        }
        Ok(self.take(stream, length)?.map(|body| Message { body, ..message }))
    }

    fn read_chunks(&mut self, stream: &mut impl Read, mut message: Message) -> io::Result<Option<Message>> {
        loop {
            let Some(line) = self.line(stream)? else { return Ok(None) };
            let size = line.split(';').next().unwrap_or_default().trim();
            let Ok(size) = usize::from_str_radix(size, 16) else { return Ok(None) };
            let Some(chunk) = self.take(stream, size)? else { return Ok(None) };
            message.push(&chunk);
            if message.is_too_large {
                return Ok(Some(message));
            }
            if self.line(stream)?.is_none() {
                return Ok(None);
            }
            if size == 0 {
                return Ok(Some(message));
            }
        }
    }

    fn line(&mut self, stream: &mut impl Read) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..end + 2).collect();
                return Ok(Some(String::from_utf8_lossy(&line).trim().to_owned()));
            }
            if !self.more(stream)? {
                return Ok(None);
            }
        }
    }

    fn take(&mut self, stream: &mut impl Read, length: usize) -> io::Result<Option<Vec<u8>>> {
        while self.buffer.len() < length {
            if !self.more(stream)? {
                return Ok(None);
            }
        }
        Ok(Some(self.buffer.drain(..length).collect()))
    }

    fn more(&mut self, stream: &mut impl Read) -> io::Result<bool> {
        let mut bytes = [0; 16 * 1024];
        let length = stream.read(&mut bytes)?;
        self.buffer.extend_from_slice(&bytes[..length]);
        Ok(length > 0)
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// The response to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    pub(crate) fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into() }.header("Content-Type", content_type)
    }

    pub(crate) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn gzipped(mut self) -> Self {
        // kube-apiserver uses the fastest level.
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(1));
        encoder.write_all(&self.body).unwrap();
        self.body = encoder.finish().unwrap();
        self.header("Content-Encoding", "gzip").header("Vary", "Accept-Encoding")
    }

    pub(crate) fn head(&self) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        head.into_bytes()
    }
}

pub(crate) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

pub(crate) fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        409 => "Conflict",
        410 => "Gone",
        413 => "Request Entity Too Large",
        415 => "Unsupported Media Type",
        422 => "Unprocessable Entity",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Unknown",
    }
}
