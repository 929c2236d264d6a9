//! A call as the server hands it to its user, and the reply.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use crate::platform::rt::UnixStream;
use crate::protocol::grpc::Status;

/// A call that came in.
#[derive(Debug)]
pub struct Request {
    /// The path, as `/runtime.v1.RuntimeService/Version`.
    pub method: String,
    pub message: Vec<u8>,
    /// How long the caller waits, if it said so.
    pub timeout: Option<Duration>,
    pub wire: Wire,
}

/// What a call is answered with; an error is a `Status` instead.
#[derive(Debug)]
pub enum Reply {
    Message(Vec<u8>),
    /// Each message as it comes. The call ends well when the channel is closed, and with the first error.
    Stream(async_channel::Receiver<Result<Vec<u8>, Status>>),
}

/// Answers the calls. A call that its caller gives up is dropped at its next await.
pub type Handler = Rc<dyn Fn(Request) -> Pin<Box<dyn Future<Output = Result<Reply, Status>>>>>;

/// Makes a [`Handler`] of an async function.
pub fn handler<F>(answer: impl Fn(Request) -> F + 'static) -> Handler
where
    F: Future<Output = Result<Reply, Status>> + 'static,
{
    Rc::new(move |request| Box::pin(answer(request)))
}

/// The connection that a call came on, for a server that has to treat its clients badly.
#[derive(Clone)]
pub struct Wire {
    stream: UnixStream,
    left: Rc<Cell<usize>>,
}

impl Wire {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, left: Rc::new(Cell::new(usize::MAX)) }
    }

    /// Closes the connection when `len` more bytes have left.
    pub fn cut_after(&self, len: usize) {
        self.left.set(len);
    }

    /// The socket itself. What is written to it comes between the bytes of the protocol.
    pub fn stream(&self) -> UnixStream {
        self.stream.clone()
    }

    pub(super) fn left(&self) -> usize {
        self.left.get()
    }

    pub(super) fn written(&self, len: usize) {
        if self.left.get() != usize::MAX {
            self.left.set(self.left.get().saturating_sub(len));
        }
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wire")
    }
}
