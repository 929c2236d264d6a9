//! The server: a Unix socket, and what its user answers with.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use super::serve::serve_connection;
use crate::rt::{self, Task, UnixListener, UnixStream};
use crate::wire::grpc::Status;

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

/// A socket that is listened on.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
}

impl Server {
    /// Fails when the path is taken: a socket left behind is for the caller to remove.
    pub fn bind(path: &Path) -> io::Result<Self> {
        Ok(Self { listener: UnixListener::bind(path)? })
    }

    /// The next connection, as it is: for [`serve_connection`], or for anything else.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }

    /// Answers the calls of every client until the socket fails or the future is dropped. A client beyond the
    /// hundredth is turned away.
    pub async fn serve(&self, handler: Handler) -> io::Result<()> {
        let mut connections: Vec<Task<()>> = Vec::new();
        loop {
            let stream = self.accept().await?;
            connections.retain(|connection| !connection.is_finished());
            if connections.len() < CONNECTIONS {
                let handler = Rc::clone(&handler);
                connections.push(rt::spawn(async move {
                    // A client that fails has only itself to tell.
                    let _ = serve_connection(stream, handler).await;
                }));
            }
        }
    }
}

const CONNECTIONS: usize = 100;
