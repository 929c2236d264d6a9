//! The local API: this node's state, for root on this machine, without a cluster or certificates.
//!
//! HTTP/1.1 on a Unix socket, one request per connection. Responses are JSON, Prometheus text or log text. Streaming
//! requests are the same as on port 10250, upgraded to SPDY/3.1 or WebSocket. All other requests are GETs, except for
//! changes of pods (`pod_changes`), images and the agent itself (`agent_requests`):
//!
//! ```text
//! curl --unix-socket /run/coracle/coracle.sock http://localhost/status    a NodeStatus
//! curl --unix-socket /run/coracle/coracle.sock http://localhost/pods      {"pods": [PodEntry, ...]}
//! curl --unix-socket /run/coracle/coracle.sock http://localhost/events    a v1.EventList
//! curl --unix-socket /run/coracle/coracle.sock http://localhost/devices   {"devices": [DeviceEntry, ...]}
//! curl --unix-socket /run/coracle/coracle.sock http://localhost/jobs      {"jobs": [JobRow, ...], "cronJobs": [CronJobRow, ...]}
//! curl --unix-socket /run/coracle/coracle.sock http://localhost/images    {"images": [ImageEntry, ...]}
//! curl --unix-socket /run/coracle/coracle.sock -X POST http://localhost/images?image=NAME    {"result": ID}
//! curl --unix-socket /run/coracle/coracle.sock -X DELETE http://localhost/images?image=NAME
//! curl --unix-socket /run/coracle/coracle.sock -X POST http://localhost/sync?wait=true
//! curl --unix-socket /run/coracle/coracle.sock http://localhost/stats/summary
//! curl --unix-socket /run/coracle/coracle.sock http://localhost/metrics
//! curl --unix-socket /run/coracle/coracle.sock http://localhost/metrics/probes
//! curl --unix-socket /run/coracle/coracle.sock http://localhost/metrics/resource
//! curl --unix-socket /run/coracle/coracle.sock http://localhost/metrics/cadvisor
//! curl --unix-socket /run/coracle/coracle.sock http://localhost/containerLogs/default/web-node1/main?follow=true
//!     /exec/NAMESPACE/POD/CONTAINER?command=sh&input=1&output=1&error=1&tty=1
//!     /attach/NAMESPACE/POD/CONTAINER?input=1&output=1&error=1&tty=1
//!     /portForward/NAMESPACE/POD
//! curl --unix-socket /run/coracle/coracle.sock http://localhost/pods/default/web -T web.yaml
//! curl --unix-socket /run/coracle/coracle.sock http://localhost/pods/default/web -X DELETE
//! ```

use std::cell::Cell;
use std::future::ready;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use nix::unistd::Gid;

use super::agent_requests::agent;
use super::connection_shares::{ClientState, ConnectionLimits, Peer};
use super::connections::{
    AdmissionFuture, MAX_LOCAL_CONNECTIONS, Reply, RequestHandler, ResponseFuture, serve_connection,
};
use super::container_logs::container_logs;
use super::http::{Response, Status};
use super::images::{self, images};
use super::json_list::{List, json};
use super::local_api::{DeviceEntries, LocalApi};
use super::local_socket::{LocalError, LocalPeer, LocalSocket, READERS_GROUP};
use super::metrics_pages::Page;
use super::open_connections::{ConnectionFuture, Connections};
use super::pod_changes;
use super::stream_slots::{StreamSlot, StreamSlots, TooManyStreams};
use super::streaming::{Streaming, stream};
use super::sync_requests::sync;
use super::unread_responses::UnreadResponses;
use crate::platform::rt;
use crate::protocol::http1::Request;
use crate::state::pods::PodChange;
use crate::types::api::{self, Event};
use crate::types::error::ErrorChain;
use crate::types::time::Backoff;

/// The bound local socket. Requests are answered once [`LocalServer::serve`] runs.
#[derive(Debug)]
pub(crate) struct LocalServer {
    socket: LocalSocket,
    streaming: Option<Streaming>,
    slots: Rc<StreamSlots>,
    unread: Rc<UnreadResponses>,
}

impl LocalServer {
    /// Members of the group `readers` may read.
    pub(crate) fn bind(path: &Path, readers: Option<Gid>) -> Result<Self, LocalError> {
        LocalSocket::bind(path, readers).map(|socket| Self {
            socket,
            streaming: None,
            slots: StreamSlots::new(MAX_LOCAL_STREAMS, MAX_LOCAL_STREAMS_OF_PROCESS),
            unread: Rc::default(),
        })
    }

    /// Enables exec, attach and port-forward.
    pub(crate) fn with_streaming(self, streaming: Streaming) -> Self {
        Self { streaming: Some(streaming), ..self }
    }

    /// Serves requests. Never returns.
    pub(crate) async fn serve(self, api: Rc<dyn LocalApi>) {
        let mut connections = Connections::new(LOCAL_CONNECTION_LIMITS);
        // Most likely out of file descriptors: other connections must close first.
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        loop {
            match connections.beside(self.socket.listener.accept()).await {
                Ok((stream, _)) => {
                    backoff.reset();
                    if let Some(peer) = self.socket.peer(&stream) {
                        let (api, streaming, slots) = (Rc::clone(&api), self.streaming.clone(), Rc::clone(&self.slots));
                        let unread = Rc::clone(&self.unread);
                        let start = move |client_state| {
                            let served = ServedConnection { api, streaming, slots, unread, peer, client_state };
                            let answered: ConnectionFuture = Box::pin(serve_connection(stream, served));
                            answered
                        };
                        connections.add(Peer::Process(peer.process), Box::new(start));
                    }
                }
                Err(error) => {
                    log!(warn, "local socket failed, trying again", error = ErrorChain(&error));
                    rt::sleep(backoff.next_wait()).await;
                }
            }
        }
    }
}

/// One connection with one request.
struct ServedConnection {
    api: Rc<dyn LocalApi>,
    streaming: Option<Streaming>,
    slots: Rc<StreamSlots>,
    peer: LocalPeer,
    unread: Rc<UnreadResponses>,
    client_state: Rc<Cell<ClientState>>,
}

impl RequestHandler for ServedConnection {
    fn keeps_alive(&self) -> bool {
        false
    }

    fn admit<'a>(&'a self, request: &'a Request) -> AdmissionFuture<'a> {
        Box::pin(ready(Ok(pod_changes::body_limit(request))))
    }

    fn unread(&self) -> Option<&Rc<UnreadResponses>> {
        Some(&self.unread)
    }

    fn stream(&self) -> Result<Option<StreamSlot>, TooManyStreams> {
        self.slots.take(&self.peer.process.to_string()).map(Some)
    }

    fn handle<'a>(&'a self, request: &'a Request) -> ResponseFuture<'a> {
        // A followed log or a shell must not be displaced by later connections.
        self.client_state.set(ClientState::Busy);
        Box::pin(ready(self.reply(request)))
    }
}

impl ServedConnection {
    fn reply(&self, request: &Request) -> Reply {
        let api = &*self.api;
        if !self.peer.may_change && !is_read(request) {
            let why = format!("members of the group {READERS_GROUP} may read: only root may do this\n");
            return Reply::Whole(Response::text(Status::Forbidden, why));
        }
        let streamed = self.streaming.as_ref().and_then(|streaming| stream(request, api, streaming));
        if let Some(reply) =
            streamed.or_else(|| images(request, api).or_else(|| sync(request, api)).or_else(|| agent(request, api)))
        {
            return reply;
        }
        match pod_changes::change(request, true) {
            Some(change) => reply_to_change(change, api),
            None if matches!(&*request.method, "GET" | "HEAD") => respond(&request.path, &request.query, api),
            None => Reply::Whole(Response::only_get()),
        }
    }
}

/// Whether the request changes nothing and is no stream to a container. A manifest may have a password.
fn is_read(request: &Request) -> bool {
    let is_stream = ["/exec/", "/attach/", "/portForward/"].iter().any(|path| request.path.starts_with(path));
    request.method == "GET" && !is_stream && !pod_changes::is_of_pod(&request.path)
}

/// Connections that have not sent a request yet count as strangers'.
const LOCAL_CONNECTION_LIMITS: ConnectionLimits =
    ConnectionLimits { most: 128, most_strangers: MAX_LOCAL_CONNECTIONS, most_of_one: 112 };
/// Maximum number of streams, and of those of one process. The other connections are for requests that end soon.
const MAX_LOCAL_STREAMS: usize = 96;
const MAX_LOCAL_STREAMS_OF_PROCESS: usize = 64;

/// Carries out a request about one pod, for any server.
pub(super) fn reply_to_change(change: Result<PodChange, Response>, api: &dyn LocalApi) -> Reply {
    match change {
        Ok(change) => {
            let outcome = api.change(change);
            Reply::Later(Box::pin(async { pod_changes::response(outcome.await) }))
        }
        Err(response) => Reply::Whole(response),
    }
}

fn respond(path: &str, query: &str, api: &dyn LocalApi) -> Reply {
    if let Some(page) = Page::of(path, query) {
        return page_of(page, api);
    }
    if path == "/status" {
        return images::status(api);
    }
    container_logs(path, query, api).unwrap_or_else(|| Reply::Whole(respond_whole(path, api)))
}

/// A metrics page, for any server.
pub(super) fn page_of(page: Page, api: &dyn LocalApi) -> Reply {
    let figures = api.page(page);
    let response =
        async move { Response { status: Status::Ok, content_type: page.content_type(), body: figures.await } };
    Reply::Later(Box::pin(response))
}

/// Pages that need no waiting.
pub(super) fn respond_whole(path: &str, api: &dyn LocalApi) -> Response {
    match path {
        "/status" => Response::json(json(&api.status())),
        "/pods" => {
            let mut list = List::new("{\"pods\":[");
            api.pods(&mut |entry| list.push(&json(&entry)));
            Response::json(list.end())
        }
        "/devices" => Response::json(json(&DeviceEntries { devices: api.devices() })),
        "/jobs" => Response::json(json(&api.jobs())),
        "/events" => Response::json(event_list(api, &|event| event)),
        _ => Response::not_found(),
    }
}

/// A v1.EventList of the events after `redact`.
pub(super) fn event_list(api: &dyn LocalApi, redact: &dyn Fn(Event) -> Event) -> Vec<u8> {
    let mut list = List::new("{\"apiVersion\":\"v1\",\"kind\":\"EventList\",\"metadata\":{},\"items\":[");
    api.events(&mut |event| list.push(api::encode_text(&redact(event)).as_bytes()));
    list.end()
}

#[cfg(test)]
mod tests;
