//! The server: a Unix socket, and the handler of its calls.

use std::cell::Cell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use super::serve::Connection;
use crate::platform::rt::{self, Task, UnixListener, UnixStream};
use crate::protocol::grpc::Status;
use crate::types::time::Backoff;

/// A received call.
#[derive(Debug)]
pub struct Request {
    /// The path, such as `/runtime.v1.RuntimeService/Version`.
    pub method: String,
    pub message: Vec<u8>,
    /// The client's timeout, if it sent one.
    pub timeout: Option<Duration>,
    pub wire: Wire,
}

/// A successful reply; a failure is a `Status` instead.
#[derive(Debug)]
pub enum Reply {
    Message(Vec<u8>),
    /// Messages sent as they arrive. The call succeeds when the channel is closed, and fails with the first error.
    Stream(async_channel::Receiver<Result<Vec<u8>, Status>>),
}

/// Handles calls. If the client cancels a call, its future is dropped.
pub type Handler = Rc<dyn Fn(Request) -> Pin<Box<dyn Future<Output = Result<Reply, Status>>>>>;

/// Makes an async function a [`Handler`].
pub fn handler<F>(answer: impl Fn(Request) -> F + 'static) -> Handler
where
    F: Future<Output = Result<Reply, Status>> + 'static,
{
    Rc::new(move |request| Box::pin(answer(request)))
}

/// The connection of a call, for a test server that misbehaves.
#[derive(Clone)]
pub struct Wire {
    stream: UnixStream,
    left: Rc<Cell<usize>>,
}

impl Wire {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, left: Rc::new(Cell::new(usize::MAX)) }
    }

    /// Closes the connection after `len` more bytes.
    pub fn cut_after(&self, len: usize) {
        self.left.set(len);
    }

    /// The socket. Bytes written to it are inserted between those of the protocol.
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

/// Bounds on the memory that clients can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Bytes of one request message.
    pub message: u32,
    /// Bytes of all unanswered requests on one connection.
    pub connection: usize,
    pub connections: usize,
}

impl Default for ServerLimits {
    /// For sockets that plugins and monitors on this node call: their requests have a few hundred bytes.
    fn default() -> Self {
        Self { message: 64 * 1024, connection: 256 * 1024, connections: 32 }
    }
}

impl ServerLimits {
    /// For fake container runtimes: the message limit of most gRPC servers.
    pub const fn large() -> Self {
        Self { message: 4 * 1024 * 1024, connection: usize::MAX, connections: 100 }
    }
}

/// A listening socket.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    limits: ServerLimits,
}

impl Server {
    /// Fails if the path exists: the caller must remove a stale socket.
    pub fn bind(path: &Path) -> io::Result<Self> {
        Ok(Self { listener: UnixListener::bind(path)?, limits: ServerLimits::default() })
    }

    /// Binds after `prepare`, which runs on the blocking pool, has removed a stale socket. Retries until both succeed.
    pub(crate) async fn bind_prepared(
        path: &Path,
        prepare: impl Fn() -> io::Result<()> + Clone + Send + 'static,
    ) -> Self {
        let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
        loop {
            match rt::blocking(prepare.clone()).await.and_then(|()| Self::bind(path)) {
                Ok(server) => return server,
                Err(error) => log!(error, "failed to bind socket", socket = path.display(), error = error),
            }
            rt::sleep(backoff.next_wait()).await;
        }
    }

    pub fn with_limits(self, limits: ServerLimits) -> Self {
        Self { limits, ..self }
    }

    /// Accepts the next connection, for [`serve_connection`](super::serve_connection) or any other use.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }

    /// Serves all clients until the future is dropped.
    pub async fn serve(&self, handler: Handler) -> Infallible {
        serve_accepted(async || self.accept().await, self.limits, handler).await
    }
}

/// Serves the connections that `accept` returns. At the limit, a new client displaces the oldest one without a running
/// handler, or is refused if there is none.
pub(super) async fn serve_accepted(
    mut accept: impl AsyncFnMut() -> io::Result<UnixStream>,
    limits: ServerLimits,
    handler: Handler,
) -> Infallible {
    let mut open: VecDeque<Open> = VecDeque::new();
    loop {
        let stream = match accept().await {
            Ok(stream) => stream,
            Err(error) => {
                // The process may be out of file descriptors for a while.
                log!(error, "failed to accept connection", error = error);
                rt::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        open.retain(|open| !open.task.is_finished());
        if open.len() >= limits.connections {
            let Some(idle) = open.iter().position(|open| !open.is_busy.get()) else { continue };
            open.remove(idle);
        }
        let connection = Connection::new(stream, Rc::clone(&handler), limits);
        let is_busy = connection.is_busy();
        let task = rt::spawn(async move {
            // An error concerns only this client, which is gone.
            let _ = connection.serve().await;
        });
        open.push_back(Open { is_busy, task });
    }
}

/// A connection being served.
struct Open {
    /// Whether a handler is running for it.
    is_busy: Rc<Cell<bool>>,
    task: Task<()>,
}

const ACCEPT_RETRY: Duration = Duration::from_secs(1);
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);
