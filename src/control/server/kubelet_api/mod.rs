//! The kubelet API over TLS, on port 10250.
//!
//! ```text
//!   TLS: presents the newest certificate, asks for the client's     tls.rs
//!   reads requests                                                  ../connections.rs
//!   authentication: certificate, token, anonymous   connection.rs, client_ca.rs, bearer_token.rs, delegated_auth.rs,
//!                                                                   regular_tokens.rs
//!   authorization                                                   attributes.rs, delegated_auth.rs
//!   exec, attach, port-forward                                      ../streaming.rs, ../relay.rs
//!   commands, checkpoints, files of the node                        run_and_checkpoint.rs, system_logs.rs
//!   logs of services                                  node_log_query.rs, node_log_text.rs
//!   images for other nodes                            shared_images.rs
//!   responses                              connection.rs, healthz.rs, health_metrics.rs, zpages.rs, profiles.rs,
//!                                          ../container_logs.rs
//! ```
//!
//! Pods do not depend on it: a port in use is retried, and without a certificate no client can connect.

mod attributes;
mod auth_cache;
mod bearer_token;
mod client_ca;
mod connection;
mod debug_flags;
mod delegated_auth;
mod error;
mod health_metrics;
mod healthz;
mod node_log_query;
mod node_log_text;
mod pod_lists;
mod profiles;
mod read_only;
mod regular_tokens;
mod reviews;
mod run_and_checkpoint;
mod shared_images;
mod stranger_buckets;
mod system_logs;
mod tls;
mod user;
mod zpages;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use rustls::server::ServerConfig;

use super::SyncHealth;
use super::connection_shares::{ClientState, ConnectionLimits};
use super::connections::{REQUEST_READ_TIMEOUT, serve_connection};
use super::listener::Listener;
use super::local_api::LocalApi;
use super::stream_slots::StreamSlots;
use super::streaming::Streaming;
use super::unread_responses::UnreadResponses;
use crate::kubelet::certificates::ServingCertificateCell;
use crate::kubelet::image_transfer::SharedImages;
use crate::platform::apiserver::Client;
use crate::platform::config::{Config, FeatureGates, ServerSettings};
use crate::platform::host::clock;
use crate::platform::host::time_mark::{LATEST_TIME, TimeMark};
use crate::platform::net::TlsSocket;
use crate::platform::rt::{self, TcpStream};
use crate::types::api::Time;
use crate::types::error::ErrorChain;

pub(super) use auth_cache::Key;
pub(super) use bearer_token::bearer;
use client_ca::Authorities;
use connection::ServedConnection;
use delegated_auth::DelegatedAuth;
pub(crate) use read_only::ReadOnlyServer;
pub(super) use regular_tokens::RegularTokens;
use run_and_checkpoint::Checkpoints;
pub(super) use tls::server_config;

/// The kubelet API server.
pub(crate) struct KubeletApiServer {
    settings: ServerSettings,
    gates: FeatureGates,
    /// The flags of the command line, for `/flagz`.
    flags: Vec<(String, String)>,
    started: (Time, Instant),
    client_ca_file: Option<PathBuf>,
    serving_certificate: ServingCertificateCell,
    health: SyncHealth,
    api: Rc<dyn LocalApi>,
    authorities: Authorities,
    delegated_auth: DelegatedAuth,
    streaming: Streaming,
    slots: Rc<StreamSlots>,
    unread: Rc<UnreadResponses>,
    checkpoints: Checkpoints,
    /// Images for other nodes; `None`: this node does not share.
    shared: Option<SharedImages>,
    tls: RefCell<Option<Arc<ServerConfig>>>,
    /// When the missing certificate was last logged.
    last_logged: Cell<Option<Instant>>,
}

/// One peer address may be the API server's.
const KUBELET_API_CONNECTION_LIMITS: ConnectionLimits =
    ConnectionLimits { most: 128, most_strangers: 32, most_of_one: 112 };
/// Maximum number of streams, and of those of one user at one address. The other connections are for requests that end
/// soon.
const MAX_API_STREAMS: usize = 96;
const MAX_API_STREAMS_OF_USER: usize = 64;
/// A client that does not acknowledge data for this long is taken for dead.
const CLIENT_UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(60);
/// Shortest time between two warnings about the missing certificate.
const CERTIFICATE_WARNING_INTERVAL: Duration = Duration::from_secs(60);

impl KubeletApiServer {
    pub(crate) fn new(
        config: &Config,
        client: Option<Client>,
        cell: ServingCertificateCell,
        health: SyncHealth,
        api: Rc<dyn LocalApi>,
        streaming: Streaming,
    ) -> Self {
        Self {
            settings: config.identity.server.clone(),
            gates: config.gates.clone(),
            flags: config.configured.flags().to_vec(),
            started: (clock::now(), rt::now()),
            client_ca_file: config.identity.client_ca_file.clone(),
            serving_certificate: cell,
            health,
            api,
            authorities: Authorities::new(TimeMark::new(config.root_dir.join(LATEST_TIME))),
            delegated_auth: DelegatedAuth::new(client, &config.node.name),
            streaming,
            slots: StreamSlots::new(MAX_API_STREAMS, MAX_API_STREAMS_OF_USER),
            unread: Rc::default(),
            checkpoints: Checkpoints {
                folder: config.root_dir.join("checkpoints"),
                limit: config.runtime.request_timeout,
            },
            shared: None,
            tls: RefCell::default(),
            last_logged: Cell::new(None),
        }
    }

    /// Serves these images to other nodes.
    pub(crate) fn with_images(self, shared: Option<SharedImages>) -> Self {
        Self { shared, ..self }
    }

    /// Serves requests. Never returns.
    pub(crate) async fn serve(self) {
        let server = Rc::new(self);
        server.configure(None);
        if server.client_ca_file.is_some() {
            server.authorities.latest.load().await;
        }
        let _latest_time = server.client_ca_file.is_some().then(|| {
            let server = Rc::clone(&server);
            rt::spawn(async move { server.authorities.latest.run().await })
        });
        let _authorities = server.client_ca_file.clone().map(|path| {
            let server = Rc::clone(&server);
            rt::spawn(async move { server.authorities.follow(&path, |hints| server.configure(hints)).await })
        });
        if server.client_ca_file.is_some() {
            // The first clients must be authenticated, too: wait until the CA bundle has been loaded.
            server.authorities.looked.beyond(0).await;
        }
        let tcp_door =
            Listener { name: "kubelet API", address: server.settings.address, limits: KUBELET_API_CONNECTION_LIMITS };
        tcp_door.serve(&|tcp, peer, client_state| Box::pin(Rc::clone(&server).meet(tcp, peer, client_state))).await;
    }

    /// Sets the TLS configuration of new connections.
    fn configure(&self, hints: Option<Vec<rustls::DistinguishedName>>) {
        match server_config(&self.settings.tls, &self.serving_certificate, hints) {
            Ok(config) => drop(self.tls.replace(Some(config))),
            Err(error) => log!(error, "failed to configure TLS of the kubelet API", error = ErrorChain(&error)),
        }
    }

    async fn meet(self: Rc<Self>, tcp: TcpStream, peer: SocketAddr, client_state: Rc<Cell<ClientState>>) {
        let Some(config) = self.tls.borrow().clone() else { return };
        watch_for_its_end(&tcp);
        let is_ready = self.serving_certificate.is_there();
        match rt::deadline(REQUEST_READ_TIMEOUT, TlsSocket::accept(tcp, config)).await {
            Ok(Ok(tls)) => {
                let visit = ServedConnection::new(self, peer.ip(), tls.peer_certificates(), client_state);
                serve_connection(tls, visit).await;
            }
            Ok(Err(_)) if !is_ready => self.warn_no_certificate(peer),
            Ok(Err(error)) => log!(debug, "TLS handshake failed", peer = peer, error = ErrorChain(&error)),
            Err(rt::Elapsed) => {}
        }
    }

    fn warn_no_certificate(&self, peer: SocketAddr) {
        let now = rt::now();
        if self
            .last_logged
            .get()
            .is_none_or(|last_logged| now.saturating_duration_since(last_logged) >= CERTIFICATE_WARNING_INTERVAL)
        {
            self.last_logged.set(Some(now));
            let why = "no serving certificate available for the node";
            log!(warn, "TLS handshake failed", peer = peer, error = why);
        }
    }
}

/// Sets timeouts to notice dead clients. Best effort: without them, dead connections only last longer.
pub(super) fn watch_for_its_end(tcp: &TcpStream) {
    let _ = tcp.set_nodelay(true);
    let limit = u32::try_from(CLIENT_UNACKNOWLEDGED_TIMEOUT.as_millis()).unwrap_or(u32::MAX);
    let _ = setsockopt(tcp, sockopt::TcpUserTimeout, &limit);
    let _ = setsockopt(tcp, sockopt::KeepAlive, &true);
}
