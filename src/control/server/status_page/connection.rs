//! One connection: its requests and responses.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;

use super::event_card::shown_event;
use super::names::{is_from_elsewhere, is_ours};
use super::owner::Owner;
use super::pod_card::shown;
use super::watchers::Watchers;
use super::{PAGE_HEADERS, page};
use crate::control::server::connection_shares::ClientState;
use crate::control::server::connections::{Reply, RequestHandler, ResponseFuture};
use crate::control::server::container_logs::container_logs;
use crate::control::server::http::{Response, Status};
use crate::control::server::json_list::{List, json};
use crate::control::server::local_server::{event_list, page_of, respond_whole};
use crate::control::server::metrics_pages::Page;
use crate::control::server::pod_changes;
use crate::control::server::unread_responses::UnreadResponses;
use crate::protocol::http1::Request;

pub(super) struct ServedConnection {
    pub(super) watchers: Rc<Watchers>,
    pub(super) owner: Rc<Owner>,
    pub(super) node_name: Rc<str>,
    /// The local address of the connection.
    pub(super) local_address: Option<IpAddr>,
    pub(super) peer: IpAddr,
    pub(super) client_state: Rc<Cell<ClientState>>,
}

/// What the owner sees of a container's log, whatever the query says.
const OWNERS_LOG_QUERY: &str = "tailLines=10&limitBytes=4096";

impl ServedConnection {
    async fn reply(&self, request: &Request) -> Reply {
        if !is_ours(request.header("host").unwrap_or_default(), self.local_address, &self.node_name) {
            let text = "this node does not go by that name: ask for it by its address\n";
            return Reply::Whole(Response::text(Status::Forbidden, text));
        }
        if is_from_elsewhere(request) {
            return Reply::Whole(Response::text(Status::Forbidden, "only this node's own page may ask\n"));
        }
        if is_of_owner(request) {
            return match self.owner.authorize(request, self.peer).await {
                Ok(()) => self.owners_reply(request).await,
                Err(response) => Reply::Whole(response),
            };
        }
        if !matches!(&*request.method, "GET" | "HEAD") {
            return Reply::Whole(Response::only_get());
        }
        self.public_reply(request)
    }

    /// The owner has sent this request.
    async fn owners_reply(&self, request: &Request) -> Reply {
        if request.method == "GET" {
            let previous = request.query_value("previous").unwrap_or_default() == "true";
            let query = format!("{OWNERS_LOG_QUERY}&previous={previous}");
            let log = container_logs(&request.path, &query, self.watchers.api());
            return log.unwrap_or_else(|| Reply::Whole(Response::not_found()));
        }
        match pod_changes::change(request, true) {
            Some(Ok(change)) => {
                log!(info, "change from the status page", pod = request.path, peer = self.peer);
                Reply::Whole(pod_changes::response(self.watchers.api().change(change).await))
            }
            Some(Err(response)) => Reply::Whole(response),
            None => Reply::Whole(Response::not_found()),
        }
    }

    /// What everyone who reaches the page may see.
    fn public_reply(&self, request: &Request) -> Reply {
        let api = self.watchers.api();
        if let Some(summary @ Page::Summary { .. }) = Page::of(&request.path, &request.query) {
            return page_of(summary, api);
        }
        match &*request.path {
            "/" => {
                Reply::Whole(Response { status: Status::Ok, content_type: "text/html; charset=utf-8", body: page() })
            }
            "/events-stream" if request.method == "GET" => match Watchers::join(&self.watchers) {
                Some(watcher) => {
                    self.client_state.set(ClientState::Busy);
                    Reply::Text(Box::new(watcher))
                }
                None => Reply::Whole(Response::text(Status::ServiceUnavailable, "too many watch already\n")),
            },
            "/events-stream" => Reply::Whole(Response::only_get()),
            "/pods" => {
                let mut list = List::new("{\"pods\":[");
                api.pods(&mut |entry| list.push(&json(&shown(entry))));
                Reply::Whole(Response::json(list.end()))
            }
            "/events" => Reply::Whole(Response::json(event_list(api, &shown_event))),
            "/status" => Reply::Whole(respond_whole("/status", api)),
            _ => Reply::Whole(Response::not_found()),
        }
    }
}

/// Whether only the owner may send this request: the log of a container, or one of three changes of a pod.
fn is_of_owner(request: &Request) -> bool {
    match &*request.method {
        "GET" => request.path.starts_with("/containerLogs/"),
        "POST" => {
            let action = request.path.rsplit('/').next().unwrap_or_default();
            pod_changes::is_of_pod(&request.path) && ["restart", "rollback", "confirm"].contains(&action)
        }
        _ => false,
    }
}

impl RequestHandler for ServedConnection {
    fn keeps_alive(&self) -> bool {
        false
    }

    fn handle<'a>(&'a self, request: &'a Request) -> ResponseFuture<'a> {
        Box::pin(self.reply(request))
    }

    fn unread(&self) -> Option<&Rc<UnreadResponses>> {
        Some(self.watchers.unread())
    }

    fn headers(&self) -> &'static str {
        PAGE_HEADERS
    }
}
