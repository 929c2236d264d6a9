//! One request and its answer, over HTTP/1.1 or as a stream of HTTP/2.

use std::io;
use std::net::Shutdown;

use super::connection::Wire;
use super::http::{LAST_CHUNK, Response, chunk};

/// How an answer leaves.
pub(crate) trait Exchange {
    /// The head; `length` is that of the body, if it is told.
    fn head(&mut self, response: &Response, length: Option<usize>) -> io::Result<()>;

    fn body(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// The answer is whole.
    fn end(&mut self) -> io::Result<()>;

    /// There will be no more of it; `seen` says whether the client is to think that anything was done.
    fn abort(&mut self, seen: Seen);

    /// The whole connection is cut.
    fn cut(&mut self);

    /// These bytes, in no frame, and the end of the connection.
    fn speak(&mut self, bytes: &[u8]) -> io::Result<()>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Yes,
    No,
}

/// HTTP/1.1, where a connection has one answer after the other.
pub(crate) struct Http1<'a> {
    pub wire: &'a mut Wire,
    is_chunked: bool,
    /// Whether another request may follow.
    pub is_reusable: bool,
}

impl<'a> Http1<'a> {
    pub(super) fn new(wire: &'a mut Wire) -> Self {
        Self { wire, is_chunked: false, is_reusable: false }
    }
}

impl Exchange for Http1<'_> {
    fn head(&mut self, response: &Response, length: Option<usize>) -> io::Result<()> {
        let response = Response { body: Vec::new(), ..response.clone() };
        let is_told = response.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        self.is_chunked = length.is_none() && !is_told;
        let response = match length {
            _ if is_told => response,
            Some(length) => response.header("Content-Length", length.to_string()),
            None => response.header("Transfer-Encoding", "chunked"),
        };
        self.wire.send(&response.head())
    }

    fn body(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.is_chunked && !bytes.is_empty() { self.wire.send(&chunk(bytes)) } else { self.wire.send(bytes) }
    }

    fn end(&mut self) -> io::Result<()> {
        self.is_reusable = true;
        if self.is_chunked { self.wire.send(LAST_CHUNK) } else { Ok(()) }
    }

    fn abort(&mut self, _: Seen) {
        self.cut();
    }

    fn cut(&mut self) {
        // The client may have cut it before.
        let _ = self.wire.tcp().shutdown(Shutdown::Both);
    }

    fn speak(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.wire.send(bytes)?;
        self.cut();
        Ok(())
    }
}
