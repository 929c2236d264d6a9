//! The client: calls to one Unix socket over a connection that is made on demand.

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Error;
use super::call::{Call, Caller, ResponseMode};
use super::connector::{Attempt, Connector, live};
use super::link::{Link, Ongoing};
use super::socket_watch::{self, Identity};
use crate::platform::rt::{self, UnixStream};
use crate::protocol::grpc;
use crate::types::time::Backoff;

/// A handle on the connection to one endpoint. Clones share it.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Rc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    endpoint: Arc<str>,
    /// Longest message of a response.
    limit: u32,
    connector: Rc<Connector<Call>>,
    /// The socket at the last attempt to connect.
    tried: Rc<Cell<Option<Identity>>>,
}

impl Client {
    /// `endpoint` is `unix:///path` or a path. Connects on the first call. Responses have gRPC's usual limit.
    pub fn new(endpoint: &str) -> Self {
        Self::with_limit(endpoint, grpc::USUAL_LIMIT)
    }

    /// As [`Client::new`], with responses of up to `limit` bytes.
    pub fn with_limit(endpoint: &str, limit: u32) -> Self {
        let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
        let inner = Inner {
            path: PathBuf::from(path),
            endpoint: Arc::from(endpoint),
            limit,
            connector: Rc::new(Connector::new(Backoff::new(BACKOFF_FIRST, BACKOFF_MOST), 0.0)),
            tried: Rc::default(),
        };
        Self { inner: Rc::new(inner) }
    }

    /// A unary call. `method` is the path, such as `/runtime.v1.RuntimeService/Version`. The call ends within
    /// `timeout`; dropping the future cancels it.
    pub async fn unary(&self, method: &'static str, request: Vec<u8>, timeout: Duration) -> Result<Vec<u8>, Error> {
        self.unary_call(method, request, timeout, ResponseMode::One).await
    }

    /// As [`Client::unary`], but keeps only the first `most` bytes of each string in the response. The rest is dropped
    /// as it arrives.
    pub async fn unary_cut(
        &self,
        method: &'static str,
        request: Vec<u8>,
        timeout: Duration,
        most: usize,
    ) -> Result<Vec<u8>, Error> {
        self.unary_call(method, request, timeout, ResponseMode::Cut { most }).await
    }

    async fn unary_call(
        &self,
        method: &'static str,
        request: Vec<u8>,
        timeout: Duration,
        answers: ResponseMode,
    ) -> Result<Vec<u8>, Error> {
        let request = grpc::frame_message(request).map_err(|_| Error::NeverSent)?;
        let begun = rt::now();
        match self.unary_once(method, request.clone(), timeout, answers).await {
            // The peer was closing the connection when the call began: try the next connection once.
            Err(Error::NeverSent) => {
                self.unary_once(method, request, timeout.saturating_sub(rt::elapsed(begun)), answers).await
            }
            outcome => outcome,
        }
    }

    async fn unary_once(
        &self,
        method: &'static str,
        request: Vec<u8>,
        timeout: Duration,
        answers: ResponseMode,
    ) -> Result<Vec<u8>, Error> {
        let begun = rt::now();
        let Ok(link) = rt::deadline(timeout, self.inner.link()).await else {
            let timed_out = || connect_error(&self.inner.endpoint, io::ErrorKind::TimedOut.into());
            return Err(self.inner.connector.failure().unwrap_or_else(timed_out));
        };
        let left = timeout.saturating_sub(rt::elapsed(begun));
        let mut ongoing = link?.call(method, request, Some(left), Call::new(answers, self.inner.limit))?;
        match rt::deadline(left, ongoing.only()).await {
            Ok(answer) => answer,
            Err(rt::Elapsed) => Err(ongoing.give_up()),
        }
    }

    /// A server-streaming call. Returns once the request is queued.
    pub async fn server_streaming(&self, method: &'static str, request: Vec<u8>) -> Result<Streaming, Error> {
        let request = grpc::frame_message(request).map_err(|_| Error::NeverSent)?;
        let link = self.inner.link().await?;
        let ongoing = link.call(method, request, None, Call::new(ResponseMode::Many, self.inner.limit))?;
        Ok(Streaming { ongoing, _client: self.clone() })
    }

    /// Watches the connection being made and lost from now on.
    pub fn watch(&self) -> Watch {
        Watch { client: self.clone(), seen: self.inner.connector.changed.changes() }
    }
}

/// The messages of a server-streaming call. Dropping it cancels the call.
#[derive(Debug)]
pub struct Streaming {
    ongoing: Ongoing<Call>,
    /// Keeps the connection open.
    _client: Client,
}

impl Streaming {
    /// The next message; `None` once the call has ended successfully. Has no timeout.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        self.ongoing.next().await
    }
}

/// An observer of the connection.
#[derive(Debug)]
pub struct Watch {
    client: Client,
    /// Number of changes reported. None is skipped.
    seen: u64,
}

impl Watch {
    /// Waits for the next change: `true` if the connection was made, `false` if it was lost.
    pub async fn changed(&mut self) -> bool {
        self.client.inner.connector.changed.beyond(self.seen).await;
        self.seen += 1;
        // Starts disconnected, and each change toggles the state.
        self.seen % 2 == 1
    }
}

impl Inner {
    async fn link(&self) -> Result<Rc<Link<Call>>, Error> {
        let connect = |attempt| {
            let (connector, tried) = (Rc::downgrade(&self.connector), Rc::clone(&self.tried));
            rt::spawn(run(connector, attempt, Arc::clone(&self.endpoint), self.path.clone(), tried))
        };
        self.connector.link(connect).await
    }
}

fn connect_error(endpoint: &Arc<str>, cause: io::Error) -> Error {
    Error::Connect { endpoint: Arc::clone(endpoint), cause: Arc::new(cause) }
}

/// The life of one connection, from the attempt to the loss.
async fn run(
    connector: Weak<Connector<Call>>,
    attempt: Rc<Attempt<Call>>,
    endpoint: Arc<str>,
    path: PathBuf,
    tried: Rc<Cell<Option<Identity>>>,
) {
    if let Some(moment) = attempt.not_before {
        wait(&connector, &path, tried.get(), moment).await;
    }
    tried.set(Identity::of(&path));
    let connected = rt::deadline(CONNECT, UnixStream::connect(&path)).await;
    match connected.unwrap_or_else(|rt::Elapsed| Err(io::ErrorKind::TimedOut.into())) {
        Ok(stream) => {
            let unreachable = |cause| connect_error(&endpoint, cause);
            live(&connector, &attempt, Caller::to_local(), stream, CONNECT, unreachable).await;
        }
        Err(cause) => {
            if let Some(connector) = connector.upgrade() {
                connector.failed(&attempt, connect_error(&endpoint, cause));
            }
        }
    }
}

/// Waits until `moment`, or until the socket is recreated.
async fn wait(connector: &Weak<Connector<Call>>, path: &Path, tried: Option<Identity>, moment: Instant) {
    let renewed = async {
        socket_watch::renewed(path, tried).await;
        if let Some(connector) = connector.upgrade() {
            connector.renewed();
        }
    };
    rt::either(rt::sleep_until(moment), renewed).await;
}

const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MOST: Duration = Duration::from_secs(5);

/// For connecting the socket, and again for the peer's first bytes.
const CONNECT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::rpc::{Reply, Server, handler};

    const HOUR: Duration = Duration::from_secs(3600);

    /// A client with a back-off of an hour, and the folder of its socket.
    fn patient(name: &str) -> (Client, PathBuf) {
        let folder = std::env::temp_dir().join(format!("coracle-client-{name}-{}", std::process::id()));
        let mut client = Client::new(&folder.join("s").to_string_lossy());
        let inner = Rc::get_mut(&mut client.inner).unwrap();
        inner.connector = Rc::new(Connector::new(Backoff::new(HOUR, HOUR), 0.0));
        (client, folder)
    }

    #[test]
    fn a_new_socket_ends_the_back_off() {
        let (client, folder) = patient("comes");
        let answer = rt::block_on(async {
            let call = || client.unary("/test/Echo", b"x".to_vec(), HOUR);
            assert!(matches!(call().await, Err(Error::Connect { .. })));
            let serve = async {
                rt::yield_now().await;
                std::fs::create_dir(&folder).unwrap();
                let server = Server::bind(&folder.join("s")).unwrap();
                let echo = handler(|request| async move { Ok(Reply::Message(request.message)) });
                match server.serve(echo).await {}
            };
            rt::deadline(Duration::from_secs(30), rt::either(call(), serve)).await
        });
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(answer.unwrap().unwrap(), b"x");
    }

    #[test]
    fn a_call_during_back_off_reports_the_last_error() {
        let (client, _) = patient("tells");
        rt::block_on(async {
            for _ in 0..2 {
                let error = client.unary("/test/Echo", Vec::new(), Duration::from_millis(50)).await.unwrap_err();
                let Error::Connect { cause, .. } = error else { panic!("{error:?}") };
                assert_eq!(cause.kind(), io::ErrorKind::NotFound);
            }
        });
    }
}
