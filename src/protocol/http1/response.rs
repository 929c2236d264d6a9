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
    /// Bytes of all heads, interim ones included, and of trailers so far.
    overhead: usize,
    /// Received bytes that are not parsed yet.
    unread: Vec<u8>,
    /// How many of them were searched for the end of the head or of a line.
    searched: usize,
    /// Bytes of the lines between the chunks beyond what chunks need.
    excess: u64,
    state: State,
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
    StatusCode(String),
    Header,
    TooLong,
    Chunk,
}

/// Limit of all heads and trailers together, in bytes.
const MAX_RESPONSE_HEADS_BYTES: usize = 64 * 1024;
/// Limit of a chunk size line with its extensions.
const LINE: usize = 1024;
/// Limit of what is no content between the chunks (net/http: `chunkedReader.excess`). Each chunk has room for 16 bytes
/// and twice its length.
const EXCESS: u64 = 16 * 1024;
const CHUNK_LINE_BYTES: u64 = 16;

impl Response {
    /// Keeps at most `limit` bytes of the body.
    pub fn new(limit: usize) -> Self {
        let (unread, body) = (Vec::new(), Vec::new());
        let state = State::Head;
        Self { status: 0, location: None, body, limit, overhead: 0, unread, searched: 0, excess: 0, state }
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
            self.count_overhead(before - self.unread.len())?;
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
            return if self.unread.len() > LINE { Err(Malformed::TooLong) } else { Ok(None) };
        };
        if end > LINE {
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

    fn take_head(&mut self) -> Result<bool, Malformed> {
        // Reject what does not begin like a response at once: its end may never arrive.
        if !b"HTTP/".starts_with(self.unread.get(..5).unwrap_or(&self.unread)) {
            return Err(Malformed::Line(first_line(&self.unread)));
        }
        let Some((end, next)) = head_end(&self.unread, self.searched) else {
            // A line end that may be followed by an empty line is searched again.
            self.searched = self.unread.len().saturating_sub(2);
            let has_room = self.overhead + self.unread.len() <= MAX_RESPONSE_HEADS_BYTES;
            return if has_room { Ok(false) } else { Err(Malformed::TooLong) };
        };
        self.searched = 0;
        self.count_overhead(next)?;
        let head = String::from_utf8_lossy(self.unread.get(..end).unwrap_or_default()).into_owned();
        self.unread.drain(..next);
        let mut lines = head.lines();
        let status = status_of(lines.next().unwrap_or_default())?;
        if (100..200).contains(&status) {
            // An interim response: the final one follows.
            return Ok(true);
        }
        self.status = status;
        self.state = self.read_headers(lines)?;
        if self.limit == 0 {
            self.state = State::Done;
        }
        Ok(true)
    }

    fn count_overhead(&mut self, bytes: usize) -> Result<(), Malformed> {
        self.overhead = self.overhead.saturating_add(bytes);
        if self.overhead > MAX_RESPONSE_HEADS_BYTES { Err(Malformed::TooLong) } else { Ok(()) }
    }

    /// Counts a chunk's size line and line ends against its length.
    fn count_excess(&mut self, line: usize, size: u64) -> Result<(), Malformed> {
        let line = u64::try_from(line).unwrap_or(u64::MAX).saturating_add(2);
        let room = size.saturating_mul(2).saturating_add(CHUNK_LINE_BYTES);
        self.excess = self.excess.saturating_add(line).saturating_sub(room);
        if self.excess > EXCESS { Err(Malformed::TooLong) } else { Ok(()) }
    }

    /// Keeps the wanted headers. Returns the framing of the body.
    fn read_headers<'a>(&mut self, lines: impl Iterator<Item = &'a str>) -> Result<State, Malformed> {
        let (mut length, mut chunked) = (None, false);
        for line in lines {
            let (name, value) = line.split_once(':').ok_or(Malformed::Header)?;
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                length = Some(value.parse::<u64>().map_err(|_| Malformed::Header)?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                chunked = value.eq_ignore_ascii_case("chunked");
            } else if name.eq_ignore_ascii_case("location") && self.location.is_none() {
                self.location = Some(value.to_owned());
            }
        }
        Ok(match length {
            _ if self.status == 204 || self.status == 304 => State::Done,
            _ if chunked => State::Chunk(Chunk::Size),
            Some(0) => State::Done,
            Some(length) => State::Counted(length),
            None => State::UntilEnd,
        })
    }
}

/// The end of the head and the start of the body, from the position `from` on. Lines may end without a carriage return.
fn head_end(bytes: &[u8], mut from: usize) -> Option<(usize, usize)> {
    while let Some(newline) = bytes.get(from..)?.iter().position(|byte| *byte == b'\n') {
        let end = from + newline;
        let rest = bytes.get(end + 1..)?;
        for empty in [&b"\n"[..], b"\r\n"] {
            if rest.starts_with(empty) {
                return Some((end, end + 1 + empty.len()));
            }
        }
        from = end + 1;
    }
    None
}

fn status_of(line: &str) -> Result<u16, Malformed> {
    let line = line.trim_end();
    let malformed = || Malformed::Line(line.to_owned());
    let (version, rest) = line.split_once(' ').ok_or_else(malformed)?;
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
        return Err(malformed());
    }
    let code = rest.trim_start().split(' ').next().unwrap_or_default();
    let number = if code.len() == 3 { code.parse().ok() } else { None };
    number.filter(|code| *code >= 100).ok_or_else(|| Malformed::StatusCode(code.to_owned()))
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
