//! A page to look at: what this node runs and what it uses, for who sits beside it with a browser. Off without a port.
//!
//! ```text
//!   GET /                                       the page, one file: page.html, packed by build.rs
//!   GET /events-stream                          what has changed, as it does     watchers.rs, changes.rs
//!   GET /status /pods /events /stats/summary    as the local door has them; of pods less     shown_pod.rs
//!   whether the request is meant for this node, and comes from this page                     names.rs
//! ```
//!
//! Nothing is changed here. No log is shown, no value of a variable, no word of a command: nobody is asked who he is. Nothing
//! is looked at while nobody watches.

mod changes;
mod names;
mod shown_pod;
mod visit;
mod watchers;

use std::cell::Cell;
use std::io::{ErrorKind, Read};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use flate2::read::GzDecoder;
use nix::sys::socket::{setsockopt, sockopt};

use super::SyncHealth;
use super::connections::{Connections, FEW, Standing, answer};
use super::local::LocalApi;
use super::node_door::bind;
use crate::error::ErrorChain;
use crate::rt::{self, TcpListener, TcpStream};
use crate::time::Backoff;

use visit::Visit;
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
const FIRST_TRY: Backoff = Backoff::new(Duration::from_secs(5), Duration::from_secs(300));

impl StatusPage {
    pub(crate) fn new(address: SocketAddr, node_name: &str, api: Rc<dyn LocalApi>, health: SyncHealth) -> Self {
        Self { address, node_name: node_name.into(), watchers: Watchers::new(api, health) }
    }

    /// Answers, for ever. Pods run without it: where the port is taken it is tried again, rarely.
    pub(crate) async fn serve(self) {
        let address = self.address;
        if !address.ip().is_loopback() {
            log!(warn, "the page is open to everybody who can reach this address", address = address);
        }
        let (mut backoff, mut told) = (FIRST_TRY, false);
        loop {
            match bind(address).await {
                Ok(listener) => {
                    log!(info, "the page is shown", address = format_args!("http://{address}/"));
                    (told, backoff) = (false, FIRST_TRY);
                    self.accept(&listener).await;
                }
                Err(error) if !told => {
                    told = true;
                    log!(warn, "the page is not shown, trying again", address = address, error = ErrorChain(&error));
                }
                Err(_) => {}
            }
            rt::sleep(backoff.next_wait()).await;
        }
    }

    /// Takes connections until the listener itself fails.
    async fn accept(&self, listener: &TcpListener) {
        let mut connections = Connections::new(FEW).with_strangers(MOST_STRANGERS);
        loop {
            connections.room().await;
            match listener.accept().await {
                Ok((stream, _)) => {
                    connections.add(|standing| self.meet(stream, standing));
                }
                // The client has gone already.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    log!(warn, "the page is not shown any more, trying again", error = ErrorChain(&error));
                    return;
                }
            }
        }
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
