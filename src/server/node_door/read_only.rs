//! `readOnlyPort`: health, pods and figures in plain HTTP, for whoever reaches it. Nothing is done here, and no container is
//! looked into.

use std::cell::Cell;
use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use super::healthz::{checks, respond};
use super::{FIRST_TRY, bind, pod_lists, watch_for_its_end};
use crate::error::ErrorChain;
use crate::rt::{self, TcpListener};
use crate::server::SyncHealth;
use crate::server::connections::{Answering, Answers, Connections, FEW, Reply, Standing, answer};
use crate::server::http::Response;
use crate::server::local::{LocalApi, page_of};
use crate::server::page::Page;
use crate::wire::http1::Request;

pub(crate) struct ReadOnlyDoor {
    pub(crate) address: SocketAddr,
    pub(crate) health: SyncHealth,
    pub(crate) api: Rc<dyn LocalApi>,
}

/// Of the few connections, those that have not asked for anything.
const MOST_SILENT: usize = FEW / 2;

impl ReadOnlyDoor {
    /// Answers, for ever.
    pub(crate) async fn serve(self) {
        let door = Rc::new(self);
        let address = door.address;
        let (mut backoff, mut told) = (FIRST_TRY, false);
        loop {
            match bind(address).await {
                Ok(listener) => {
                    log!(info, "figures and pods are there for whoever asks, unencrypted", readOnlyPort = address);
                    (told, backoff) = (false, FIRST_TRY);
                    door.accept(&listener).await;
                }
                Err(error) if !told => {
                    told = true;
                    log!(warn, "the read-only port does not listen, trying again", address = address, error = error);
                }
                Err(_) => {}
            }
            rt::sleep(backoff.next_wait()).await;
        }
    }

    /// Takes connections until the listener itself fails.
    async fn accept(self: &Rc<Self>, listener: &TcpListener) {
        let mut connections = Connections::new(FEW).with_strangers(MOST_SILENT);
        loop {
            connections.room().await;
            match listener.accept().await {
                Ok((tcp, _)) => {
                    watch_for_its_end(&tcp);
                    connections.add(|standing| answer(tcp, Visit { door: Rc::clone(self), standing }));
                }
                // The client has gone already.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    log!(warn, "the read-only port stopped listening, trying again", error = ErrorChain(&error));
                    return;
                }
            }
        }
    }

    fn reply(&self, request: &Request) -> Reply {
        let page = Page::of(&request.path, &request.query).filter(|page| *page != Page::Configuration);
        if !matches!((&*request.method, page), ("GET", _) | ("POST", Some(Page::Summary { .. }))) {
            return Reply::Whole(Response::not_allowed());
        }
        if let Some(page) = page {
            return page_of(page, &*self.api);
        }
        let health = respond(request, &checks(self.health.stalled(Instant::now()).is_some()));
        Reply::Whole(health.unwrap_or_else(|| match &*request.path {
            "/pods" | "/pods/" => pod_lists::pods(&*self.api),
            _ => Response::not_found(),
        }))
    }
}

/// One connection.
struct Visit {
    door: Rc<ReadOnlyDoor>,
    standing: Rc<Cell<Standing>>,
}

impl Answers for Visit {
    fn keeps(&self) -> bool {
        true
    }

    fn answer<'a>(&'a self, request: &'a Request) -> Answering<'a> {
        self.standing.set(Standing::Busy);
        Box::pin(ready(self.door.reply(request)))
    }

    fn rest(&self) {
        self.standing.set(Standing::Idle);
    }
}
