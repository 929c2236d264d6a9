//! The door to who looks after the node from outside: the kubelet's API over TLS, on port 10250.
//!
//! ```text
//!   TLS: the newest certificate is shown, one is asked for          tls.rs
//!   a request                                                       connections.rs
//!   who is it: certificate, token, nobody                           visit.rs, authorities.rs, presented.rs, cluster_word.rs
//!   what is it about, and may he                                    attributes.rs, cluster_word.rs
//!   the runtime's streams                                           ../streaming.rs, ../relay.rs
//!   commands, checkpoints, files of the node                        commands.rs, system_logs.rs
//!   the answer                                                      visit.rs, healthz.rs, ../container_logs.rs
//! ```
//!
//! Pods run whatever becomes of it: a port that is taken is tried again, and without a certificate nobody gets in.

mod attributes;
mod auth_cache;
mod bearer_token;
mod client_ca;
mod connection;
mod delegated_auth;
mod error;
mod healthz;
mod pod_lists;
mod read_only;
mod reviews;
mod run_and_checkpoint;
mod system_logs;
mod tls;
mod user;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use rustls::server::ServerConfig;

use super::SyncHealth;
use super::connections::{PATIENCE, Standing, answer};
use super::listener::Listener;
use super::local_api::LocalApi;
use super::streaming::Streaming;
use crate::kubelet::certificates::ServingCertificateCell;
use crate::platform::apiserver::Client;
use crate::platform::config::{Config, ServerSettings};
use crate::platform::net::TlsSocket;
use crate::platform::rt::{self, TcpStream};
use crate::types::error::ErrorChain;

use client_ca::Authorities;
use connection::Visit;
use delegated_auth::DelegatedAuth;
pub(crate) use read_only::ReadOnlyServer;
use run_and_checkpoint::Checkpoints;

/// What it takes to open the door.
pub(crate) struct KubeletApiServer {
    settings: ServerSettings,
    client_ca_file: Option<PathBuf>,
    shown: ServingCertificateCell,
    health: SyncHealth,
    api: Rc<dyn LocalApi>,
    authorities: Authorities,
    word: DelegatedAuth,
    streaming: Streaming,
    checkpoints: Checkpoints,
    tls: RefCell<Option<Arc<ServerConfig>>>,
    /// When it was last told that there is no certificate yet.
    told: Cell<Option<Instant>>,
}

/// Connections at once; of those who have not shown who they are, fewer.
const MOST: usize = 128;
const MOST_STRANGERS: usize = 32;
/// What was sent and is not acknowledged for so long is on its way to nobody.
const UNACKNOWLEDGED: Duration = Duration::from_secs(60);
/// No more often than so it is told that there is no certificate to show.
const TELL_AGAIN: Duration = Duration::from_secs(60);

impl KubeletApiServer {
    pub(crate) fn new(
        config: &Config,
        client: Option<Client>,
        shown: ServingCertificateCell,
        health: SyncHealth,
        api: Rc<dyn LocalApi>,
        streaming: Streaming,
    ) -> Self {
        Self {
            settings: config.identity.server.clone(),
            client_ca_file: config.identity.client_ca_file.clone(),
            shown,
            health,
            api,
            authorities: Authorities::default(),
            word: DelegatedAuth::new(client, &config.node.name),
            streaming,
            checkpoints: Checkpoints {
                folder: config.root_dir.join("checkpoints"),
                limit: config.runtime.request_timeout,
            },
            tls: RefCell::default(),
            told: Cell::new(None),
        }
    }

    /// Answers, for ever.
    pub(crate) async fn serve(self) {
        let door = Rc::new(self);
        door.configure(None);
        let _authorities = door.client_ca_file.clone().map(|path| {
            let door = Rc::clone(&door);
            rt::spawn(async move { door.authorities.follow(&path, |hints| door.configure(hints)).await })
        });
        if door.client_ca_file.is_some() {
            // Who comes first is to be known, too.
            door.authorities.looked.beyond(0).await;
        }
        let tcp_door = Listener {
            name: "the kubelet's API",
            address: door.settings.address,
            most: MOST,
            most_strangers: MOST_STRANGERS,
        };
        tcp_door.serve(&|tcp, peer, standing| Box::pin(Rc::clone(&door).meet(tcp, peer, standing))).await;
    }

    /// How TLS is spoken from now on.
    fn configure(&self, hints: Option<Vec<rustls::DistinguishedName>>) {
        match tls::server_config(&self.settings.tls, &self.shown, hints) {
            Ok(config) => drop(self.tls.replace(Some(config))),
            Err(error) => log!(error, "the node's server cannot speak TLS", error = ErrorChain(&error)),
        }
    }

    async fn meet(self: Rc<Self>, tcp: TcpStream, peer: SocketAddr, standing: Rc<Cell<Standing>>) {
        let Some(config) = self.tls.borrow().clone() else { return };
        watch_for_its_end(&tcp);
        let is_ready = self.shown.is_there();
        match rt::deadline(PATIENCE, TlsSocket::accept(tcp, config)).await {
            Ok(Ok(tls)) => {
                let visit = Visit::new(self, tls.peer_certificates(), standing);
                answer(tls, visit).await;
            }
            Ok(Err(_)) if !is_ready => self.tell_of_no_certificate(peer),
            Ok(Err(error)) => log!(debug, "TLS handshake failed", peer = peer, error = ErrorChain(&error)),
            Err(rt::Elapsed) => {}
        }
    }

    fn tell_of_no_certificate(&self, peer: SocketAddr) {
        let now = rt::now();
        if self.told.get().is_none_or(|told| now.saturating_duration_since(told) >= TELL_AGAIN) {
            self.told.set(Some(now));
            let why = "no serving certificate available for the node";
            log!(warn, "TLS handshake failed", peer = peer, error = why);
        }
    }
}

/// Who has gone without a word is noticed some time. What is not set only makes a dead connection last longer.
fn watch_for_its_end(tcp: &TcpStream) {
    let _ = tcp.set_nodelay(true);
    let limit = u32::try_from(UNACKNOWLEDGED.as_millis()).unwrap_or(u32::MAX);
    let _ = setsockopt(tcp, sockopt::TcpUserTimeout, &limit);
    let _ = setsockopt(tcp, sockopt::KeepAlive, &true);
}
