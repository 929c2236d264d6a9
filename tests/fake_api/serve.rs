//! The life of a connection, and of each request on it.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use serde_json::{Value, json};

use super::Shared;
use super::api_error::ApiError;
use super::authorizer::Attributes;
use super::collections::ListOptions;
use super::connection::Wire;
use super::deletion::DeleteOptions;
use super::faults::{self, Fault, WatchFault};
use super::http::{Message, Reader, Response};
use super::identity::Identity;
use super::negotiation::accepted;
use super::patch::PatchType;
use super::request_log::Request;
use super::resources::Target;
use super::verbs::Caller;
use super::watch::{self, Watch};
use super::world::{Traffic, World};

/// What a request leads to.
enum Reply {
    Answer(Response),
    Watch(Box<Watch>),
}

/// What is to become of the connection.
enum Next {
    Another,
    Close,
    Cut,
}

/// Answers requests until the client goes, or the test is over.
pub(super) fn serve(shared: &Arc<Shared>, tcp: TcpStream, number: u64, traffic: &Arc<Traffic>) {
    if shared.pass(number) {
        let mut wire = Wire::new(tcp, Arc::clone(traffic), shared.tls.as_ref());
        let mut reader = Reader::default();
        loop {
            let Ok(Some(message)) = reader.read(&mut wire) else { break wire.close() };
            if !shared.pass(number) {
                break wire.cut();
            }
            match handle(shared, &mut wire, number, message) {
                Ok(Next::Another) => {}
                Ok(Next::Close) => break wire.close(),
                Ok(Next::Cut) | Err(_) => break wire.cut(),
            }
        }
    }
    shared.remove_socket(number);
    shared.change(|world| world.disconnect(number));
}

fn handle(shared: &Arc<Shared>, wire: &mut Wire, connection: u64, message: Message) -> io::Result<Next> {
    let closes = message.wants_close();
    let known = authenticate(shared, wire, &message);
    let identity = known.clone().unwrap_or_else(Identity::anonymous);
    let (request, faults) = shared.change(|world| {
        let request = logged(world, connection, &message, identity);
        let faults = faults::faults(&mut world.rules, &request);
        (request, faults)
    });
    let mut last = None;
    for fault in faults {
        match fault {
            Fault::Delay(delay) => shared.delay(delay, connection),
            Fault::Hold => shared.hold(connection),
            Fault::Hang => {
                shared.hang(connection);
                return Ok(Next::Cut);
            }
            Fault::Cut => return Ok(Next::Cut),
            Fault::Speak(bytes) => {
                wire.send(&bytes)?;
                return Ok(Next::Close);
            }
            other => last = Some(other),
        }
    }
    if shared.is_over() {
        return Ok(Next::Cut);
    }
    let reply = match (&last, known) {
        (Some(Fault::Answer(response)), _) => Reply::Answer(response.clone()),
        (_, None) => Reply::Answer(refusal(&ApiError::unauthorized())),
        (_, Some(_)) if message.is_too_large => Reply::Answer(refusal(&ApiError::too_large())),
        (_, Some(_)) => shared.change(|world| reply(world, &request)),
    };
    match reply {
        Reply::Watch(watch) => {
            let fault = match last {
                Some(Fault::Watch(fault)) => Some(fault),
                _ => None,
            };
            start_watch(shared, wire, &request, &watch, fault)
        }
        Reply::Answer(response) => {
            let response = shared.change(|world| finish(world, &request, response));
            let next = answer(shared, wire, connection, &response, last)?;
            Ok(if closes || message.is_too_large { Next::Close } else { next })
        }
    }
}

fn start_watch(
    shared: &Arc<Shared>,
    wire: &mut Wire,
    request: &Request,
    watch: &Watch,
    fault: Option<WatchFault>,
) -> io::Result<Next> {
    let head = Response::new(200, "application/json", "");
    let head = shared.change(|world| finish(world, request, head)).header("Transfer-Encoding", "chunked");
    wire.send(&head.head())?;
    let is_complete = watch::run(shared, wire, watch, request.connection, fault);
    shared.change(|world| world.watches.retain(|open| open.id != watch.id));
    Ok(if is_complete? { Next::Another } else { Next::Cut })
}

/// Sends an answer, or what a fault leaves of it.
fn answer(
    shared: &Arc<Shared>,
    wire: &mut Wire,
    connection: u64,
    response: &Response,
    fault: Option<Fault>,
) -> io::Result<Next> {
    let malformed = Response { body: response.body[..response.body.len() / 2].to_vec(), ..response.clone() };
    let (head, body) = if fault == Some(Fault::Malformed) { malformed.encode() } else { response.encode() };
    let whole = [head.as_slice(), &body].concat();
    let half = head.len() + body.len() / 2;
    if !shared.pass(connection) {
        return Ok(Next::Cut);
    }
    match fault {
        Some(Fault::HangAfterEffect) => {
            shared.hang(connection);
            Ok(Next::Cut)
        }
        Some(Fault::CutAfterEffect) => Ok(Next::Cut),
        Some(Fault::CutInAnswer) => {
            wire.send(&whole[..half])?;
            Ok(Next::Cut)
        }
        Some(Fault::StallInAnswer) => {
            wire.send(&whole[..half])?;
            shared.hang(connection);
            Ok(Next::Cut)
        }
        Some(Fault::Drip { bytes, pause }) => {
            for part in whole.chunks(bytes.max(1)) {
                wire.send(part)?;
                shared.pause(pause, connection);
                if shared.is_over() {
                    return Ok(Next::Cut);
                }
            }
            Ok(Next::Another)
        }
        _ => {
            wire.send(&whole)?;
            Ok(Next::Another)
        }
    }
}

/// Who it is; `None` if somebody was named, and is not known.
fn authenticate(shared: &Shared, wire: &Wire, message: &Message) -> Option<Identity> {
    let (now, token) = shared.look(|world| {
        let token = message.header("authorization").strip_prefix("Bearer ");
        (world.now(), token.map(|token| world.tokens.get(token.trim()).cloned()))
    });
    let certificate = wire.client_certificate();
    let by_certificate = certificate.as_ref().and_then(|certificate| {
        let is_known = shared.tls.as_ref().is_some_and(|tls| tls.knows(certificate, now));
        is_known.then(|| Identity::of_certificate(certificate))?
    });
    match (by_certificate, certificate, token) {
        (Some(identity), ..) | (None, _, Some(Some(identity))) => Some(identity.authenticated()),
        (None, None, None) => Some(Identity::anonymous()),
        _ => None,
    }
}

/// Writes a request down.
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

/// Does what is asked.
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
        "list" | "watch" => Some(ListOptions::parse(&request.query)?),
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
        ("get", _) => (200, world.get_object(&target)?),
        ("create", _) => {
            let written = world.create(&caller, &target, body()?)?;
            (201, written.object)
        }
        ("update", _) => {
            let written = world.update(&caller, &target, body()?)?;
            (if written.created { 201 } else { 200 }, written.object)
        }
        ("patch", _) => {
            let patch_type = PatchType::of_content_type(request.header("content-type"))?;
            let patch = body().map_err(|_| ApiError::bad_request("invalid JSON document"))?;
            (200, world.patch(&caller, &target, patch_type, &patch)?.object)
        }
        ("delete", _) => {
            let options = DeleteOptions::parse(&request.body, request.parameter("gracePeriodSeconds"))?;
            (200, world.delete(&caller, &target, &options)?)
        }
        _ => return Err(ApiError::method_not_allowed()),
    };
    let object = if object["kind"] == "Status" { object } else { form.show(object) };
    let response = Response::new(status, "application/json", object.to_string() + "\n");
    let is_read = request.method == "GET" && request.header("accept-encoding").contains("gzip");
    let is_large = response.body.len() > world.options.gzip_above;
    Ok(Reply::Answer(if is_read && is_large { response.gzipped() } else { response }))
}

fn unreadable(target: &Target, error: &serde_json::Error) -> ApiError {
    let kind = target.resource.kind;
    ApiError::bad_request(format!("{kind} in version {:?} cannot be handled as a {kind}: {error}", target.version))
}

fn refusal(error: &ApiError) -> Response {
    let response = Response::new(error.code, "application/json", error.status().to_string() + "\n");
    let response = match error.retry_after {
        Some(seconds) => response.header("Retry-After", seconds.to_string()),
        None => response,
    };
    if error.code == 403 { response.header("X-Content-Type-Options", "nosniff") } else { response }
}

/// Paths that are no resource.
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
        _ => Response::new(404, "text/plain; charset=utf-8", "404 page not found\n"),
    }
}

/// The headers of every answer, and a note of what it was.
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
        .header("X-Kubernetes-Pf-Flowschema-Uid", "6b1b7f5e-3fbd-4d0a-9e0c-1f64b3c1c4f1")
        .header("X-Kubernetes-Pf-Prioritylevel-Uid", "0f2ac4b8-95b2-45c9-8f2a-5f3f7cbb1de3")
        .header("Date", date);
    // What an answer says itself counts.
    all.headers.retain(|(name, _)| !response.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name)));
    all.headers.extend(response.headers);
    all
}
