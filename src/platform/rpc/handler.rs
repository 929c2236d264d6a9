//! A call as its handler gets it, and the reply.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use crate::platform::rt::UnixStream;
use crate::protocol::grpc::Status;

/// A received call.
#[derive(Debug)]
pub struct Request {
    /// The path, such as `/runtime.v1.RuntimeService/Version`.
    pub method: String,
    pub message: Vec<u8>,
    /// The caller's timeout, if it sent one.
    pub timeout: Option<Duration>,
    pub wire: Wire,
}

/// The reply to a call. An error is a `Status` instead.
#[derive(Debug)]
pub enum Reply {
    Message(Vec<u8>),
    /// Sends each message of the channel. The call succeeds when the channel is closed, and fails with the first error.
    Stream(async_channel::Receiver<Result<Vec<u8>, Status>>),
}

/// Answers the calls. A call that the client cancels is dropped at its next await.
pub type Handler = Rc<dyn Fn(Request) -> Pin<Box<dyn Future<Output = Result<Reply, Status>>>>>;

/// Makes a [`Handler`] from an async function.
pub fn handler<F>(respond: impl Fn(Request) -> F + 'static) -> Handler
where
    F: Future<Output = Result<Reply, Status>> + 'static,
{
    Rc::new(move |request| Box::pin(respond(request)))
}

/// A handler that never answers the messages for which `hangs` holds, and the number of these.
#[cfg(test)]
pub(crate) fn hanging(hangs: impl Fn(&[u8]) -> bool + 'static) -> (Handler, Rc<Cell<usize>>) {
    let hung = Rc::new(Cell::new(0));
    let count = Rc::clone(&hung);
    let answer = handler(move |request| {
        let is_hanging = hangs(&request.message);
        count.set(count.get() + usize::from(is_hanging));
        async move {
            if is_hanging {
                std::future::pending::<()>().await;
            }
            Ok(Reply::Message(Vec::new()))
        }
    });
    (answer, hung)
}

/// The connection of a call, for servers in tests that misbehave.
#[derive(Clone)]
pub struct Wire {
    stream: UnixStream,
    bytes_left: Rc<Cell<usize>>,
}

impl Wire {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, bytes_left: Rc::new(Cell::new(usize::MAX)) }
    }

    /// Closes the connection after `len` more bytes have been sent.
    pub fn cut_after(&self, len: usize) {
        self.bytes_left.set(len);
    }

    /// The socket itself. Bytes written to it arrive between those of the protocol.
    pub fn stream(&self) -> UnixStream {
        self.stream.clone()
    }

    pub(super) fn bytes_left(&self) -> usize {
        self.bytes_left.get()
    }

    pub(super) fn written(&self, len: usize) {
        if self.bytes_left.get() != usize::MAX {
            self.bytes_left.set(self.bytes_left.get().saturating_sub(len));
        }
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wire")
    }
}
