//! The status page: what this node runs and uses, for a browser on the local network. Off unless a port is set.
//!
//! ```text
//!   GET /                                       the page, one file: page.html, packed by build/main.rs
//!   GET /events-stream                          server-sent changes              watchers.rs, changes.rs
//!   GET /status /pods /events /stats/summary    as on the local socket, reduced     pod_card.rs, event_card.rs
//!   GET /containerLogs/NAMESPACE/POD/CONTAINER  ten lines, for the owner               owner.rs
//!   POST /pods/NAMESPACE/NAME/restart, rollback, confirm     for the owner             owner.rs
//!   whether a request is meant for this node and comes from its own page                 names.rs
//! ```
//!
//! Without the owner's token the page is read-only and unauthenticated: it shows no logs, no values of environment
//! variables and no commands. Without a watcher, only the history of CPU and memory is recorded.

mod changes;
mod connection;
mod event_card;
mod history;
mod names;
mod owner;
mod pod_card;
mod watchers;

use std::cell::Cell;
use std::io::Read;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use flate2::bufread::MultiGzDecoder;
use nix::sys::socket::{setsockopt, sockopt};

use super::SyncHealth;
use super::connection_shares::{ClientState, ConnectionLimits};
use super::connections::{MAX_LOCAL_CONNECTIONS, serve_connection};
use super::listener::Listener;
use super::local_api::LocalApi;
use crate::platform::rt::{self, TcpStream};

use connection::ServedConnection;
use owner::Owner;
pub(crate) use owner::PAGE_TOKEN;
use watchers::Watchers;

/// The server of the status page.
pub(crate) struct StatusPage {
    address: SocketAddr,
    node_name: Rc<str>,
    watchers: Rc<Watchers>,
    owner: Rc<Owner>,
}

/// The page, gzipped.
const PACKED_PAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/page.html.gz"));

/// Headers of every response. The page may use its own script and style and request this server, and nothing else. No
/// other page may embed it or read its data.
const PAGE_HEADERS: &str = concat!(
    "Content-Security-Policy: default-src 'none'; script-src '",
    env!("CORACLE_PAGE_SCRIPT"),
    "'; style-src '",
    env!("CORACLE_PAGE_STYLE"),
    "'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types 'none'\r\n\
     X-Frame-Options: DENY\r\n\
     Cross-Origin-Resource-Policy: same-origin\r\n\
     Cross-Origin-Opener-Policy: same-origin\r\n\
     Referrer-Policy: no-referrer\r\n\
     Cache-Control: no-store\r\n"
);

/// Maximum number of connections without a request; all others belong to watchers.
const MAX_SILENT_CONNECTIONS: usize = 8;
/// Send buffer in the kernel. It is small, so that slow watchers are noticed.
const WAITING_BYTES: usize = 64 * 1024;
/// A client that does not acknowledge data for this long is taken for dead.
const BROWSER_UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(30);

impl StatusPage {
    /// `token`: the file with the digest of the owner's token, which need not exist.
    pub(crate) fn new(
        address: SocketAddr,
        node_name: &str,
        token: PathBuf,
        api: Rc<dyn LocalApi>,
        health: SyncHealth,
    ) -> Self {
        let owner = Rc::new(Owner::new(token));
        Self { address, node_name: node_name.into(), watchers: Watchers::new(api, health), owner }
    }

    /// Serves requests. Never returns.
    pub(crate) async fn serve(self) {
        let address = self.address;
        if !address.ip().is_loopback() {
            log!(warn, "status page is open to every host that can reach this address", address = address);
        }
        let _recorded = rt::spawn(history::record(Rc::clone(self.watchers.history())));
        self.door().serve(&|tcp, peer, client_state| Box::pin(self.meet(tcp, peer, client_state))).await;
    }

    const fn door(&self) -> Listener {
        let limits = ConnectionLimits {
            most: MAX_LOCAL_CONNECTIONS,
            most_strangers: MAX_SILENT_CONNECTIONS,
            most_of_one: MAX_LOCAL_CONNECTIONS,
        };
        Listener { name: "the page", address: self.address, limits }
    }

    fn meet(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        client_state: Rc<Cell<ClientState>>,
    ) -> impl Future<Output = ()> + use<> {
        // Best effort: without these options, dead connections only last longer.
        let _ = stream.set_nodelay(true);
        let _ = setsockopt(&stream, sockopt::SndBuf, &WAITING_BYTES);
        let limit = u32::try_from(BROWSER_UNACKNOWLEDGED_TIMEOUT.as_millis()).unwrap_or(u32::MAX);
        let _ = setsockopt(&stream, sockopt::TcpUserTimeout, &limit);
        let here = stream.local_addr().ok().map(|address| address.ip().to_canonical());
        let visit = ServedConnection {
            watchers: Rc::clone(&self.watchers),
            owner: Rc::clone(&self.owner),
            node_name: Rc::clone(&self.node_name),
            local_address: here,
            peer: peer.ip(),
            client_state,
        };
        serve_connection(stream, visit)
    }
}

/// The page's text.
fn page() -> Vec<u8> {
    let mut page = Vec::new();
    // The build packed it completely.
    let _ = MultiGzDecoder::new(PACKED_PAGE).read_to_end(&mut page);
    page
}

#[cfg(test)]
mod tests;
