//! One connection: its requests and responses.

use std::cell::Cell;
use std::future::ready;
use std::net::IpAddr;
use std::rc::Rc;

use super::event_card::shown_event;
use super::names::{is_from_elsewhere, is_ours};
use super::pod_card::shown;
use super::watchers::Watchers;
use super::{PAGE_HEADERS, page};
use crate::control::server::connection_shares::ClientState;
use crate::control::server::connections::{Reply, RequestHandler, ResponseFuture};
use crate::control::server::http::{Response, Status};
use crate::control::server::json_list::{List, json};
use crate::control::server::local_server::{event_list, page_of, respond_whole};
use crate::control::server::metrics_pages::Page;
use crate::control::server::unread_responses::UnreadResponses;
use crate::protocol::http1::Request;

pub(super) struct ServedConnection {
    watchers: Rc<Watchers>,
    node_name: Rc<str>,
    /// The local address of the connection.
    here: Option<IpAddr>,
    client_state: Rc<Cell<ClientState>>,
}

impl ServedConnection {
    pub(super) fn new(
        watchers: Rc<Watchers>,
        node_name: Rc<str>,
        here: Option<IpAddr>,
        client_state: Rc<Cell<ClientState>>,
    ) -> Self {
        Self { watchers, node_name, here, client_state }
    }

    fn reply(&self, request: &Request) -> Reply {
        if !matches!(&*request.method, "GET" | "HEAD") {
            return Reply::Whole(Response::only_get());
        }
        if !is_ours(request.header("host").unwrap_or_default(), self.here, &self.node_name) {
            let text = "this node does not go by that name: ask for it by its address\n";
            return Reply::Whole(Response::text(Status::Forbidden, text));
        }
        if is_from_elsewhere(request) {
            return Reply::Whole(Response::text(Status::Forbidden, "only this node's own page may ask\n"));
        }
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

impl RequestHandler for ServedConnection {
    fn keeps_alive(&self) -> bool {
        false
    }

    fn answer<'a>(&'a self, request: &'a Request) -> ResponseFuture<'a> {
        Box::pin(ready(self.reply(request)))
    }

    fn unread(&self) -> Option<&Rc<UnreadResponses>> {
        Some(self.watchers.unread())
    }

    fn headers(&self) -> &'static str {
        PAGE_HEADERS
    }
}
