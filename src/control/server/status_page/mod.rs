//! A page to look at: what this node runs and what it uses, for who sits beside it with a browser. Off without a port.
//!
//! ```text
//!   GET /                                       the page, one file: page.html, packed by build/main.rs
//!   GET /events-stream                          what has changed, as it does     watchers.rs, changes.rs
//!   GET /status /pods /events /stats/summary    as the local door has them; of pods less     shown_pod.rs
//!   whether the request is meant for this node, and comes from this page                     names.rs
//! ```
//!
//! Nothing is changed here. No log is shown, no value of a variable, no word of a command: nobody is asked who he is. Nothing
//! is looked at while nobody watches.

mod changes;
mod connection;
mod names;
mod pod_card;
mod watchers;

use std::cell::Cell;
use std::io::Read;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use flate2::read::GzDecoder;
use nix::sys::socket::{setsockopt, sockopt};

use super::SyncHealth;
use super::connections::{FEW, Standing, answer};
use super::listener::Listener;
use super::local_api::LocalApi;
use crate::platform::rt::TcpStream;

use connection::Visit;
use watchers::Watchers;

/// What it takes to show the page.
pub(crate) struct StatusPage {
    address: SocketAddr,
    node_name: Rc<str>,
    watchers: Rc<Watchers>,
}

/// The page as gzip.
const PAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/page.html.gz"));

/// Of every answer. The page may run its own script and have its own looks, ask this door, and nothing else; no other page
/// may show it or read what is here.
const HEADERS: &str = concat!(
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

/// Connections of which nothing is known yet; the others are watchers'.
const MOST_STRANGERS: usize = 8;
/// What waits in the kernel for a slow watcher, who is to be known as one.
const WAITING_BYTES: usize = 64 * 1024;
/// What was sent and is not acknowledged for so long is on its way to nobody.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

impl StatusPage {
    pub(crate) fn new(address: SocketAddr, node_name: &str, api: Rc<dyn LocalApi>, health: SyncHealth) -> Self {
        Self { address, node_name: node_name.into(), watchers: Watchers::new(api, health) }
    }

    /// Answers, for ever.
    pub(crate) async fn serve(self) {
        let address = self.address;
        if !address.ip().is_loopback() {
            log!(warn, "the page is open to everybody who can reach this address", address = address);
        }
        self.door().serve(&|tcp, _, standing| Box::pin(self.meet(tcp, standing))).await;
    }

    const fn door(&self) -> Listener {
        Listener { name: "the page", address: self.address, most: FEW, most_strangers: MOST_STRANGERS }
    }

    fn meet(&self, stream: TcpStream, standing: Rc<Cell<Standing>>) -> impl Future<Output = ()> + use<> {
        // What is not set only makes a dead connection last longer.
        let _ = stream.set_nodelay(true);
        let _ = setsockopt(&stream, sockopt::SndBuf, &WAITING_BYTES);
        let limit = u32::try_from(UNACKNOWLEDGED.as_millis()).unwrap_or(u32::MAX);
        let _ = setsockopt(&stream, sockopt::TcpUserTimeout, &limit);
        let here = stream.local_addr().ok().map(|address| address.ip().to_canonical());
        let visit = Visit::new(Rc::clone(&self.watchers), Rc::clone(&self.node_name), here, standing);
        answer(stream, visit)
    }
}

/// The page's text.
fn page() -> Vec<u8> {
    let mut page = Vec::new();
    // What the build has packed is whole.
    let _ = GzDecoder::new(PAGE).read_to_end(&mut page);
    page
}

#[cfg(test)]
mod tests;
