//! One connection of a component: which requests it may make.

use std::cell::{Cell, RefCell};
use std::future::ready;
use std::net::IpAddr;
use std::rc::Rc;

use super::Served;
use super::answer::Answer;
use super::status::OwnStatus;
use crate::control::server::connection_shares::ClientState;
use crate::control::server::connections::{AdmissionFuture, Reply, RequestHandler, ResponseFuture};
use crate::control::server::http::{Response, Status};
use crate::control::server::kubelet_api::bearer;
use crate::control::server::stream_slots::{StreamSlot, TooManyStreams};
use crate::platform::apiserver::PassedRequest;
use crate::protocol::http1::{Request, push_escaped};
use crate::protocol::sha256::sha256;

pub(super) struct Visit {
    served: Rc<Served>,
    peer: IpAddr,
    client_state: Rc<Cell<ClientState>>,
    /// Whose requests are counted: the digest of the token of the last one, or the address while it is unknown.
    client: RefCell<String>,
}

/// Components of a node write events, leases and patches.
const MAX_PASSED_BODY_BYTES: u64 = 256 * 1024;
/// With a token that the API server has not accepted yet.
const MAX_STRANGERS_BODY_BYTES: u64 = 16 * 1024;
/// The fields of a request that are passed on.
const PASSED_FIELDS: [&str; 8] = [
    "accept",
    "accept-encoding",
    "authorization",
    "content-type",
    "user-agent",
    "impersonate-user",
    "impersonate-group",
    "impersonate-uid",
];

impl Visit {
    pub(super) fn new(served: Rc<Served>, peer: IpAddr, client_state: Rc<Cell<ClientState>>) -> Self {
        Self { served, peer, client_state, client: RefCell::default() }
    }

    #[cfg(test)]
    pub(super) fn client(&self) -> String {
        self.client.borrow().clone()
    }

    /// The longest body of the request, or its refusal. `is_passed`: the API server is there.
    pub(super) fn check(&self, request: &Request, is_passed: bool) -> Result<Option<u64>, Response> {
        let Some(token) = request.header("authorization").and_then(bearer) else {
            return Err(response(Status::Unauthorized, &OwnStatus::unauthorized()));
        };
        let bad = |what: &str| Err(response(Status::BadRequest, &OwnStatus::bad_request(what)));
        if request.path.split('/').any(|part| part == "." || part == "..") {
            return bad("the path has . or .. in it");
        }
        // Extra values of another user have names of their own, so that none of them would be lost.
        if request.header("upgrade").is_some() || request.has_header_like("impersonate-extra-") {
            return bad("upgrades and Impersonate-Extra are not passed on: use the API server");
        }
        if !["GET", "POST", "PUT", "PATCH", "DELETE"].contains(&&*request.method) {
            return bad("expected GET, POST, PUT, PATCH or DELETE");
        }
        if self.served.knows(token) {
            self.client.replace(sha256(token.as_bytes()));
            self.client_state.set(ClientState::Busy);
            return Ok(Some(MAX_PASSED_BODY_BYTES));
        }
        self.client.replace(self.peer.to_canonical().to_string());
        self.client_state.set(ClientState::Stranger);
        if !is_passed {
            return Ok(Some(MAX_STRANGERS_BODY_BYTES));
        }
        // A longer body is refused.
        let body = usize::try_from(request.body.min(MAX_STRANGERS_BODY_BYTES)).unwrap_or_default();
        match self.served.tokens.admits_stranger(self.peer, token.len() + body) {
            true => Ok(Some(MAX_STRANGERS_BODY_BYTES)),
            false => Err(response(Status::TooManyRequests, &OwnStatus::too_many())),
        }
    }
}

fn response(status: Status, own: &OwnStatus) -> Response {
    Response { status, content_type: "application/json", body: own.body() }
}

fn passed(request: &Request) -> PassedRequest {
    let mut target = String::new();
    for (index, part) in request.path.split('/').enumerate() {
        if index > 0 {
            target.push('/');
        }
        push_escaped(&mut target, part);
    }
    if !request.query.is_empty() {
        target.extend(["?", &request.query]);
    }
    let fields = PASSED_FIELDS.iter().flat_map(|name| request.all(name).map(|value| (*name, value.to_owned())));
    PassedRequest { method: request.method.clone(), target, fields: fields.collect(), content: request.content.clone() }
}

impl RequestHandler for Visit {
    fn keeps_alive(&self) -> bool {
        true
    }

    fn admit<'a>(&'a self, request: &'a Request) -> AdmissionFuture<'a> {
        Box::pin(ready(self.check(request, self.served.endpoint.node.is_connected())))
    }

    fn handle<'a>(&'a self, request: &'a Request) -> ResponseFuture<'a> {
        let answer = Answer::new(Rc::clone(&self.served), request, passed(request), Rc::clone(&self.client_state));
        Box::pin(ready(Reply::Text(Box::new(answer))))
    }

    fn stream(&self) -> Result<Option<StreamSlot>, TooManyStreams> {
        self.served.slots.take(&self.client.borrow()).map(Some)
    }

    fn on_idle(&self) {
        if self.client_state.get() == ClientState::Busy {
            self.client_state.set(ClientState::Idle);
        }
    }
}
