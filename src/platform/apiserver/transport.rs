//! Makes connections to the API server, and what is known from the last one.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::path::Path;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use super::ApiError;
use super::access::Access;
use super::connect::{Socket, connect};
use super::exchange::{Exchange, Link, ended};
use super::exec_plugin::ExecCredentials;
use super::gate::Gate;
use super::kubeconfig::KubeconfigSource;
use super::reconnect::{Overload, ReconnectGuard, spread};
use super::request::{Caller, SharedToken};
use super::token_file::TokenFile;
use super::traffic::Traffic;
use crate::platform::net::Dialer;
use crate::platform::rpc::{Attempt, Connector, Signal, live};
use crate::platform::rt::{self, Task};
use crate::types::api::UriScheme;
use crate::types::error::ErrorChain;

/// Everything needed to connect.
pub(super) struct Transport {
    /// Loaded for each connection.
    pub(super) kubeconfig: KubeconfigSource,
    /// The credential of the kubeconfig's plugin.
    pub(super) exec: ExecCredentials,
    /// That of the kubeconfig which the last connection has loaded.
    token_file: RefCell<Option<Rc<TokenFile>>>,
    dialer: Dialer,
    credentials: Credentials,
    pub(super) gate: Rc<Gate>,
    pub(super) traffic: Rc<Traffic>,
    /// Host and port of the last attempt.
    pub(super) server: RefCell<String>,
    /// The CAs trusted by the last connection.
    pub(super) authorities: RefCell<Vec<String>>,
    /// Notified when the server's history of objects has changed.
    pub(super) histories: Signal,
    /// The newest resource version of the watches in this history.
    pub(super) watched: Cell<Option<u64>>,
    pub(super) overload: Overload,
    /// When the last connection was lost, and `hurried`'s count at that time; `None` before the first loss and while
    /// there is a connection.
    lost: Cell<Option<(Instant, u64)>>,
}

/// Whose requests the connections carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Credentials {
    /// The kubeconfig's, on the connection or in each request.
    Kubeconfig,
    /// Those of each request only. A server prefers the certificate of a connection to the token of a request.
    Requests,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionRole {
    /// Carries all requests. The renewals of the lease detect that it is dead.
    First,
    /// Carries more watches of tenants' objects, which may be silent for hours: PINGs detect that it is dead.
    Further,
}

/// From resolving the server's name to its first bytes.
const API_CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// A further connection that was silent for so long is asked for a sign of life, or closed if it has no requests
/// (client-go: `ReadIdleTimeout`).
const READ_IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the sign of life may take (client-go: `PingTimeout`).
const PING_TIMEOUT: Duration = Duration::from_secs(15);

impl Transport {
    pub(super) fn new(
        kubeconfig: KubeconfigSource,
        dialer: Dialer,
        credentials: Credentials,
        gate: Rc<Gate>,
        traffic: Rc<Traffic>,
    ) -> Rc<Self> {
        Rc::new(Self {
            kubeconfig,
            exec: ExecCredentials::default(),
            token_file: RefCell::default(),
            dialer,
            credentials,
            gate,
            traffic,
            server: RefCell::default(),
            authorities: RefCell::default(),
            histories: Signal::default(),
            watched: Cell::default(),
            overload: Overload::default(),
            lost: Cell::default(),
        })
    }

    /// Starts the life of a connection.
    pub(super) fn start(
        self: &Rc<Self>,
        connector: &Rc<Connector<Exchange>>,
        attempt: Rc<Attempt<Exchange>>,
        role: ConnectionRole,
    ) -> Task<()> {
        rt::spawn(Rc::clone(self).run(Rc::downgrade(connector), attempt, role))
    }

    /// The life of a connection, from the attempt until it is lost or the gate is shut.
    async fn run(
        self: Rc<Self>,
        connector: Weak<Connector<Exchange>>,
        attempt: Rc<Attempt<Exchange>>,
        role: ConnectionRole,
    ) {
        let shut = async {
            self.gate.shut().await;
            true
        };
        let lived = async {
            self.live(&connector, &attempt, role).await;
            false
        };
        if rt::either(lived, shut).await {
            if let Some(connector) = connector.upgrade() {
                connector.give_up(&attempt, ApiError::Lost("connection closed by sync settings".into()));
            }
        }
    }

    async fn live(&self, connector: &Weak<Connector<Exchange>>, attempt: &Attempt<Exchange>, role: ConnectionRole) {
        if let Some(time) = attempt.not_before {
            rt::sleep_until(time).await;
        }
        let (access, socket) = match self.connect().await {
            Ok(connected) => connected,
            Err(error) => {
                if let Some(connector) = connector.upgrade() {
                    connector.failed(attempt, error);
                }
                return;
            }
        };
        // In TLS 1.3 the server rejects a client certificate only in its first bytes after the handshake.
        let silent = |cause| unreachable(&access, &ended(&cause));
        let mut caller = caller(&access);
        if access.plugin_token {
            caller.token = self.exec.token();
        }
        match &access.token_file {
            Some(path) => caller.token = self.token_of_file(path, access.token.clone()),
            None => drop(self.token_file.take()),
        }
        let lives = live(connector, attempt, caller, socket, API_CONNECT_TIMEOUT, silent);
        match (role, self.credentials) {
            (ConnectionRole::First, Credentials::Kubeconfig) => {
                rt::either(lives, rt::either(self.come_back(attempt), self.renew_credential(attempt))).await;
                // Without a connection, the absence continues. With another one, such as after a GOAWAY, there is none.
                let is_replaced = connector.upgrade().is_some_and(|connector| connector.connected_link().is_some());
                if attempt.came_about() && !is_replaced {
                    self.lost.set(Some((rt::now(), self.gate.hurried.changes())));
                }
            }
            // These carry no lease.
            (ConnectionRole::Further, _) | (_, Credentials::Requests) => rt::either(lives, keep_alive(attempt)).await,
        }
    }

    /// The token that was just read from this file, for all connections that have loaded it.
    fn token_of_file(&self, path: &Path, token: Option<String>) -> SharedToken {
        let mut last = self.token_file.borrow_mut();
        if let Some(file) = last.as_ref().filter(|file| file.is_at(path)) {
            file.set(token);
            return file.token();
        }
        last.insert(TokenFile::new(path, token)).token()
    }

    /// Reads the token file again if that is due.
    pub(super) async fn refresh_token(&self) {
        let file = self.token_file.borrow().clone();
        if let Some(file) = file {
            file.refresh().await;
        }
    }

    /// Paces the requests on a new connection after a long absence.
    async fn come_back(&self, attempt: &Attempt<Exchange>) {
        let guard = self.reconnect_guard();
        attempt.connected().await;
        self.lost.set(None);
        if let Some(guard) = guard {
            guard.run(&self.traffic, &self.overload).await;
        }
        std::future::pending().await
    }

    /// Closes the connections when a plugin has returned another client certificate. Never returns.
    async fn renew_credential(&self, attempt: &Attempt<Exchange>) {
        let link = attempt.connected().await;
        self.exec.renew().await;
        link.end(ApiError::Lost("client certificate renewed".into()));
        std::future::pending().await
    }

    fn reconnect_guard(&self) -> Option<ReconnectGuard> {
        let (time, hurried) = self.lost.get()?;
        let most = spread(rt::elapsed(time))?;
        // A user who asked to synchronize at once does not wait.
        let part =
            if self.gate.hurried.changes() == hurried { f64::from(rt::random()) / f64::from(u32::MAX) } else { 0.0 };
        self.gate.is_open().then(|| ReconnectGuard::begin(&self.gate, most, part))
    }

    pub(super) fn begin_history(&self) {
        self.watched.set(None);
        self.histories.notify();
    }

    async fn access(&self) -> Result<Access, ApiError> {
        let access = self.exec.access(&self.kubeconfig).await;
        let access = access.map_err(|error| ApiError::Access(ErrorChain(&error).to_string().into()))?;
        match self.credentials {
            Credentials::Kubeconfig => Ok(access),
            Credentials::Requests => {
                access.without_credentials().map_err(|error| ApiError::Access(error.to_string().into()))
            }
        }
    }

    async fn connect(&self) -> Result<(Access, Socket), ApiError> {
        let access = self.access().await?;
        self.server.replace(access.url.authority());
        let former = self.authorities.replace(access.authorities.clone());
        if !former.is_empty() && former != access.authorities {
            // The address may belong to another cluster.
            self.begin_history();
        }
        let socket = rt::deadline(API_CONNECT_TIMEOUT, connect(&self.dialer, &access, &self.traffic)).await;
        let socket = match socket {
            Ok(Ok(socket)) => Ok(socket),
            Ok(Err(error)) => Err(unreachable(&access, &ErrorChain(&error))),
            Err(rt::Elapsed) => Err(unreachable(&access, &rt::Elapsed)),
        };
        Ok((access, socket?))
    }
}

/// Closes a further connection that is dead, or that no request has used for a while.
async fn keep_alive(attempt: &Attempt<Exchange>) {
    let link = attempt.connected().await;
    let mut was_idle = false;
    loop {
        rt::sleep(READ_IDLE_TIMEOUT).await;
        let is_idle = link.count(|_| true) == 0;
        if is_idle && was_idle {
            link.end(ApiError::Lost("connection is not needed any more".into()));
        }
        was_idle = is_idle;
        if !is_idle && rt::elapsed(link.last_received.get()) >= READ_IDLE_TIMEOUT {
            expect_sign_of_life(&link).await;
        }
    }
}

async fn expect_sign_of_life(link: &Link) {
    let before = link.last_received.get();
    link.ping();
    rt::sleep(PING_TIMEOUT).await;
    if link.last_received.get() == before {
        link.end(ApiError::Lost("no data received".into()));
    }
}

pub(super) fn unreachable(access: &Access, why: &dyn fmt::Display) -> ApiError {
    ApiError::Unreachable(format!("connect to the API server {}: {why}", access.url.authority()).into())
}

pub(super) fn caller(access: &Access) -> Caller {
    Caller {
        scheme: match access.url.scheme {
            UriScheme::Http => "http",
            UriScheme::Https => "https",
        },
        authority: access.url.authority(),
        prefix: access.url.target.trim_end_matches('/').to_owned(),
        agent: agent(),
        token: SharedToken::new(access.token.clone().into()),
    }
}

/// The user agent.
fn agent() -> String {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        arch => arch,
    };
    format!("coracle/{} (linux/{arch})", env!("CARGO_PKG_VERSION"))
}
