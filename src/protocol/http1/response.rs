//! Parses a response from a byte stream, no further than needed. Pure.

use std::fmt;

/// A response being received.
#[derive(Debug)]
pub struct Response {
    status: u16,
    location: Option<String>,
    body: Vec<u8>,
    /// The most bytes of the body to keep. The response is done when it is reached.
    limit: usize,
    head: Head,
    /// Bytes of all heads so far, interim ones included.
    heads: usize,
    /// Bytes of trailers so far.
    trailers: usize,
    /// Received bytes that are not parsed yet.
    unread: Vec<u8>,
    /// How many of them were searched for the end of a line.
    searched: usize,
    /// Bytes of the lines between the chunks beyond what chunks need.
    excess: u64,
    state: State,
}

/// What is known of the head that is being received.
#[derive(Debug, Default)]
struct Head {
    /// `None` before the status line.
    status: Option<Status>,
    /// The newest header with its continuation lines, cut at [`MAX_HEADER_BYTES`].
    header: Vec<u8>,
    /// The rest of the line is dropped.
    in_long_line: bool,
    length: Option<u64>,
    chunked: bool,
    location: Option<String>,
}

#[derive(Clone, Copy, Debug)]
struct Status {
    code: u16,
    /// HTTP/1.0 has no chunks.
    is_1_0: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    /// Remaining bytes of the body; may be more than `usize` holds.
    Counted(u64),
    /// The body ends when the connection closes.
    UntilEnd,
    Chunk(Chunk),
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunk {
    Size,
    Data(u64),
    /// The line end after a chunk's data.
    DataEnd,
    Trailers,
}

/// Not an HTTP/1 response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The status line, or what came instead of it.
    Line(String),
    Version(String),
    StatusCode(String),
    Header,
    TooLong,
    Chunk,
}

/// Limit of all heads together, in bytes. Upstream reads 10 MiB.
const MAX_RESPONSE_HEADS_BYTES: usize = 1024 * 1024;
const MAX_TRAILERS_BYTES: usize = 64 * 1024;
/// What is kept of a header, or of a status line.
const MAX_HEADER_BYTES: usize = 8 * 1024;
/// Limit of a chunk size line with its extensions.
const MAX_CHUNK_LINE_BYTES: usize = 1024;
/// Limit of what is no content between the chunks (net/http: `chunkedReader.excess`). Each chunk has room for 16 bytes
/// and twice its length.
const MAX_CHUNK_EXCESS_BYTES: u64 = 16 * 1024;
const CHUNK_LINE_BYTES: u64 = 16;

impl Response {
    /// Keeps at most `limit` bytes of the body.
    pub fn new(limit: usize) -> Self {
        let (unread, body) = (Vec::new(), Vec::new());
        let (head, state) = (Head::default(), State::Head);
        Self {
            status: 0,
            location: None,
            body,
            limit,
            head,
            heads: 0,
            trailers: 0,
            unread,
            searched: 0,
            excess: 0,
            state,
        }
    }

    /// 0 before the head is complete.
    pub fn status(&self) -> u16 {
        self.status
    }

    pub fn location(&self) -> Option<&str> {
        self.location.as_deref()
    }

    pub fn into_body(self) -> Vec<u8> {
        self.body
    }

    /// Whether the status and the headers are known.
    pub fn has_head(&self) -> bool {
        self.state != State::Head
    }

    /// Whether nothing more needs to be read.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Handles the end of the connection. Returns whether the response is complete.
    pub fn end(&mut self) -> bool {
        let complete = matches!(self.state, State::UntilEnd | State::Done);
        self.state = State::Done;
        complete
    }

    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        if self.state == State::Done {
            return Ok(());
        }
        self.unread.extend_from_slice(bytes);
        while self.step()? {}
        Ok(())
    }

    /// Parses the next element of the input; false if it is not complete.
    fn step(&mut self) -> Result<bool, Malformed> {
        match self.state {
            State::Head => return self.take_head(),
            State::Counted(left) => {
                let taken = self.take_body(left);
                self.state = if taken == left { State::Done } else { State::Counted(left - taken) };
            }
            State::UntilEnd => {
                self.take_body(u64::MAX);
            }
            State::Chunk(part) => return self.step_chunk(part),
            State::Done => return Ok(false),
        }
        self.stop_at_limit();
        Ok(false)
    }

    fn step_chunk(&mut self, part: Chunk) -> Result<bool, Malformed> {
        if let Chunk::Data(left) = part {
            let taken = self.take_body(left);
            self.state = State::Chunk(if taken == left { Chunk::DataEnd } else { Chunk::Data(left - taken) });
            return Ok(!self.stop_at_limit() && taken == left);
        }
        let before = self.unread.len();
        let Some(line) = self.take_line()? else { return Ok(false) };
        if part == Chunk::Trailers {
            count(&mut self.trailers, before - self.unread.len(), MAX_TRAILERS_BYTES)?;
        }
        self.state = match part {
            Chunk::Size => {
                let size = chunk_size(&line).ok_or(Malformed::Chunk)?;
                self.count_excess(line.len(), size)?;
                State::Chunk(if size == 0 { Chunk::Trailers } else { Chunk::Data(size) })
            }
            Chunk::DataEnd if line.is_empty() => State::Chunk(Chunk::Size),
            Chunk::Trailers if line.is_empty() => State::Done,
            Chunk::Trailers => State::Chunk(Chunk::Trailers),
            Chunk::DataEnd | Chunk::Data(_) => return Err(Malformed::Chunk),
        };
        Ok(true)
    }

    /// Takes a line without its line end, once it is complete.
    fn take_line(&mut self) -> Result<Option<Vec<u8>>, Malformed> {
        let rest = self.unread.get(self.searched..).unwrap_or_default();
        let Some(end) = rest.iter().position(|byte| *byte == b'\n').map(|end| self.searched + end) else {
            self.searched = self.unread.len();
            return if self.unread.len() > MAX_CHUNK_LINE_BYTES { Err(Malformed::TooLong) } else { Ok(None) };
        };
        if end > MAX_CHUNK_LINE_BYTES {
            return Err(Malformed::TooLong);
        }
        self.searched = 0;
        let mut line: Vec<u8> = self.unread.drain(..=end).collect();
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(Some(line))
    }

    /// Moves up to `most` bytes into the body, dropping those beyond the limit. Returns the number of bytes consumed.
    fn take_body(&mut self, most: u64) -> u64 {
        let taken = self.unread.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        let room = self.limit.saturating_sub(self.body.len());
        let bytes = self.unread.drain(..taken);
        self.body.extend(bytes.take(room));
        u64::try_from(taken).unwrap_or(u64::MAX)
    }

    fn stop_at_limit(&mut self) -> bool {
        let full = self.body.len() >= self.limit;
        if full {
            self.state = State::Done;
        }
        full
    }

    /// Parses the lines of the head that have arrived. Of a long line only the start is kept.
    fn take_head(&mut self) -> Result<bool, Malformed> {
        let mut bytes = std::mem::take(&mut self.unread);
        let mut rest = bytes.as_slice();
        let ended = loop {
            // Reject what does not begin like a response at once: its end may never arrive.
            if self.head.status.is_none() && !b"HTTP/".starts_with(rest.get(..5).unwrap_or(rest)) {
                return Err(Malformed::Line(first_line(rest)));
            }
            let window = rest.get(..MAX_HEADER_BYTES).unwrap_or(rest);
            let newline = window.get(self.searched..).unwrap_or_default().iter().position(|byte| *byte == b'\n');
            let length = match newline {
                Some(at) => self.searched + at + 1,
                None if window.len() == MAX_HEADER_BYTES => MAX_HEADER_BYTES,
                None => {
                    self.searched = rest.len();
                    break false;
                }
            };
            let (line, after) = rest.split_at_checked(length).unwrap_or((rest, &[]));
            rest = after;
            self.searched = 0;
            count(&mut self.heads, line.len(), MAX_RESPONSE_HEADS_BYTES)?;
            if self.head_line(line)? {
                break true;
            }
        };
        let used = bytes.len() - rest.len();
        bytes.drain(..used);
        self.unread = bytes;
        Ok(ended)
    }

    /// Takes a line with its end, or a part of a long line. Returns whether it ends the head.
    fn head_line(&mut self, line: &[u8]) -> Result<bool, Malformed> {
        let complete = line.strip_suffix(b"\n");
        if std::mem::replace(&mut self.head.in_long_line, complete.is_none()) {
            return Ok(false);
        }
        let line = complete.unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(Status { code, is_1_0 }) = self.head.status else {
            self.head.status = Some(status_of(&String::from_utf8_lossy(line))?);
            return Ok(false);
        };
        match line.first() {
            // A continuation line (RFC 9112, section 5.2), as old embedded servers send.
            Some(b' ' | b'\t') if self.head.header.is_empty() => return Err(Malformed::Header),
            Some(b' ' | b'\t') => {
                let room = MAX_HEADER_BYTES.saturating_sub(self.head.header.len());
                self.head.header.extend(b" ".iter().chain(line.trim_ascii()).take(room));
                return Ok(false);
            }
            Some(_) => {
                self.end_header()?;
                self.head.header.extend_from_slice(line);
                return Ok(false);
            }
            None => self.end_header()?,
        }
        let head = std::mem::take(&mut self.head);
        if !matches!(code, 100 | 102..=199) {
            self.status = code;
            self.location = head.location;
            self.state = match head.length {
                _ if matches!(code, 101 | 204 | 304) || self.limit == 0 => State::Done,
                _ if head.chunked && !is_1_0 => State::Chunk(Chunk::Size),
                Some(0) => State::Done,
                Some(length) => State::Counted(length),
                None => State::UntilEnd,
            };
        }
        // Otherwise it is an interim response: the final one follows.
        Ok(true)
    }

    /// Notes the newest header, which is complete, if it is wanted.
    fn end_header(&mut self) -> Result<(), Malformed> {
        let header = std::mem::take(&mut self.head.header);
        if header.is_empty() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&header);
        let (name, value) = text.split_once(':').ok_or(Malformed::Header)?;
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            self.head.length = Some(value.parse::<u64>().map_err(|_| Malformed::Header)?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            self.head.chunked = value.eq_ignore_ascii_case("chunked");
        } else if name.eq_ignore_ascii_case("location") && self.head.location.is_none() {
            if header.len() >= MAX_HEADER_BYTES {
                return Err(Malformed::TooLong);
            }
            self.head.location = Some(value.to_owned());
        }
        Ok(())
    }

    /// Counts a chunk's size line and line ends against its length.
    fn count_excess(&mut self, line: usize, size: u64) -> Result<(), Malformed> {
        let line = u64::try_from(line).unwrap_or(u64::MAX).saturating_add(2);
        let room = size.saturating_mul(2).saturating_add(CHUNK_LINE_BYTES);
        self.excess = self.excess.saturating_add(line).saturating_sub(room);
        if self.excess > MAX_CHUNK_EXCESS_BYTES { Err(Malformed::TooLong) } else { Ok(()) }
    }
}

fn count(sum: &mut usize, bytes: usize, limit: usize) -> Result<(), Malformed> {
    *sum = sum.saturating_add(bytes);
    if *sum > limit { Err(Malformed::TooLong) } else { Ok(()) }
}

/// Any version is taken that is written like one, as Go does (net/http: `ParseHTTPVersion`).
fn status_of(line: &str) -> Result<Status, Malformed> {
    let line = line.trim_end();
    let (version, rest) = line.split_once(' ').ok_or_else(|| Malformed::Line(first_line(line.as_bytes())))?;
    let code = rest.trim_start().split(' ').next().unwrap_or_default();
    let number = if code.len() == 3 { code.parse().ok() } else { None };
    let shown = |text: &str| first_line(text.as_bytes());
    let code = number.filter(|code| *code >= 100).ok_or_else(|| Malformed::StatusCode(shown(code)))?;
    match version.as_bytes() {
        [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => {
            Ok(Status { code, is_1_0: version < "HTTP/1.1" })
        }
        _ => Err(Malformed::Version(shown(version))),
    }
}

fn first_line(bytes: &[u8]) -> String {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.get(..MAX_SHOWN_RESPONSE_BYTES).unwrap_or(line);
    String::from_utf8_lossy(line).trim_end().to_owned()
}

/// How much of a malformed response an error shows.
const MAX_SHOWN_RESPONSE_BYTES: usize = 100;

fn chunk_size(line: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(line).ok()?;
    let size = text.split(';').next()?.trim();
    // `from_str_radix` would accept a sign.
    if size.starts_with('+') { None } else { u64::from_str_radix(size, 16).ok() }
}

/// The upstream kubelet's messages, which users know from events.
impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "malformed HTTP response {line:?}"),
            Self::Version(version) => write!(f, "malformed HTTP version {version:?}"),
            Self::StatusCode(code) => write!(f, "malformed HTTP status code {code:?}"),
            Self::Header => f.write_str("malformed MIME header"),
            Self::TooLong => f.write_str("server response headers exceeded what is read"),
            Self::Chunk => f.write_str("malformed chunked encoding"),
        }
    }
}

impl std::error::Error for Malformed {}

#[cfg(test)]
mod tests;
