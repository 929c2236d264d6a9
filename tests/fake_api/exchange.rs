//! One request and its response, over HTTP/1.1 or as an HTTP/2 stream.

use std::io;
use std::net::Shutdown;

use super::connection::Wire;
use super::http::{LAST_CHUNK, Response, chunk};

/// Sends a response.
pub(crate) trait Exchange {
    /// Sends the head, with the length of the body if announced.
    fn head(&mut self, response: &Response, length: Option<usize>) -> io::Result<()>;

    fn body(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Ends a complete response.
    fn end(&mut self) -> io::Result<()>;

    /// Aborts the response. `seen` tells the client whether the request may have had an effect.
    fn abort(&mut self, seen: Seen);

    /// Cuts the whole connection.
    fn cut(&mut self);

    /// Writes these bytes without framing and closes the connection.
    fn speak(&mut self, bytes: &[u8]) -> io::Result<()>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Yes,
    No,
}

/// HTTP/1.1: one response after the other on a connection.
pub(crate) struct Http1<'a> {
    pub wire: &'a mut Wire,
    is_chunked: bool,
    /// Whether the connection may serve another request.
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
        // The client may already have closed it.
        let _ = self.wire.tcp().shutdown(Shutdown::Both);
    }

    fn speak(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.wire.send(bytes)?;
        self.cut();
        Ok(())
    }
}
