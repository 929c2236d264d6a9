//! A gRPC call: its messages and its status.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::Error;
use super::cut_answer::CutAnswer;
use super::link::{Exchange, Link, Ongoing};
use crate::protocol::grpc::{self, Status};
use crate::protocol::hpack::Field;
use crate::protocol::http2::Ending;

/// The fields that identify client and server.
#[derive(Debug)]
pub(super) struct Caller {
    agent: Field,
    authority: Field,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseMode {
    /// One, of whose strings only the first `most` bytes are kept.
    Cut {
        limit: usize,
    },
    Many,
    One,
}

/// What has arrived for one call.
#[derive(Debug)]
pub(super) struct Call {
    answers: ResponseMode,
    /// Longest message.
    limit: u32,
    /// Whether it was caused by a tenant, not by the node itself.
    pub(super) is_of_tenant: bool,
    /// Set for [`ResponseMode::Cut`].
    pub(super) cut: Option<CutAnswer>,
    /// Content that was not taken yet.
    buf: Vec<u8>,
    /// Received bytes that were not returned to the peer's window.
    buffered_bytes: usize,
}

impl Exchange for Call {
    type Error = Error;
    type Caller = Caller;

    fn head(&mut self, fields: &[Field], end: bool) -> Option<Result<(), Error>> {
        let value = |name: &[u8]| fields.iter().find(|field| field.name == name).map_or(&[][..], |field| &field.value);
        let status = value(b":status");
        if status != b"200" {
            let status = Status::of_trailers(fields).unwrap_or_else(|| Status::of_http(status));
            return Some(Err(Error::Status(status)));
        }
        if !value(b"content-type").starts_with(grpc::GRPC_CONTENT_TYPE.as_bytes()) {
            return Some(Err(Error::Protocol("response is not gRPC")));
        }
        end.then(|| self.trailers(fields))
    }

    fn data(&mut self, data: Vec<u8>, end: bool) -> Option<Result<(), Error>> {
        self.buffered_bytes += data.len();
        if let Some(cut) = &mut self.cut {
            if let Err(why) = cut.take(&data, self.limit) {
                return Some(Err(Error::Protocol(why)));
            }
            return end.then_some(Err(Error::Protocol("response has no status")));
        }
        if self.buf.is_empty() {
            self.buf = data;
        } else {
            self.buf.extend_from_slice(&data);
        }
        match grpc::take_message(&self.buf, self.limit) {
            Err(grpc::FramingError::Compressed) => return Some(Err(Error::Protocol("response is compressed"))),
            Err(grpc::FramingError::TooLong { .. }) => return Some(Err(Error::Protocol("response is too long"))),
            Ok(Some((_, used))) if self.answers == ResponseMode::One && used < self.buf.len() => {
                return Some(Err(Error::Protocol("more than one response")));
            }
            Ok(_) => {}
        }
        // Without trailers the response may be incomplete.
        end.then_some(Err(Error::Protocol("response has no status")))
    }

    fn trailers(&mut self, fields: &[Field]) -> Result<(), Error> {
        match Status::of_trailers(fields) {
            None => Err(Error::Protocol("response has no status")),
            Some(status) if status.code == grpc::Code::Ok => Ok(()),
            Some(status) => Err(Error::Status(status)),
        }
    }

    /// Returns the window for everything received, unless a stream has a complete message that is not taken yet: so a
    /// slow reader buffers at most a window.
    fn give_back(&mut self) -> usize {
        let has_message = matches!(grpc::take_message(&self.buf, self.limit), Ok(Some(_)));
        if has_message && self.answers == ResponseMode::Many { 0 } else { std::mem::take(&mut self.buffered_bytes) }
    }

    fn never_sent() -> Error {
        Error::NeverSent
    }

    fn reset(ending: Ending) -> Error {
        match ending {
            Ending::NotProcessed => Error::NeverSent,
            Ending::ByPeer(code) => Error::Reset(code),
            Ending::Violation(what) => Error::Protocol(what),
        }
    }

    fn lost(cause: &Arc<io::Error>) -> Error {
        Error::Lost(Arc::clone(cause))
    }
}

impl Call {
    /// `limit`: the longest message.
    pub(super) fn new(answers: ResponseMode, limit: u32) -> Self {
        Self { answers, limit, is_of_tenant: false, cut: None, buf: Vec::new(), buffered_bytes: 0 }
    }

    /// Takes the next complete message from the buffer.
    fn take(&mut self) -> Option<Vec<u8>> {
        if let Some(cut) = self.cut.take_if(|cut| cut.is_whole()) {
            self.buf = cut.whole()?;
        }
        let (message, used) = grpc::take_message(&self.buf, self.limit).ok().flatten()?;
        // Usually nothing follows: the buffer becomes the message, without a second copy of it.
        if used == self.buf.len() {
            let head = used - message.len();
            let mut whole = std::mem::take(&mut self.buf);
            whole.drain(..head);
            return Some(whole);
        }
        let message = message.to_vec();
        self.buf.drain(..used);
        Some(message)
    }
}

impl Link<Call> {
    /// Starts a call with a framed request.
    pub(super) fn call(
        self: std::rc::Rc<Self>,
        method: &'static str,
        request: Vec<u8>,
        timeout: Option<Duration>,
        call: Call,
    ) -> Result<Ongoing<Call>, Error> {
        let head = self.caller.head(method, timeout);
        self.begin(head, request, call)
    }
}

impl Ongoing<Call> {
    /// The next message; `None` once the call has ended successfully.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let message = self.take(Call::take).await?;
        if message.is_none() && self.take(|call| (!call.buf.is_empty()).then_some(())).await?.is_some() {
            return Err(Error::Protocol("response ends within a message"));
        }
        Ok(message)
    }

    /// The only message of a unary call.
    pub(super) async fn only(&mut self) -> Result<Vec<u8>, Error> {
        // Wait for the status: a call that fails after its message has failed.
        let message = self.next().await?.ok_or(Error::Protocol("call succeeded without a response"))?;
        match self.next().await? {
            None => Ok(message),
            Some(_) => Err(Error::Protocol("more than one response")),
        }
    }

    /// The error for a call that its caller abandons at its deadline.
    pub(super) fn give_up(self) -> Error {
        if self.is_unseen() { Error::NeverSent } else { Error::DeadlineExceeded }
    }
}

impl Caller {
    /// For a peer on this machine, which ignores the authority.
    pub(super) fn to_local() -> Self {
        Self {
            agent: Field::fixed("user-agent", concat!("coracle/", env!("CARGO_PKG_VERSION"))),
            authority: Field::fixed(":authority", "localhost"),
        }
    }

    pub(super) fn new(agent: String, authority: String) -> Self {
        Self { agent: Field::new("user-agent", agent), authority: Field::new(":authority", authority) }
    }

    fn head(&self, method: &'static str, timeout: Option<Duration>) -> Vec<Field> {
        let mut head = vec![
            Field::fixed(":method", "POST"),
            Field::fixed(":scheme", "http"),
            Field::fixed(":path", method),
            self.authority.clone(),
            Field::fixed("content-type", grpc::GRPC_CONTENT_TYPE),
            Field::fixed("te", "trailers"),
            self.agent.clone(),
        ];
        if let Some(timeout) = timeout {
            head.push(Field::new("grpc-timeout", grpc::write_timeout(timeout)));
        }
        head
    }
}
