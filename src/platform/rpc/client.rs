//! The client: calls to one Unix socket over connections that are made on demand.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::Error;
use super::call::{Call, ResponseMode};
use super::client_connections::Connections;
use super::cut_answer::CutAnswer;
use super::link::Ongoing;
use crate::platform::rt::{self, Turn, Turns};
use crate::protocol::grpc;

/// A handle on the connections to one endpoint. Clones share them.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Rc<Inner>,
    /// The tenant whose calls these are, such as a pod's uid; `None`: the node's own.
    owner: Option<Rc<str>>,
}

#[derive(Debug)]
struct Inner {
    connections: Connections,
    /// Longest message of a response.
    limit: u32,
    /// For calls of tenants.
    turns: Rc<Turns>,
    /// Bytes that long cut answers claim.
    long_answers: Rc<Cell<usize>>,
}

/// Most calls of tenants at a time, and those of one.
const MAX_TENANT_CALLS: usize = 512;
/// A quarter: the calls of one pod leave room for others, however long they hang.
const MAX_CALLS_OF_TENANT: usize = 128;

impl Client {
    /// `endpoint` is `unix:///path` or a path. Connects on the first call. Responses have gRPC's usual limit.
    pub fn new(endpoint: &str) -> Self {
        Self::with_limit(endpoint, grpc::USUAL_MESSAGE_BYTES)
    }

    /// As [`Client::new`], with responses of up to `limit` bytes.
    pub fn with_limit(endpoint: &str, limit: u32) -> Self {
        let inner = Inner {
            connections: Connections::new(endpoint),
            limit,
            turns: Turns::new(MAX_TENANT_CALLS, MAX_CALLS_OF_TENANT),
            long_answers: Rc::default(),
        };
        Self { inner: Rc::new(inner), owner: None }
    }

    /// A handle whose unary calls are those of a tenant. They leave a share of the connection to the node's own calls,
    /// and wait for their turn, at most as long as the call may take, if the tenant or all of them have too many.
    pub fn of(&self, tenant: &str) -> Self {
        Self { inner: Rc::clone(&self.inner), owner: Some(tenant.into()) }
    }

    /// A unary call. `method` is the path, such as `/runtime.v1.RuntimeService/Version`. The call ends within
    /// `timeout`; dropping the future cancels it.
    pub async fn unary(&self, method: &'static str, request: Vec<u8>, timeout: Duration) -> Result<Vec<u8>, Error> {
        self.unary_call(method, request, timeout, ResponseMode::One).await
    }

    /// As [`Client::unary`], but keeps only the first `limit` bytes of each string in the response. The rest is dropped
    /// as it arrives.
    pub async fn unary_truncated(
        &self,
        method: &'static str,
        request: Vec<u8>,
        timeout: Duration,
        limit: usize,
    ) -> Result<Vec<u8>, Error> {
        self.unary_call(method, request, timeout, ResponseMode::Cut { limit }).await
    }

    async fn unary_call(
        &self,
        method: &'static str,
        request: Vec<u8>,
        timeout: Duration,
        answers: ResponseMode,
    ) -> Result<Vec<u8>, Error> {
        let request = grpc::frame_message(request).map_err(|_| Error::NeverSent)?;
        let _turn = self.wait_for_turn(timeout).await?;
        let begun = rt::now();
        match self.unary_once(method, request.clone(), timeout, answers).await {
            // The peer was closing the connection when the call began: try the next connection once.
            Err(Error::NeverSent) => {
                self.unary_once(method, request, timeout.saturating_sub(rt::elapsed(begun)), answers).await
            }
            outcome => outcome,
        }
    }

    /// The wait for other calls of tenants does not count against the call's own time.
    async fn wait_for_turn(&self, longest: Duration) -> Result<Option<Turn>, Error> {
        let Some(owner) = &self.owner else { return Ok(None) };
        let turn = rt::deadline(longest, self.inner.turns.take(owner)).await;
        turn.map(Some).map_err(|rt::Elapsed| Error::NeverSent)
    }

    async fn unary_once(
        &self,
        method: &'static str,
        request: Vec<u8>,
        timeout: Duration,
        answers: ResponseMode,
    ) -> Result<Vec<u8>, Error> {
        let begun = rt::now();
        let connections = &self.inner.connections;
        let Ok(link) = rt::deadline(timeout, connections.link(self.owner.is_some())).await else {
            return Err(connections.failure());
        };
        let time_left = timeout.saturating_sub(rt::elapsed(begun));
        let mut call = Call::new(answers, self.inner.limit);
        call.is_of_tenant = self.owner.is_some();
        if let ResponseMode::Cut { limit } = answers {
            call.cut = Some(CutAnswer::new(limit, Rc::clone(&self.inner.long_answers)));
        }
        let mut ongoing = link?.call(method, request, Some(time_left), call)?;
        match rt::deadline(time_left, ongoing.only()).await {
            Ok(response) => response,
            Err(rt::Elapsed) => Err(ongoing.give_up()),
        }
    }

    /// A server-streaming call. Returns once the request is queued.
    pub async fn server_streaming(&self, method: &'static str, request: Vec<u8>) -> Result<Streaming, Error> {
        let request = grpc::frame_message(request).map_err(|_| Error::NeverSent)?;
        let link = self.inner.connections.link(false).await?;
        let ongoing = link.call(method, request, None, Call::new(ResponseMode::Many, self.inner.limit))?;
        Ok(Streaming { ongoing, _client: self.clone() })
    }

    /// Watches the first connection being made and lost from now on.
    pub fn watch(&self) -> Watch {
        Watch { client: self.clone(), generation: self.inner.connections.first.changed.changes() }
    }

    #[cfg(test)]
    pub(super) fn connections(&self) -> &Connections {
        &self.inner.connections
    }
}

/// The messages of a server-streaming call. Dropping it cancels the call.
#[derive(Debug)]
pub struct Streaming {
    ongoing: Ongoing<Call>,
    /// Keeps the connections open.
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
    generation: u64,
}

impl Watch {
    /// Waits for the next change: `true` if the connection was made, `false` if it was lost.
    pub async fn changed(&mut self) -> bool {
        self.client.inner.connections.first.changed.beyond(self.generation).await;
        self.generation += 1;
        // Starts disconnected, and each change toggles the state.
        self.generation % 2 == 1
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::PathBuf;

    use super::*;
    use crate::platform::rpc::{Connector, Reply, Server, handler};
    use crate::types::time::Backoff;

    const HOUR: Duration = Duration::from_secs(3600);

    /// A client with a back-off of an hour, and the folder of its socket.
    fn patient(name: &str) -> (Client, PathBuf) {
        let folder = std::env::temp_dir().join(format!("coracle-client-{name}-{}", std::process::id()));
        let mut client = Client::new(&folder.join("s").to_string_lossy());
        let inner = Rc::get_mut(&mut client.inner).unwrap();
        inner.connections.first = Rc::new(Connector::new(Backoff::new(HOUR, HOUR), 0.0));
        (client, folder)
    }

    #[test]
    fn new_socket_ends_the_back_off() {
        let (client, folder) = patient("comes");
        let response = rt::block_on(async {
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
        assert_eq!(response.unwrap().unwrap(), b"x");
    }

    #[test]
    fn call_during_back_off_reports_the_last_error() {
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
