//! The answer to one request: the server's, or what the component has read before.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use super::held_watch::HeldWatch;
use super::status::{OwnStatus, RETRY_AFTER};
use super::{ENDPOINT_RESPONSE_TIMEOUT, Served};
use crate::control::server::connection_shares::ClientState;
use crate::control::server::connections::Text;
use crate::control::server::http::{AfterResponse, Response, passed_head};
use crate::control::server::kubelet_api::{Key, bearer};
use crate::kubelet::api_cache::{AnswerForm, Identity, ReadKind, ReadRequest, Recorder, Remembered, ResponseHead};
use crate::platform::apiserver::{ApiError, PassedRequest, PassedResponse};
use crate::platform::rt;
use crate::protocol::http1::Request;
use crate::types::error::ErrorChain;

pub(super) struct Answer {
    served: Rc<Served>,
    request: PassedRequest,
    token: Option<Key>,
    client_state: Rc<Cell<ClientState>>,
    /// What is read, if it is to be remembered.
    read: Option<(Identity, ReadRequest)>,
    is_watch: bool,
    source: Source,
    is_cut: bool,
}

enum Source {
    /// Nothing yet.
    None,
    Server {
        response: Box<PassedResponse>,
        recorder: Option<Recorder>,
    },
    Own(OwnStatus, bool),
    Memory {
        content_type: String,
        body: Option<Vec<u8>>,
    },
    Held(Box<HeldWatch>),
}

/// The fields of a response that are passed on.
const RETURNED_FIELDS: [&str; 6] =
    ["content-type", "content-encoding", "retry-after", "warning", "audit-id", "location"];
/// For the connection, on top of the time limit of the server.
const CONNECT_TIME: Duration = Duration::from_secs(10);

impl Answer {
    pub(super) fn new(
        served: Rc<Served>,
        request: &Request,
        passed: PassedRequest,
        client_state: Rc<Cell<ClientState>>,
    ) -> Self {
        let token = request.header("authorization").and_then(bearer);
        let identity = token.and_then(|token| served.endpoint.cache.identity(token));
        let read = identity.zip(ReadRequest::of(request));
        let is_watch = request.query_value("watch").is_some() || request.query_value("follow").is_some();
        let token = token.map(|token| served.tokens.key(token));
        Self { served, request: passed, token, client_state, read, is_watch, source: Source::None, is_cut: false }
    }

    async fn begin(&mut self) {
        let (node, upstream) = (&self.served.endpoint.node, &self.served.endpoint.upstream);
        if !node.is_connected() {
            let why = node.failure().map_or_else(|| "no connection yet".to_owned(), |error| shown(&error));
            return self.without_server(&why).await;
        }
        if self.read.as_ref().is_some_and(|(_, read)| read.corrected_version.is_some()) {
            self.source = Source::Own(OwnStatus::expired(), true);
            return;
        }
        let lost = async {
            node.connection(false).await;
            Err(ApiError::Lost("the node has lost its connection".into()))
        };
        match rt::either(upstream.pass_on(&self.request, ENDPOINT_RESPONSE_TIMEOUT), lost).await {
            Ok(response) => self.with_server(response),
            Err(error) if self.request.method == "GET" || is_unsent(&error) => {
                self.without_server(&shown(&error)).await
            }
            Err(error) => self.source = Source::Own(OwnStatus::unknown_outcome(&shown(&error)), true),
        }
    }

    fn with_server(&mut self, response: PassedResponse) {
        let (cache, upstream) = (&self.served.endpoint.cache, &self.served.endpoint.upstream);
        if self.token.is_some_and(|token| self.served.answered(token, response.status)) {
            self.client_state.set(ClientState::Busy);
        }
        let mut recorder = None;
        if let Some((identity, read)) = &self.read {
            match response.status {
                // Discovery may be open to everybody.
                200..300 if read.is_of_objects => cache.accepted(identity, &upstream.authorities()),
                401 => cache.rejected(identity),
                403 | 404 => cache.forget(identity, read),
                _ => {}
            }
            let head = ResponseHead {
                status: response.status,
                content_type: response.field("content-type"),
                content_encoding: response.field("content-encoding"),
            };
            recorder = cache.record(identity, read, head);
        }
        self.source = Source::Server { response: Box::new(response), recorder };
    }

    /// Answers from memory what the account has read before, if the token is proved to be one of it.
    async fn without_server(&mut self, why: &str) {
        let endpoint = &self.served.endpoint;
        let cache = &endpoint.cache;
        let unavailable = |what: &str| Source::Own(OwnStatus::unavailable(&[why, what].concat()), true);
        let Some((identity, read)) = &self.read else {
            self.source = unavailable("; nothing is remembered for this request");
            return;
        };
        if !cache.is_accepted(identity) {
            self.source = unavailable("; the token was not accepted by it before");
            return;
        }
        if let ReadKind::Watch { has_initial_events: true, .. } = read.kind {
            self.source = Source::Own(OwnStatus::no_initial_events(), true);
            return;
        }
        let cached = cache.find(identity, read);
        self.source = match (&read.kind, cached) {
            (ReadKind::Watch { limit, .. }, Some(remembered @ Remembered { is_list: true, .. })) => {
                match HeldWatch::open(endpoint, remembered, read, *limit).await {
                    Ok(watch) => Source::Held(Box::new(watch)),
                    Err(status) => Source::Own(status, true),
                }
            }
            (ReadKind::Once, Some(remembered)) => {
                let own_node = read.is_correctable.then(|| endpoint.own_node.own_node());
                match cache.answer(&remembered, own_node, AnswerForm::Body).await {
                    Some((answer, content_type)) => Source::Memory { content_type, body: Some(answer.bytes) },
                    None => unavailable("; what was read is damaged"),
                }
            }
            (ReadKind::Once | ReadKind::Watch { .. }, _) => unavailable("; this was not read before"),
        };
    }

    async fn part(&mut self) -> Option<Vec<u8>> {
        match &mut self.source {
            Source::Server { response, recorder } => match response.next().await {
                Ok(Some(part)) => {
                    if let Some(recorder) = recorder {
                        recorder.data(&part).await;
                    }
                    Some(part)
                }
                Ok(None) => {
                    if let Some(recorder) = recorder {
                        recorder.end().await;
                    }
                    None
                }
                Err(error) => {
                    log!(debug, "response of the API server was cut", error = shown(&error));
                    self.is_cut = true;
                    None
                }
            },
            Source::Own(status, is_left) => std::mem::take(is_left).then(|| status.body()),
            Source::Memory { body, .. } => body.take(),
            Source::Held(watch) => watch.next(&self.served.endpoint).await,
            Source::None => None,
        }
    }
}

fn shown(error: &ApiError) -> String {
    ErrorChain(error).to_string()
}

/// Whether the server has not seen the request.
fn is_unsent(error: &ApiError) -> bool {
    matches!(error, ApiError::Access(_) | ApiError::NeverSent | ApiError::Unreachable(_))
}

impl Text for Answer {
    fn open(&mut self) -> Pin<Box<dyn Future<Output = Result<(), Response>> + '_>> {
        Box::pin(async {
            self.begin().await;
            Ok(())
        })
    }

    fn next(&mut self) -> Pin<Box<dyn Future<Output = Option<Vec<u8>>> + '_>> {
        Box::pin(self.part())
    }

    fn head(&self, after: AfterResponse) -> Option<Vec<u8>> {
        let head = match &self.source {
            Source::Server { response, .. } => {
                let field = |name: &&'static str| Some((*name, response.field(name)?));
                let fields: Vec<(&str, &str)> = RETURNED_FIELDS.iter().filter_map(field).collect();
                passed_head(response.status, &fields, after)
            }
            Source::Own(status, _) => {
                let fields = [("content-type", "application/json"), ("retry-after", RETRY_AFTER)];
                passed_head(status.code, if status.may_retry { &fields } else { fields.split_at(1).0 }, after)
            }
            Source::Memory { content_type, .. } => passed_head(200, &[("content-type", content_type)], after),
            Source::Held(watch) => passed_head(200, &[("content-type", &*watch.content_type)], after),
            Source::None => return None,
        };
        Some(head)
    }

    fn open_limit(&self) -> Duration {
        ENDPOINT_RESPONSE_TIMEOUT + CONNECT_TIME
    }

    fn keeps_connection(&self) -> bool {
        !self.is_watch
    }

    fn is_cut(&self) -> bool {
        self.is_cut
    }
}
