//! The life of a request: logged, subjected to faults, executed, answered.

use std::io;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};

use super::Shared;
use super::api_error::ApiError;
use super::authorizer::Attributes;
use super::collections::ListOptions;
use super::deletion::DeleteOptions;
use super::exchange::Exchange;
use super::fairness::{self, PriorityLevel};
use super::faults::{self, End, Fault, WatchFault};
use super::http::{BUFFERED, CHUNK, Message, Response};
use super::identity::Identity;
use super::negotiation::{accepted, encoded};
use super::patch::PatchType;
use super::request_log::Request;
use super::resources::{Resource, Target};
use super::verbs::Caller;
use super::watch::{self, Watch};
use super::world::World;

/// The peer of a connection.
pub(crate) struct Client {
    pub connection: u64,
    pub certificate: Option<CertificateDer<'static>>,
}

/// The reply to a request.
pub(crate) enum Reply {
    Answer(Response),
    Watch(Box<Watch>),
}

/// Handles a request. `token` identifies the waiting client.
pub(super) fn handle(
    shared: &Arc<Shared>,
    exchange: &mut dyn Exchange,
    client: &Client,
    token: u64,
    message: Message,
) -> io::Result<()> {
    let known = authenticate(shared, client, &message);
    let identity = known.clone().unwrap_or_else(Identity::anonymous);
    let (request, faults) = shared.change(|world| {
        let request = logged(world, client.connection, &message, identity);
        let faults = faults::faults(&mut world.rules, &request);
        (request, faults)
    });
    let Some(seat) = shared.seat(PriorityLevel::of(&message.target), client.connection, token) else {
        return answer(shared, exchange, client.connection, token, &fairness::refusal(), None);
    };
    let mut last = None;
    for fault in faults {
        match fault {
            Fault::Delay(delay) => shared.delay(delay, client.connection, token),
            Fault::Hold => shared.hold(client.connection, token),
            Fault::Hang => {
                shared.hang(client.connection, token);
                exchange.cut();
                return Ok(());
            }
            Fault::EndBeforeEffect(End::Connection) => {
                exchange.cut();
                return Ok(());
            }
            Fault::EndBeforeEffect(End::Stream(seen)) => {
                exchange.abort(seen);
                return Ok(());
            }
            Fault::Speak(bytes) => return exchange.speak(&bytes),
            other => last = Some(other),
        }
    }
    if shared.is_over() {
        exchange.cut();
        return Ok(());
    }
    let reply = match (&last, known) {
        (Some(Fault::Answer(response)), _) => Reply::Answer(response.clone()),
        (_, None) => Reply::Answer(refusal(&ApiError::unauthorized())),
        (_, Some(_)) if message.is_too_large => Reply::Answer(refusal(&ApiError::too_large())),
        (_, Some(_)) => shared.change(|world| reply(world, &request)),
    };
    match reply {
        Reply::Watch(watch) => {
            // A watch has a seat until it has begun.
            drop(seat);
            let fault = match last {
                Some(Fault::Watch(fault)) => Some(fault),
                _ => None,
            };
            start_watch(shared, exchange, client, token, &request, &watch, fault)
        }
        Reply::Answer(response) => {
            let response = shared.change(|world| finish(world, &request, response));
            answer(shared, exchange, client.connection, token, &response, last)
        }
    }
}

/// The reply to an authenticated request without faults.
pub(super) fn decide(world: &mut World, message: &Message, identity: Identity) -> Reply {
    let request = logged(world, 0, message, identity.authenticated());
    let reply = match message.is_too_large {
        true => Reply::Answer(refusal(&ApiError::too_large())),
        false => reply(world, &request),
    };
    match reply {
        Reply::Answer(response) => Reply::Answer(finish(world, &request, response)),
        watch @ Reply::Watch(_) => watch,
    }
}

fn start_watch(
    shared: &Arc<Shared>,
    exchange: &mut dyn Exchange,
    client: &Client,
    token: u64,
    request: &Request,
    watch: &Watch,
    fault: Option<WatchFault>,
) -> io::Result<()> {
    let head = Response::new(200, "application/json", "");
    let head = shared.change(|world| finish(world, request, head));
    exchange.head(&head, None)?;
    let run = watch::run(shared, exchange, watch, client.connection, token, fault);
    shared.change(|world| world.watches.retain(|open| open.id != watch.id));
    run
}

/// Sends a response, altered by its fault.
fn answer(
    shared: &Arc<Shared>,
    exchange: &mut dyn Exchange,
    connection: u64,
    token: u64,
    response: &Response,
    fault: Option<Fault>,
) -> io::Result<()> {
    if !shared.pass(token) {
        exchange.cut();
        return Ok(());
    }
    let mut end = None;
    match fault {
        Some(Fault::HangAfterEffect) => {
            shared.hang(connection, token);
            end = Some(End::Connection);
        }
        Some(Fault::EndAfterEffect(how)) => end = Some(how),
        _ => {}
    }
    if let Some(end) = end {
        end.make(exchange);
        return Ok(());
    }
    let body = match fault {
        Some(Fault::Malformed) => &response.body[..response.body.len() / 2],
        _ => &response.body,
    };
    exchange.head(response, (body.len() <= BUFFERED).then_some(body.len()))?;
    let half = &body[..body.len() / 2];
    match fault {
        Some(Fault::EndInAnswer(end)) => {
            exchange.body(half)?;
            end.make(exchange);
            Ok(())
        }
        Some(Fault::StallInAnswer) => {
            exchange.body(half)?;
            shared.hang(connection, token);
            exchange.cut();
            Ok(())
        }
        Some(Fault::Drip { bytes, pause }) => {
            for part in body.chunks(bytes.max(1)) {
                exchange.body(part)?;
                shared.pause(pause, token);
            }
            exchange.end()
        }
        _ => {
            body.chunks(CHUNK).try_for_each(|part| exchange.body(part))?;
            exchange.end()
        }
    }
}

impl End {
    fn make(self, exchange: &mut dyn Exchange) {
        match self {
            Self::Connection => exchange.cut(),
            Self::Stream(seen) => exchange.abort(seen),
        }
    }
}

/// The identity of the client; `None` if its credentials are invalid.
fn authenticate(shared: &Shared, client: &Client, message: &Message) -> Option<Identity> {
    let (now, token) = shared.look(|world| {
        let token = message.header("authorization").strip_prefix("Bearer ");
        (world.now(), token.map(|token| world.tokens.get(token.trim()).cloned()))
    });
    let certificate = client.certificate.as_ref();
    let by_certificate = certificate.and_then(|certificate| {
        let is_known = shared.tls.as_ref().is_some_and(|tls| tls.knows(certificate, now));
        is_known.then(|| Identity::of_certificate(certificate))?
    });
    match (by_certificate, certificate, token) {
        (Some(identity), ..) | (None, _, Some(Some(identity))) => Some(identity.authenticated()),
        (None, None, None) => Some(Identity::anonymous()),
        _ => None,
    }
}

/// Adds a request to the request log.
fn logged(world: &mut World, connection: u64, message: &Message, identity: Identity) -> Request {
    let (path, query) = message.path_and_query();
    let is_watch = query.iter().any(|(name, value)| name == "watch" && ["true", "1"].contains(&value.as_str()));
    let is_collection = Target::parse(&path).is_some_and(|target| target.is_collection());
    let verb = match message.method.as_str() {
        "GET" if is_collection && is_watch => "watch",
        "GET" if is_collection => "list",
        "GET" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" if is_collection => "deletecollection",
        "DELETE" => "delete",
        _ => "",
    };
    let request = Request {
        number: world.requests.len() + 1,
        connection,
        method: message.method.clone(),
        verb,
        path,
        query,
        headers: message.headers.clone(),
        body: message.body.clone(),
        identity,
        status: None,
    };
    world.requests.push(request.clone());
    request
}

/// Executes the request.
fn reply(world: &mut World, request: &Request) -> Reply {
    match execute(world, request) {
        Ok(reply) => reply,
        Err(error) => Reply::Answer(refusal(&error)),
    }
}

fn execute(world: &mut World, request: &Request) -> Result<Reply, ApiError> {
    let form = accepted(request.header("accept"));
    let target = Target::parse(&request.path);
    let options = match request.verb {
        "list" | "watch" | "deletecollection" => Some(ListOptions::parse(&request.query)?),
        _ => None,
    };
    world.authorize(&Attributes {
        identity: &request.identity,
        verb: request.verb,
        path: &request.path,
        target: target.as_ref(),
        selector: options.as_ref().map(|options| &options.selector),
    })?;
    let Some(target) = target else { return Ok(Reply::Answer(beside_resources(request))) };
    let form = form?;
    if !["", "status", "approval", "token", "eviction"].contains(&target.subresource.as_str()) {
        return Err(ApiError::no_such_resource());
    }
    let agent = request.header("user-agent").split('/').next().unwrap_or_default();
    let manager = request.parameter("fieldManager").unwrap_or(if agent.is_empty() { "unknown" } else { agent });
    let caller = Caller { identity: request.identity.clone(), manager: manager.to_owned() };
    let body = || serde_json::from_slice::<Value>(&request.body).map_err(|error| unreadable(&target, &error));
    let (status, object) = match (request.verb, options) {
        ("watch", Some(options)) => {
            let watch = Watch::begin(world, &target, &options, form)?;
            return Ok(Reply::Watch(Box::new(watch)));
        }
        ("list", Some(options)) => (200, world.list_objects(&target, &options)?),
        ("deletecollection", Some(options)) => (200, world.delete_collection(&caller, &target, &options)?),
        ("get", _) => (200, world.get_object(&target)?),
        ("create", _) => {
            let written = world.create(&caller, &target, body()?)?;
            (201, written.object)
        }
        ("update" | "patch", _) if target.is_collection() => return Err(ApiError::method_not_allowed()),
        ("update", _) => {
            let written = world.update(&caller, &target, body()?)?;
            (if written.created { 201 } else { 200 }, written.object)
        }
        ("patch", _) => {
            let patch_type = PatchType::of_content_type(request.header("content-type"))?;
            let patch = body().map_err(|_| ApiError::bad_request("unexpected end of JSON input"))?;
            (200, world.patch(&caller, &target, patch_type, &patch)?.object)
        }
        ("delete", _) => {
            let options = DeleteOptions::parse(&request.body, request.parameter("gracePeriodSeconds"))?;
            (200, world.delete(&caller, &target, &options)?)
        }
        _ => return Err(ApiError::method_not_allowed()),
    };
    let object = if object["kind"] == "Status" { object } else { form.show(object) };
    let response = Response::new(status, "application/json", encoded(&object) + "\n");
    let is_read = request.method == "GET" && request.header("accept-encoding").contains("gzip");
    let is_large = response.body.len() > world.options.gzip_above;
    Ok(Reply::Answer(if is_read && is_large { response.gzipped() } else { response }))
}

fn unreadable(target: &Target, error: &serde_json::Error) -> ApiError {
    let kind = target.resource.kind;
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {error}"
    ))
}

fn refusal(error: &ApiError) -> Response {
    let response = Response::new(error.code, "application/json", encoded(&error.status()) + "\n");
    let response = match error.retry_after {
        Some(seconds) => response.header("Retry-After", seconds.to_string()),
        None => response,
    };
    if error.code == 403 { response.header("X-Content-Type-Options", "nosniff") } else { response }
}

/// Serves non-resource paths.
fn beside_resources(request: &Request) -> Response {
    match request.path.as_str() {
        "/healthz" | "/livez" | "/readyz" => Response::new(200, "text/plain; charset=utf-8", "ok"),
        "/version" => {
            let version = json!({
                "major": "1", "minor": "36", "gitVersion": "v1.36.2", "gitTreeState": "clean",
                "goVersion": "go1.26.4", "compiler": "gc", "platform": "linux/amd64"
            });
            Response::new(200, "application/json", version.to_string())
        }
        path => {
            let parts: Vec<&str> = path.split('/').skip(1).collect();
            let is_served = match *parts {
                ["api", version, _, ..] => Resource::is_served("", version),
                ["apis", group, version, _, ..] => Resource::is_served(group, version),
                _ => false,
            };
            if is_served {
                return refusal(&ApiError::no_such_resource());
            }
            Response::new(404, "text/plain; charset=utf-8", "404 page not found\n")
        }
    }
}

/// Adds the common headers, and logs the response's status.
fn finish(world: &mut World, request: &Request, response: Response) -> Response {
    if let Some(logged) = world.requests.get_mut(request.number - 1) {
        logged.status = Some(response.status);
    }
    let audit = match request.header("audit-id") {
        "" => world.new_uid(),
        given => given.to_owned(),
    };
    let date = world.now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let mut all = Response { status: response.status, headers: Vec::new(), body: response.body }
        .header("Audit-Id", audit)
        .header("Cache-Control", "no-cache, private")
        .header("Date", date);
    // The filter that sets these headers runs after authentication.
    if all.status != 401 {
        all = all
            .header("X-Kubernetes-Pf-Flowschema-Uid", "6b1b7f5e-3fbd-4d0a-9e0c-1f64b3c1c4f1")
            .header("X-Kubernetes-Pf-Prioritylevel-Uid", "0f2ac4b8-95b2-45c9-8f2a-5f3f7cbb1de3");
    }
    // Headers of the response itself take precedence.
    all.headers.retain(|(name, _)| !response.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name)));
    all.headers.extend(response.headers);
    all
}
