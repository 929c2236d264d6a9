//! One connection: authenticates, authorizes and answers requests.

use std::cell::{Cell, RefCell};
use std::future::ready;
use std::net::IpAddr;
use std::rc::Rc;

use rustls::pki_types::CertificateDer;

use super::KubeletApiServer;
use super::attributes::Attributes;
use super::bearer_token::tokens;
use super::client_ca::Verified;
use super::debug_flags::{self, debug_flags};
use super::delegated_auth::{Lifetimes, ReviewFailure};
use super::error::CertificateError;
use super::health_metrics;
use super::healthz::{checks, respond};
use super::pod_lists;
use super::profiles::profiles;
use super::run_and_checkpoint::{checkpoint, run};
use super::shared_images::{is_for_images, is_node, shared_images};
use super::system_logs::system_logs;
use super::user::User;
use super::zpages;
use crate::control::server::connection_shares::ClientState;
use crate::control::server::connections::{AdmissionFuture, Reply, RequestHandler, ResponseFuture};
use crate::control::server::container_logs::container_logs;
use crate::control::server::http::{Response, Status};
use crate::control::server::local_server::{page_of, reply_to_change};
use crate::control::server::metrics_pages::Page;
use crate::control::server::pod_changes;
use crate::control::server::stream_slots::{StreamSlot, TooManyStreams};
use crate::control::server::streaming::stream;
use crate::control::server::unread_responses::UnreadResponses;
use crate::platform::config::{Authorization, Gate};
use crate::platform::rt;
use crate::protocol::http1::Request;
use crate::types::api::KUBERNETES_VERSION;
use crate::types::error::ErrorChain;

pub(super) struct ServedConnection {
    server: Rc<KubeletApiServer>,
    peer: IpAddr,
    /// The user of the last request.
    client: RefCell<String>,
    /// The user who may make the request that is being read.
    admitted: RefCell<Option<User>>,
    /// The certificates that the client presented in the handshake.
    client_chain: Vec<CertificateDer<'static>>,
    verified: RefCell<Option<Verified>>,
    client_state: Rc<Cell<ClientState>>,
}

impl ServedConnection {
    pub(super) fn new(
        server: Rc<KubeletApiServer>,
        peer: IpAddr,
        client_chain: Vec<CertificateDer<'static>>,
        client_state: Rc<Cell<ClientState>>,
    ) -> Self {
        Self {
            server,
            peer,
            client: RefCell::default(),
            admitted: RefCell::default(),
            client_chain,
            verified: RefCell::default(),
            client_state,
        }
    }

    /// Authenticates and authorizes the client. Nothing is kept of the body of a request that it may not make.
    async fn check(&self, request: &Request) -> Result<(), Response> {
        let user = self.user(request).await?;
        self.client_state.set(ClientState::Busy);
        self.client.replace(format!("{} {}", user.name, self.peer));
        let may_have_images = || self.is_by_certificate() && is_node(&user);
        match self.is_for_images(request) {
            true if may_have_images() => {}
            true => return Err(Response::text(Status::Forbidden, NOT_A_NODE)),
            false => self.check_rights(&user, request).await?,
        }
        self.admitted.replace(Some(user));
        Ok(())
    }

    async fn check_rights(&self, user: &User, request: &Request) -> Result<(), Response> {
        let is_change = pod_changes::is_of_pod(&request.path);
        if is_change && !self.is_by_certificate() {
            return Err(Response::text(Status::Forbidden, NO_CERTIFICATE));
        }
        self.may(user, request).await?;
        if !self.server.settings.debugging && (is_change || is_for_debugging(&request.path)) {
            return Err(Response::text(Status::MethodNotAllowed, "Debug endpoints are disabled.\n"));
        }
        Ok(())
    }

    fn is_for_images(&self, request: &Request) -> bool {
        self.server.shared.is_some() && is_for_images(&request.path)
    }

    /// The reply to the request that was admitted last.
    fn reply(&self, request: &Request) -> Reply {
        let Some(user) = self.admitted.take() else {
            return Reply::Last(Response::text(Status::Unauthorized, "Unauthorized"));
        };
        if let Some(shared) = self.server.shared.as_ref().filter(|_| is_for_images(&request.path)) {
            return shared_images(request, shared, &user.name);
        }
        let api = &*self.server.api;
        if let Some(change) = pod_changes::change(request, false) {
            return reply_to_change(change, api);
        }
        match Page::of(&request.path, &request.query) {
            // Upstream closes this page with the debugging handlers, without a message.
            Some(Page::Configuration) if !self.server.settings.debugging => return Reply::Whole(Response::not_found()),
            Some(page) => return page_of(page, api),
            None => {}
        }
        if let Some(reply) = stream(request, api, &self.server.streaming) {
            return reply;
        }
        if let Some(reply) = self.privileged_endpoint(request) {
            return reply;
        }
        let logs = if request.method == "GET" { container_logs(&request.path, &request.query, api) } else { None };
        logs.unwrap_or_else(|| Reply::Whole(self.respond(request)))
    }

    /// Endpoints that act on containers or read files of the node.
    fn privileged_endpoint(&self, request: &Request) -> Option<Reply> {
        let (server, api) = (&*self.server, &*self.server.api);
        let cri = &server.streaming.cri;
        let system_logs = || {
            let reply = system_logs(request, server.settings.system_log_queries)?;
            let closed = || Reply::Whole(Response::text(Status::MethodNotAllowed, "logs endpoint is disabled.\n"));
            Some(if server.settings.system_logs { reply } else { closed() })
        };
        let checkpoint = || match server.settings.debugging && server.gates.is_on(Gate::ContainerCheckpoint) {
            true => checkpoint(request, api, cri, &server.checkpoints),
            false => None,
        };
        run(request, api, cri).or_else(checkpoint).or_else(system_logs)
    }

    /// The user of the request, in upstream's order: by certificate, by token, or anonymous. A client with invalid
    /// credentials is rejected instead of treated as anonymous.
    async fn user(&self, request: &Request) -> Result<User, Response> {
        let mut is_refused = false;
        if !self.client_chain.is_empty() {
            match self.by_certificate() {
                Ok(user) => return Ok(user),
                Err(error) => {
                    log!(debug, "client certificate rejected", error = ErrorChain(&error));
                    is_refused = true;
                }
            }
        }
        if let Some(good) = self.server.settings.token_ttl {
            let tokens = tokens(request).unwrap_or_else(|why| {
                log!(debug, "client token malformed", error = why);
                is_refused = true;
                Vec::new()
            });
            for token in tokens {
                match self.server.delegated_auth.user_of(&token, self.peer, good).await {
                    Ok(Some(user)) => return Ok(user),
                    Ok(None) => {}
                    Err(ReviewFailure::TooMany) => {
                        let text = "too many unknown tokens: try again in a minute\n";
                        return Err(Response::text(Status::TooManyRequests, text));
                    }
                    Err(ReviewFailure::Failed(error)) => {
                        log!(debug, "failed to review a token", error = ErrorChain(&error));
                    }
                }
                is_refused = true;
            }
        }
        match self.server.settings.anonymous && !is_refused {
            true => Ok(User::anonymous()),
            false => Err(Response::text(Status::Unauthorized, "Unauthorized")),
        }
    }

    fn by_certificate(&self) -> Result<User, CertificateError> {
        let authorities = &self.server.authorities;
        let mut verified = self.verified.borrow_mut();
        match &*verified {
            Some(known) if known.holds(authorities) => known.user.clone(),
            _ => verified.insert(authorities.verify(&self.client_chain)).user.clone(),
        }
    }

    /// Whether the client has a valid certificate, which pod changes require.
    fn is_by_certificate(&self) -> bool {
        !self.client_chain.is_empty() && self.by_certificate().is_ok()
    }

    async fn may(&self, user: &User, request: &Request) -> Result<(), Response> {
        let Authorization::Webhook { allowed_ttl, refused_ttl } = self.server.settings.authorization else {
            return Ok(());
        };
        let good = Lifetimes { allowed: allowed_ttl, refused: refused_ttl };
        let about = Attributes::of(&request.method, &request.path);
        for &part in &about.parts {
            match self.server.delegated_auth.allows(user, about.verb, part, good).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => {
                    let why = ErrorChain(&error);
                    log!(warn, "failed to review access", user = user.name, part = part, error = why);
                    let text = about.undecided(&user.name, part);
                    return Err(Response::text(Status::InternalServerError, text));
                }
            }
        }
        Err(Response::text(Status::Forbidden, about.forbidden(&user.name)))
    }

    fn respond(&self, request: &Request) -> Response {
        let server = &self.server;
        let stalled = server.health.stalled(rt::now()).is_some();
        let checks = checks(stalled);
        if let Some(response) = respond(request, &checks) {
            health_metrics::count(&checks);
            return response;
        }
        if let Some(response) = profiles(&request.path, server.settings.profiling) {
            return response;
        }
        if let Some(response) = debug_flags(request, server.settings.debug_flags) {
            return response;
        }
        // Upstream installs these pages with the debugging handlers, and has no message in their place.
        let shows = |gate| server.settings.debugging && server.gates.is_on(gate);
        match &*request.path {
            "/metrics/slis" => health_metrics::page(&checks),
            "/statusz" if shows(Gate::ComponentStatusz) => {
                let (started, since) = server.started;
                let uptime_seconds = rt::elapsed(since).as_secs();
                let version = KUBERNETES_VERSION.trim_start_matches('v');
                zpages::statusz(request, &zpages::Process { started, uptime_seconds, version })
            }
            "/flagz" if shows(Gate::ComponentFlagz) => zpages::flagz(request, &server.flags),
            "/pods" | "/pods/" => pod_lists::pods(&*server.api),
            "/runningpods" | "/runningpods/" => pod_lists::running(&*server.api),
            _ => Response::not_found(),
        }
    }
}

impl RequestHandler for ServedConnection {
    fn keeps_alive(&self) -> bool {
        true
    }

    fn admit<'a>(&'a self, request: &'a Request) -> AdmissionFuture<'a> {
        let limit = || pod_changes::body_limit(request).or_else(|| debug_flags::body_limit(request));
        Box::pin(async move { self.check(request).await.map(|()| limit()) })
    }

    fn handle<'a>(&'a self, request: &'a Request) -> ResponseFuture<'a> {
        Box::pin(ready(self.reply(request)))
    }

    fn unread(&self) -> Option<&Rc<UnreadResponses>> {
        Some(&self.server.unread)
    }

    fn stream(&self) -> Result<Option<StreamSlot>, TooManyStreams> {
        self.server.slots.take(&self.client.borrow()).map(Some)
    }

    /// Metrics, as upstream, and the other texts that clients read again and again.
    fn compresses(&self, request: &Request) -> bool {
        let path = &*request.path;
        Page::of(path, "").is_some() || pod_lists::is_list(path)
    }

    /// A client that was authenticated stays so between requests.
    fn on_idle(&self) {
        if self.client_state.get() == ClientState::Busy {
            self.client_state.set(ClientState::Idle);
        }
    }
}

/// Whether the path belongs to the endpoints controlled by `enableDebuggingHandlers`.
fn is_for_debugging(path: &str) -> bool {
    const CLOSED: &[&str] = &["run", "exec", "attach", "portForward", "containerLogs", "runningpods", "logs", "debug"];
    path.split('/').nth(1).is_some_and(|first| CLOSED.contains(&first))
}

/// A user whose manifests run on the node has full control of it.
const NO_CERTIFICATE: &str = "Forbidden: pods of the node itself are for who shows a client certificate\n";

const NOT_A_NODE: &str = "Forbidden: images are served to nodes with a client certificate only\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debugging_paths_are_told_from_metrics() {
        for path in ["/exec/ns/web/main", "/run/ns/web/main", "/containerLogs/ns/web/main", "/logs/", "/runningpods/"] {
            assert!(is_for_debugging(path), "{path}");
        }
        for path in ["/", "/pods", "/healthz", "/stats/summary", "/metrics/cadvisor", "/execute", "/configz"] {
            assert!(!is_for_debugging(path), "{path}");
        }
    }
}
