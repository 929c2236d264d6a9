//! `readOnlyPort`: health, pods and metrics over plain HTTP, without authentication. It changes nothing, and gives no
//! access to containers.

use std::cell::Cell;
use std::future::ready;
use std::net::SocketAddr;
use std::rc::Rc;

use super::healthz::{checks, respond};
use super::{health_metrics, pod_lists, watch_for_its_end};
use crate::control::server::SyncHealth;
use crate::control::server::connection_shares::{ClientState, ConnectionLimits};
use crate::control::server::connections::{
    MAX_LOCAL_CONNECTIONS, Reply, RequestHandler, ResponseFuture, serve_connection,
};
use crate::control::server::http::Response;
use crate::control::server::listener::Listener;
use crate::control::server::local_api::LocalApi;
use crate::control::server::local_server::page_of;
use crate::control::server::metrics_pages::Page;
use crate::control::server::unread_responses::UnreadResponses;
use crate::platform::rt;
use crate::protocol::http1::Request;

pub(crate) struct ReadOnlyServer {
    pub(crate) address: SocketAddr,
    pub(crate) health: SyncHealth,
    pub(crate) api: Rc<dyn LocalApi>,
}

/// Connections that have not sent a request yet count as strangers', which leave half to clients that ask for something.
/// One address leaves a quarter to others, so that a monitor gets in beside it.
const READ_ONLY_CONNECTION_LIMITS: ConnectionLimits = ConnectionLimits {
    most: MAX_LOCAL_CONNECTIONS,
    most_strangers: MAX_LOCAL_CONNECTIONS / 2,
    most_of_one: MAX_LOCAL_CONNECTIONS * 3 / 4,
};

impl ReadOnlyServer {
    /// Serves requests. Never returns.
    pub(crate) async fn serve(self) {
        let tcp_door = Listener { name: "readOnlyPort", address: self.address, limits: READ_ONLY_CONNECTION_LIMITS };
        let server = Rc::new(self);
        let unread = Rc::<UnreadResponses>::default();
        let meet = |tcp, client_state| {
            watch_for_its_end(&tcp);
            serve_connection(
                tcp,
                ServedConnection { server: Rc::clone(&server), unread: Rc::clone(&unread), client_state },
            )
        };
        tcp_door.serve(&|tcp, _, client_state| Box::pin(meet(tcp, client_state))).await;
    }

    fn reply(&self, request: &Request) -> Reply {
        let page = Page::of(&request.path, &request.query).filter(|page| *page != Page::Configuration);
        if !matches!((&*request.method, page), ("GET", _) | ("POST", Some(Page::Summary { .. }))) {
            return Reply::Whole(Response::not_allowed());
        }
        if let Some(page) = page {
            return page_of(page, &*self.api);
        }
        let checks = checks(self.health.stalled(rt::now()).is_some());
        let health = respond(request, &checks);
        if health.is_some() {
            health_metrics::count(&checks);
        }
        Reply::Whole(health.unwrap_or_else(|| match &*request.path {
            "/metrics/slis" => health_metrics::page(&checks),
            "/pods" | "/pods/" => pod_lists::pods(&*self.api),
            _ => Response::not_found(),
        }))
    }
}

/// One connection.
struct ServedConnection {
    server: Rc<ReadOnlyServer>,
    unread: Rc<UnreadResponses>,
    client_state: Rc<Cell<ClientState>>,
}

impl RequestHandler for ServedConnection {
    fn keeps_alive(&self) -> bool {
        true
    }

    fn handle<'a>(&'a self, request: &'a Request) -> ResponseFuture<'a> {
        self.client_state.set(ClientState::Busy);
        Box::pin(ready(self.server.reply(request)))
    }

    fn unread(&self) -> Option<&Rc<UnreadResponses>> {
        Some(&self.unread)
    }

    fn on_idle(&self) {
        self.client_state.set(ClientState::Idle);
    }
}
