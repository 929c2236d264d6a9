//! The client: requests to one API server over connections that are made on demand.

use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::ApiError;
use super::connections::Connections;
use super::exchange::{Exchange, Link, Ongoing};
use super::gate::{Gate, GatePass, Opening, Rank};
use super::history::{self, History};
use super::kubeconfig::KubeconfigSource;
use super::request::Request;
use super::retry;
use super::traffic::Traffic;
use super::transport::{Credentials, Transport};
use crate::platform::net::Dialer;
use crate::platform::rpc::Signal;
use crate::platform::rt;
use crate::protocol::gzip;
use crate::types::api::{Decode, ObjectText, decode};
use crate::types::metrics::{self, Count, Timed};

/// A handle on the connections to the API server. Clones share them.
#[derive(Clone)]
pub(crate) struct Client {
    inner: Rc<Inner>,
}

struct Inner {
    connections: Connections,
    /// Notified on each 401.
    unauthorized: Signal,
}

/// A successful response.
#[derive(Debug)]
pub(crate) struct ApiResponse {
    content: Vec<u8>,
}

/// The content of a watch or another response without end.
pub(crate) struct Stream {
    ongoing: Ongoing,
    _client: Client,
    _pass: Option<GatePass>,
}

/// Upper bound on a response: some thousand pods.
pub(super) const MAX_API_RESPONSE_BYTES: usize = 32 << 20;
/// Minimum interval between reconnects with reloaded credentials after a 401.
const CREDENTIAL_RENEW_INTERVAL: Duration = Duration::from_secs(10);
/// Streams of tenants that no watch takes: for tokens, claims, objects without a watch, and reviews.
const MAX_TENANT_SHORT_REQUESTS: usize = 75;

impl Client {
    /// Connects on the first request, and only while the gate admits requests.
    pub(crate) fn behind(gate: Rc<Gate>, kubeconfig: PathBuf, dialer: Dialer) -> Self {
        Self::with(gate, Rc::default(), kubeconfig.as_path().into(), dialer, Credentials::Kubeconfig)
    }

    /// A client that is no node's: requests wait for nothing.
    pub(crate) fn of_operator(kubeconfig: KubeconfigSource, dialer: Dialer) -> Self {
        let gate = Gate::new(Opening::Open(Rank::Event), None);
        Self::with(gate, Rc::default(), kubeconfig, dialer, Credentials::Kubeconfig)
    }

    /// A client with another kubeconfig behind the same gate. Both count into the same traffic.
    pub(crate) fn beside(&self, kubeconfig: PathBuf, dialer: Dialer) -> Self {
        let (gate, traffic) = (Rc::clone(self.gate()), Rc::clone(&self.transport().traffic));
        Self::with(gate, traffic, kubeconfig.as_path().into(), dialer, Credentials::Kubeconfig)
    }

    /// A client of the same server for requests of others, which have credentials of their own. It has connections of
    /// its own behind the same gate, and counts into the same traffic.
    pub(crate) fn for_others(&self, dialer: Dialer) -> Self {
        let (gate, traffic) = (Rc::clone(self.gate()), Rc::clone(&self.transport().traffic));
        Self::with(gate, traffic, self.transport().kubeconfig.clone(), dialer, Credentials::Requests)
    }

    fn with(
        gate: Rc<Gate>,
        traffic: Rc<Traffic>,
        kubeconfig: KubeconfigSource,
        dialer: Dialer,
        credentials: Credentials,
    ) -> Self {
        let transport = Transport::new(kubeconfig, dialer, credentials, gate, traffic);
        let inner = Inner { connections: Connections::new(transport), unauthorized: Signal::default() };
        Self { inner: Rc::new(inner) }
    }

    /// Sends a request and returns its response within the request's limit. Dropping the future cancels it.
    ///
    /// Time spent waiting at the gate does not count against the limit.
    pub(crate) async fn send(&self, request: &Request) -> Result<ApiResponse, ApiError> {
        let pass = self.pass(request).await?;
        let retried = |error: &ApiError| {
            let code = error.code().map_or_else(|| "<error>".to_owned(), |code| code.to_string());
            metrics::count(Count::RestRetries, &[&code, &self.transport().server.borrow(), request.method()]);
        };
        let response = in_time(request, async |left| self.send_once(request, left).await, retried).await;
        self.gate().on_ended(request.rank, has_server_responded(&response));
        drop(pass);
        response
    }

    /// `None` for a request that does not wait: a client of the kubelet API may cause them without a pause, and the gate
    /// would never be quiet.
    async fn pass(&self, request: &Request) -> Result<Option<GatePass>, ApiError> {
        if request.waits {
            self.gate().admitted(request.rank).await;
            return Ok(Some(self.gate().passes(request.rank)));
        }
        match self.gate().admits_now(request.rank) {
            true => Ok(None),
            false => Err(ApiError::Unreachable("API server sync is paused: see coracle.yaml".into())),
        }
    }

    /// Sends a request whose response has no end. Returns once the server has accepted it.
    pub(crate) async fn open(&self, request: &Request) -> Result<Stream, ApiError> {
        let pass = self.pass(request).await?;
        let opened = self.open_in_time(request).await;
        self.gate().on_ended(request.rank, has_server_responded(&opened));
        // A round ends when all of its requests have; an open gate never waits for a stream.
        let pass = pass.filter(|_| !self.gate().is_open());
        opened.map(|ongoing| Stream { ongoing, _client: self.clone(), _pass: pass })
    }

    async fn open_in_time(&self, request: &Request) -> Result<Ongoing, ApiError> {
        let (mut ongoing, begun) = self.begin(request, request.limit).await?;
        let time_left = request.limit.saturating_sub(rt::elapsed(begun));
        let head = rt::deadline(time_left, ongoing.head()).await;
        let Ok(head) = head else { return Err(self.give_up(ongoing, begun)) };
        let head = head?;
        if head.is_success() {
            return Ok(ongoing);
        }
        let time_left = request.limit.saturating_sub(rt::elapsed(begun));
        match rt::deadline(time_left, read_body(&mut ongoing)).await {
            Ok(content) => Err(self.refused(head.error(&content?), &ongoing.link)),
            Err(rt::Elapsed) => Err(self.give_up(ongoing, begun)),
        }
    }

    async fn send_once(&self, request: &Request, timeout: Duration) -> Result<ApiResponse, ApiError> {
        let end = rt::now() + timeout;
        let (mut ongoing, begun) = self.begin(request, timeout).await?;
        let response = async {
            let head = ongoing.head().await?;
            Ok((head, read_body(&mut ongoing).await?))
        };
        let response = rt::deadline(end.saturating_duration_since(rt::now()), response).await;
        let Ok(response) = response else { return Err(self.give_up(ongoing, begun)) };
        let (head, content) = response?;
        self.transport().overload.record_response_time(rt::elapsed(begun));
        self.note(request, head.status, begun);
        let content = match head.is_gzip {
            true => {
                gzip::inflate(&content, MAX_API_RESPONSE_BYTES).map_err(|error| ApiError::Malformed(error.into()))?
            }
            false => content,
        };
        match head.is_success() {
            true => Ok(ApiResponse { content }),
            false => Err(self.refused(head.error(&content), &ongoing.link)),
        }
    }

    fn is_admitted(&self, request: &Request) -> bool {
        let (gate, rank) = (self.gate(), request.rank);
        if request.waits { gate.admits(rank) } else { gate.admits_now(rank) }
    }

    fn note(&self, request: &Request, code: u16, begun: Instant) {
        let (host, method) = (self.transport().server.borrow(), request.method());
        metrics::count(Count::RestRequests, &[&code.to_string(), &host, method]);
        metrics::took(Timed::RestRequests, &[&host, method], rt::elapsed(begun));
    }

    async fn begin(&self, request: &Request, timeout: Duration) -> Result<(Ongoing, Instant), ApiError> {
        if !self.is_admitted(request) {
            return Err(ApiError::NeverSent);
        }
        self.transport().refresh_token().await;
        let Ok(link) = rt::deadline(timeout, self.inner.connections.link(request.requester)).await else {
            return Err(self.failure().unwrap_or(ApiError::NeverSent));
        };
        let (link, begun) = (link?, rt::now());
        // The new connection may be the first one after an absence, which narrows the gate.
        if !self.is_admitted(request) {
            return Err(ApiError::NeverSent);
        }
        let head = request.head(&link.caller);
        Ok((link.begin(head, request.content().to_vec(), Exchange::new(request.requester))?, begun))
    }

    /// Abandons a request at its deadline. A connection on which nothing has arrived since the request is dead, as are
    /// its watches: it is closed, and the next request makes a new one.
    pub(super) fn give_up(&self, ongoing: Ongoing, begun: Instant) -> ApiError {
        let error = if ongoing.is_unseen() { ApiError::NeverSent } else { ApiError::Timeout };
        self.transport().overload.shows();
        let link = Rc::clone(&ongoing.link);
        drop(ongoing);
        if link.last_received.get() <= begun {
            link.end(ApiError::Lost("no data received".into()));
        }
        error
    }

    /// Closes the connection after a 401, as the credentials on disk may be newer than those of the connection.
    fn refused(&self, error: ApiError, link: &Link) -> ApiError {
        if matches!(&error, ApiError::Refused(status) if status.code == 429 || status.retry_after.is_some()) {
            self.transport().overload.shows();
        }
        if error.is_unauthorized() {
            self.inner.unauthorized.notify();
        }
        if error.is_unauthorized() && rt::elapsed(link.made) >= CREDENTIAL_RENEW_INTERVAL {
            self.transport().exec.forget();
            link.end(ApiError::Lost("client is no longer authorized".into()));
        }
        error
    }

    /// Closes the connections after certificate, token or address have changed. The next request uses the new ones.
    pub(crate) fn renew(&self) {
        self.inner.connections.close(&ApiError::Lost("address or credentials changed".into()));
        self.inner.connections.reset_backoff();
    }

    /// The number of watches that tenants' requests may hold, with some streams left for short requests.
    pub(crate) fn max_watches(&self) -> usize {
        self.inner.connections.max_tenant_streams().saturating_sub(MAX_TENANT_SHORT_REQUESTS)
    }

    /// Resets the back-off.
    pub(crate) fn reset_backoff(&self) {
        self.inner.connections.reset_backoff();
    }

    /// Notified on each 401.
    pub(crate) fn unauthorized(&self) -> &Signal {
        &self.inner.unauthorized
    }

    /// Host and port; empty before the first attempt.
    pub(crate) fn server(&self) -> String {
        self.transport().server.borrow().clone()
    }

    /// The digests of the CAs trusted by the connection; empty before the first one, and if any certificate is
    /// accepted.
    pub(crate) fn authorities(&self) -> Vec<String> {
        self.transport().authorities.borrow().clone()
    }

    /// Restarts all reflectors, because what they watch is no longer true.
    pub(crate) fn begin_history(&self) {
        self.transport().begin_history();
    }

    /// Restarts all reflectors if the version of a write shows that the server was restored; see [`History::breaks_at`].
    pub(crate) fn on_written(&self, history: &mut History, version: Option<u64>, watched: Option<u64>) {
        if history.breaks_at(self.histories().changes(), version, watched) {
            self.on_restored();
        }
    }

    /// The server was restored to an older state, or its watches are wrong.
    pub(crate) fn on_restored(&self) {
        log!(warn, "API server was restored to an older state, relisting all objects");
        self.begin_history();
    }

    /// The newest resource version that watches have shown.
    pub(crate) fn watched_version(&self) -> Option<u64> {
        self.transport().watched.get()
    }

    /// A list or a watch has shown this version.
    pub(super) fn note_watched(&self, version: Option<u64>) {
        let watched = &self.transport().watched;
        watched.set(watched.get().max(version));
    }

    /// Notified when the server's history of objects has changed.
    pub(crate) fn histories(&self) -> &Signal {
        &self.transport().histories
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.inner.connections.is_connected()
    }

    /// Why there is no connection, if an attempt has failed.
    pub(crate) fn failure(&self) -> Option<ApiError> {
        self.inner.connections.failure()
    }

    pub(crate) fn traffic(&self) -> &Traffic {
        &self.transport().traffic
    }

    /// Waits until there is a connection, or until there is none.
    pub(crate) async fn connection(&self, is_wanted: bool) {
        self.inner.connections.is_in_state(is_wanted).await;
    }

    pub(super) fn connections(&self) -> &Connections {
        &self.inner.connections
    }

    fn transport(&self) -> &Transport {
        self.inner.connections.transport()
    }

    /// The gate that admits requests.
    pub(crate) fn gate(&self) -> &Rc<Gate> {
        &self.transport().gate
    }
}

/// Sends a request within its limit, and repeats it after a failure that may pass. `send` gets the rest of the limit.
pub(super) async fn in_time(
    request: &Request,
    send: impl AsyncFn(Duration) -> Result<ApiResponse, ApiError>,
    retried: impl Fn(&ApiError),
) -> Result<ApiResponse, ApiError> {
    let begun = rt::now();
    let time_left = || request.limit.saturating_sub(rt::elapsed(begun));
    let mut tries = 1;
    loop {
        let error = match send(time_left()).await {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        match retry::wait(&error, request.is_idempotent(), tries, time_left(), rt::random()) {
            Some(wait) => {
                retried(&error);
                rt::sleep(wait).await;
            }
            None => return Err(error),
        }
        tries += 1;
    }
}

/// NotFound and Conflict are answers too.
fn has_server_responded<T>(result: &Result<T, ApiError>) -> bool {
    result.as_ref().map_or_else(|error| matches!(error.code(), Some(404 | 409)), |_| true)
}

async fn read_body(ongoing: &mut Ongoing) -> Result<Vec<u8>, ApiError> {
    let mut content = Vec::new();
    while let Some(more) = ongoing.content().await? {
        if content.is_empty() {
            content = more;
        } else {
            content.extend_from_slice(&more);
        }
        if content.len() > MAX_API_RESPONSE_BYTES {
            return Err(ApiError::Malformed(format!("longer than {MAX_API_RESPONSE_BYTES} bytes").into()));
        }
    }
    Ok(content)
}

impl ApiResponse {
    pub(super) fn of(content: Vec<u8>) -> Self {
        Self { content }
    }

    /// The response as text that was checked to be JSON.
    pub(crate) fn object(self) -> Result<ObjectText, ApiError> {
        ObjectText::parse(self.content).map_err(|error| ApiError::Malformed(error.to_string().into()))
    }

    pub(crate) fn json(&self) -> Result<Value, ApiError> {
        serde_json::from_slice(&self.content).map_err(|error| ApiError::Malformed(error.to_string().into()))
    }

    /// The resource version of the object in the response, if it has one; also for responses read as raw bytes.
    pub(crate) fn version(&self) -> Option<u64> {
        history::version(&self.content)
    }

    /// Decodes the response, ignoring unknown fields.
    pub(crate) fn decode<T: Decode>(&self) -> Result<T, ApiError> {
        let decoded = decode(self.json()?).map_err(|error| ApiError::Malformed(error.to_string().into()))?;
        Ok(decoded.value)
    }
}

impl Stream {
    /// The next part of the content; `None` at the end. Has no timeout.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, ApiError> {
        self.ongoing.content().await
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({:?})", self.transport().kubeconfig)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gate_is_quiet_during_a_request_that_does_not_wait() {
        let gate = Gate::new(Opening::Open(Rank::Event), None);
        let client = Client::behind(Rc::clone(&gate), PathBuf::new(), Dialer::new());
        gate.narrow(Some(Rank::Lease));
        let moved = gate.moved.changes();
        let pass = rt::block_on(client.pass(&Request::get("/api").at_once()));
        assert!(pass.is_ok() && gate.is_quiet());
        drop(pass);
        assert_eq!(gate.moved.changes(), moved);
    }
}
