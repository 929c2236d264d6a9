//! A connection to the runtime's streaming server through the agent.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::event::PollFlags;

use crate::cli::local_api::LocalApiError;
use crate::protocol::spdy::{self, Event, Incoming, Malformed, Outgoing, StreamId};
use crate::types::error::ErrorChain;

/// A SPDY connection; its methods do not block.
#[derive(Debug)]
pub(super) struct Session {
    connection: UnixStream,
    incoming: Incoming,
    outgoing: Outgoing,
    /// Received bytes; those before `understood` are processed.
    come: Vec<u8>,
    understood: usize,
    unsent: Vec<u8>,
    /// The other side has closed the connection.
    is_over: bool,
}

/// Why there is no connection; each is one line.
#[derive(Debug)]
pub(super) enum SessionError {
    Agent(LocalApiError),
    /// The agent's or the runtime's message.
    Refused(String),
    Broken(io::Error),
    Malformed(Malformed),
    /// Reading from or writing to the local side failed.
    Local(&'static str, io::Error),
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(error) => write!(f, "{}", ErrorChain(error)),
            Self::Refused(line) => f.write_str(line),
            Self::Broken(error) => write!(f, "the connection to the runtime broke: {}", ErrorChain(error)),
            Self::Malformed(what) => write!(f, "invalid answer from the runtime: {what}"),
            Self::Local(doing, error) => write!(f, "{doing}: {}", ErrorChain(error)),
        }
    }
}

impl Session {
    /// Connects to the agent at `socket` and upgrades `path` to a Kubernetes streaming protocol.
    pub(super) fn open(socket: &Path, path: &str, protocol: &str) -> Result<Self, SessionError> {
        let mut connection = UnixStream::connect(socket).map_err(|error| agent_unreachable(socket, error))?;
        let request = (|| {
            connection.set_read_timeout(Some(SESSION_TIMEOUT))?;
            connection.set_write_timeout(Some(SESSION_TIMEOUT))?;
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
                 X-Stream-Protocol-Version: {protocol}\r\nContent-Length: 0\r\n\r\n"
            );
            connection.write_all(head.as_bytes())?;
            let response = read_response(&mut connection)?;
            connection.set_nonblocking(true)?;
            Ok(response)
        })();
        let (is_spdy, head, rest) = request.map_err(|error| agent_unreachable(socket, error))?;
        if !is_spdy {
            return Err(SessionError::Refused(refusal(&head, &rest)));
        }
        Ok(Self {
            connection,
            incoming: Incoming::default(),
            outgoing: Outgoing::default(),
            come: rest,
            understood: 0,
            unsent: Vec::new(),
            is_over: false,
        })
    }

    /// Opens a stream of this type, with these extra headers.
    pub(super) fn open_stream(&mut self, kind: &str, more: &[(&str, &str)]) -> StreamId {
        let headers = [&[("streamtype", kind)], more].concat();
        self.outgoing.open(&headers, &mut self.unsent)
    }

    pub(super) fn data(&mut self, stream: StreamId, bytes: &[u8]) {
        spdy::data(stream, bytes, &mut self.unsent);
    }

    /// Half-closes the stream.
    pub(super) fn end(&mut self, stream: StreamId) {
        spdy::end(stream, &mut self.unsent);
    }

    /// Whether more data may be queued for sending.
    pub(super) fn takes_more(&self) -> bool {
        self.unsent.len() < SESSION_READ_BYTES && !self.is_over
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over && self.come.len() == self.understood
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }

    /// The poll flags; `POLLIN` only if `may_read`.
    pub(super) fn interest(&self, may_read: bool) -> PollFlags {
        let mut interest = PollFlags::empty();
        interest.set(PollFlags::IN, may_read && !self.is_over);
        interest.set(PollFlags::OUT, !self.unsent.is_empty() && !self.is_over);
        interest
    }

    /// Sends and reads what is possible without blocking.
    pub(super) fn go_on(&mut self, may_read: bool) -> Result<(), SessionError> {
        if !self.unsent.is_empty() {
            match self.connection.write(&self.unsent) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(error) if is_nothing(&error) => {}
                // Data received before the other side closed is still processed.
                Err(_) => self.unsent.clear(),
            }
        }
        if may_read && !self.is_over {
            self.come.drain(..self.understood);
            self.understood = 0;
            let mut chunk = [0; SESSION_READ_BYTES];
            match self.connection.read(&mut chunk) {
                Ok(0) => self.is_over = true,
                Ok(read) => self.come.extend_from_slice(chunk.get(..read).unwrap_or_default()),
                Err(error) if is_nothing(&error) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => self.is_over = true,
                Err(error) => return Err(SessionError::Broken(error)),
            }
        }
        Ok(())
    }

    /// The next event in the received bytes. Answers pings itself.
    pub(super) fn next_event(&mut self) -> Result<Option<Event<'_>>, SessionError> {
        let come = self.come.get(self.understood..).unwrap_or_default();
        let Some((event, used)) = self.incoming.take(come).map_err(SessionError::Malformed)? else {
            if self.is_over {
                // An incomplete frame at the end is dropped.
                self.understood = self.come.len();
            }
            return Ok(None);
        };
        self.understood += used;
        if let Event::Ping(id) = event {
            spdy::ping(id, &mut self.unsent);
            return Ok(Some(Event::Other));
        }
        Ok(Some(event))
    }
}

/// Reads the head of the response: whether it upgrades to SPDY, and the bytes after it; otherwise the whole response.
fn read_response(connection: &mut UnixStream) -> io::Result<(bool, String, Vec<u8>)> {
    let mut come = Vec::new();
    loop {
        let mut chunk = [0; 1024];
        let read = connection.read(&mut chunk)?;
        come.extend_from_slice(chunk.get(..read).unwrap_or_default());
        let end = come.windows(4).position(|window| window == b"\r\n\r\n");
        let (Some(end), more) = (end, read > 0 && come.len() < MAX_SESSION_RESPONSE_BYTES) else {
            if read == 0 || come.len() >= MAX_SESSION_RESPONSE_BYTES {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            continue;
        };
        let head = String::from_utf8_lossy(come.get(..end).unwrap_or_default()).into_owned();
        let is_spdy = head.starts_with("HTTP/1.1 101 ");
        if is_spdy || !more || has_whole_body(&head, come.len() - end - 4) {
            return Ok((is_spdy, head, come.split_off(end + 4)));
        }
    }
}

fn has_whole_body(head: &str, come: usize) -> bool {
    let length =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    length.is_some_and(|length: usize| come >= length)
}

/// A response without upgrade, as one line.
fn refusal(head: &str, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body).split_whitespace().collect::<Vec<_>>().join(" ");
    if text.is_empty() { head.lines().next().unwrap_or_default().to_owned() } else { text }
}

fn agent_unreachable(socket: &Path, error: io::Error) -> SessionError {
    SessionError::Agent(LocalApiError::from_io(socket, error))
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Read size, and limit of the queued bytes before no more input is taken.
pub(super) const SESSION_READ_BYTES: usize = 16 * 1024;
const MAX_SESSION_RESPONSE_BYTES: usize = 64 * 1024;
/// Longer than the agent's timeout for the runtime.
const SESSION_TIMEOUT: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::spdy::MAX_SPDY_HEADER_BYTES;

    const _: () = assert!(SESSION_READ_BYTES > MAX_SPDY_HEADER_BYTES, "a frame header fits into one read");

    #[test]
    fn refusal_is_reported_in_one_line() {
        assert_eq!(refusal("HTTP/1.1 404 Not Found\r\nA: b", b"pod does\nnot exist\n"), "pod does not exist");
        assert_eq!(refusal("HTTP/1.1 404 Not Found\r\nA: b", b" \n"), "HTTP/1.1 404 Not Found");
    }

    #[test]
    fn body_is_complete_at_its_content_length() {
        let head = "HTTP/1.1 500 X\r\ncontent-length: 3";
        assert!(has_whole_body(head, 3) && !has_whole_body(head, 2));
        assert!(!has_whole_body("HTTP/1.1 500 X\r\nContent-Length: -1", 3));
    }
}
