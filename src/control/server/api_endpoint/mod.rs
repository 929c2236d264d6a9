//! The API endpoint: components of the node use it in place of the API server.
//!
//! ```text
//!   TLS with a certificate of its own, HTTP/1.1     ../connections.rs
//!   reads requests; a bearer token is required      visit.rs
//!   with the server: passes requests on             answer.rs, apiserver/pass_on.rs
//!   without it: answers from what was read          answer.rs, held_watch.rs, kubelet/api_cache
//! ```
//!
//! Whether the server is there is known from the node's own connection, which renews the lease: the endpoint does not
//! probe.

mod answer;
mod held_watch;
mod status;
mod visit;

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustls::server::ServerConfig;

use super::connection_shares::{ClientState, ConnectionLimits};
use super::connections::{REQUEST_READ_TIMEOUT, serve_connection};
use super::kubelet_api::{Key, RegularTokens, server_config, watch_for_its_end};
use super::listener::Listener;
use super::stream_slots::StreamSlots;
use crate::kubelet::api_cache::{ApiCache, OwnNode};
use crate::kubelet::certificates::ServingCertificateCell;
use crate::kubelet::node::StatusInputs;
use crate::platform::apiserver::Client;
use crate::platform::config::TlsSettings;
use crate::platform::net::TlsSocket;
use crate::platform::rt::{self, TcpStream};
use crate::types::error::ErrorChain;

use visit::Visit;

pub(crate) struct ApiEndpoint {
    pub(crate) address: SocketAddr,
    pub(crate) certificate: ServingCertificateCell,
    pub(crate) tls: TlsSettings,
    /// The node's own client: its connection tells whether the server is there.
    pub(crate) node: Client,
    /// Carries the components' requests.
    pub(crate) upstream: Client,
    pub(crate) cache: ApiCache,
    pub(crate) own_node: Rc<dyn OwnNodeSource>,
    pub(crate) status_inputs: Rc<StatusInputs>,
}

/// Implemented by the local API.
pub(crate) trait OwnNodeSource {
    /// What the node knows of itself and of its pods better than the server's last answers.
    fn own_node(&self) -> OwnNode;
}

struct Served {
    endpoint: ApiEndpoint,
    slots: Rc<StreamSlots>,
    tokens: RegularTokens,
    tls: Option<Arc<ServerConfig>>,
}

const API_ENDPOINT_CONNECTION_LIMITS: ConnectionLimits =
    ConnectionLimits { most: 96, most_strangers: 24, most_of_one: 80 };
/// Requests and watches at a time, of all components and of each, or of the unknown tokens of an address.
const MAX_ENDPOINT_REQUESTS: usize = 80;
const MAX_ENDPOINT_REQUESTS_OF_CLIENT: usize = 40;
/// Time limit of the server for the head of a response (kube-apiserver: `--request-timeout`).
const ENDPOINT_RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

impl ApiEndpoint {
    /// Serves requests. Never returns.
    pub(crate) async fn serve(self) {
        let door = Listener { name: "API endpoint", address: self.address, limits: API_ENDPOINT_CONNECTION_LIMITS };
        let config = match server_config(&self.tls, &self.certificate, None) {
            Ok(config) => Some(config),
            Err(error) => {
                log!(error, "failed to configure TLS of the API endpoint", error = ErrorChain(&error));
                None
            }
        };
        let served = Rc::new(Served::new(self, config));
        door.serve(&|tcp, peer, client_state| Box::pin(Rc::clone(&served).meet(tcp, peer, client_state))).await;
    }
}

impl Served {
    fn new(endpoint: ApiEndpoint, tls: Option<Arc<ServerConfig>>) -> Self {
        let slots = StreamSlots::new(MAX_ENDPOINT_REQUESTS, MAX_ENDPOINT_REQUESTS_OF_CLIENT);
        Self { endpoint, slots, tokens: RegularTokens::new(), tls }
    }

    /// Whether the API server has accepted the token. Its claims may be forged.
    fn knows(&self, token: &str) -> bool {
        let cache = &self.endpoint.cache;
        self.tokens.has(&self.tokens.key(token))
            || cache.identity(token).is_some_and(|identity| cache.is_accepted(&identity))
    }

    /// The API server has answered a request with this token. Whether it has authenticated the client before.
    fn answered(&self, token: Key, status: u16) -> bool {
        let is_authenticated = matches!(status, 200..300 | 403 | 404 | 409);
        if is_authenticated {
            self.tokens.add(token);
        }
        is_authenticated
    }

    async fn meet(self: Rc<Self>, tcp: TcpStream, peer: SocketAddr, client_state: Rc<Cell<ClientState>>) {
        let Some(config) = self.tls.clone() else { return };
        watch_for_its_end(&tcp);
        match rt::deadline(REQUEST_READ_TIMEOUT, TlsSocket::accept(tcp, config)).await {
            Ok(Ok(tls)) => serve_connection(tls, Visit::new(self, peer.ip(), client_state)).await,
            Ok(Err(error)) => {
                log!(debug, "TLS handshake failed", listener = "API endpoint", peer = peer, error = ErrorChain(&error));
            }
            Err(rt::Elapsed) => {}
        }
    }
}

#[cfg(test)]
mod tests;
