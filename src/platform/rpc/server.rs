//! The server: a Unix socket, and what its user answers with.

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

/// How much clients may make a server keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Bytes of one request message.
    pub message: u32,
    /// Bytes of all unanswered requests on one connection.
    pub connection: usize,
    pub connections: usize,
}

impl Default for ServerLimits {
    /// For sockets that plugins and monitors of this node call: their requests are a few hundred bytes.
    fn default() -> Self {
        Self { message: 64 * 1024, connection: 256 * 1024, connections: 32 }
    }
}

impl ServerLimits {
    /// For servers that play a container runtime: the message limit of most gRPC servers.
    pub const fn large() -> Self {
        Self { message: 4 * 1024 * 1024, connection: usize::MAX, connections: 100 }
    }
}

/// A socket that is listened on.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    limits: ServerLimits,
}

impl Server {
    /// Fails when the path is taken: a socket left behind is for the caller to remove.
    pub fn bind(path: &Path) -> io::Result<Self> {
        Ok(Self { listener: UnixListener::bind(path)?, limits: ServerLimits::default() })
    }

    /// Binds once `prepare`, which runs on the blocking pool, has made the path free. Tries again until both succeed.
    pub(crate) async fn bind_prepared(
        path: &Path,
        prepare: impl Fn() -> io::Result<()> + Clone + Send + 'static,
    ) -> Self {
        let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
        loop {
            match rt::blocking(prepare.clone()).await.and_then(|()| Self::bind(path)) {
                Ok(server) => return server,
                Err(error) => log!(error, "failed to bind a socket", socket = path.display(), error = error),
            }
            rt::sleep(backoff.next_wait()).await;
        }
    }

    pub fn with_limits(self, limits: ServerLimits) -> Self {
        Self { limits, ..self }
    }

    /// The next connection, as it is: for [`serve_connection`](super::serve_connection), or for anything else.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }

    /// Answers the calls of every client until the future is dropped.
    pub async fn serve(&self, handler: Handler) -> Infallible {
        serve_accepted(async || self.accept().await, self.limits, handler).await
    }
}

/// Serves the connections that `accept` gives. A client beyond the limit displaces the oldest one that waits for no
/// answer; it is turned away where all wait.
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
                // The process may have no descriptors left for a while.
                log!(error, "failed to accept a client", error = error);
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
            // A client that fails has only itself to tell.
            let _ = connection.serve().await;
        });
        open.push_back(Open { is_busy, task });
    }
}

/// A connection that is being served.
struct Open {
    /// A handler is at work for it.
    is_busy: Rc<Cell<bool>>,
    task: Task<()>,
}

const ACCEPT_RETRY: Duration = Duration::from_secs(1);
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);
