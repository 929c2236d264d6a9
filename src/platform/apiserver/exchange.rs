//! One request and the response so far.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::request::{Caller, Requester};
use super::{ApiError, Status};
use crate::platform::rpc;
use crate::protocol::hpack::Field;
use crate::protocol::http2::Ending;
use crate::types::error::ErrorChain;

pub(super) struct Exchange {
    pub(super) requester: Requester,
    head: Option<Head>,
    /// Content that was not taken yet, and still occupies the receive window.
    content: Vec<u8>,
    /// Taken bytes that were not returned to the window yet.
    taken: usize,
    /// The fields of the head, for who asked for them.
    fields: Option<Vec<Field>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) retry_after: Option<Duration>,
    pub(super) is_gzip: bool,
}

pub(super) type Link = rpc::Link<Exchange>;
pub(super) type Ongoing = rpc::Ongoing<Exchange>;

impl rpc::Exchange for Exchange {
    type Error = ApiError;
    type Caller = Caller;

    fn head(&mut self, fields: &[Field], end: bool) -> Option<Result<(), ApiError>> {
        let value = |name: &str| {
            let field = fields.iter().find(|field| field.name == name.as_bytes())?;
            std::str::from_utf8(&field.value).ok()
        };
        let Some(status) = value(":status").and_then(|status| status.parse().ok()) else {
            return Some(Err(ApiError::Malformed("no status".into())));
        };
        let retry_after = value("retry-after").and_then(|seconds| seconds.trim().parse().ok()).map(Duration::from_secs);
        self.head = Some(Head { status, retry_after, is_gzip: value("content-encoding") == Some("gzip") });
        if let Some(kept) = &mut self.fields {
            kept.extend(fields.iter().cloned());
        }
        end.then_some(Ok(()))
    }

    fn data(&mut self, data: Vec<u8>, end: bool) -> Option<Result<(), ApiError>> {
        if self.content.is_empty() {
            self.content = data;
        } else {
            self.content.extend_from_slice(&data);
        }
        end.then_some(Ok(()))
    }

    fn trailers(&mut self, _: &[Field]) -> Result<(), ApiError> {
        Ok(())
    }

    fn give_back(&mut self) -> usize {
        std::mem::take(&mut self.taken)
    }

    fn never_sent() -> ApiError {
        ApiError::NeverSent
    }

    fn reset(ending: Ending) -> ApiError {
        match ending {
            Ending::NotProcessed => ApiError::NeverSent,
            Ending::ByPeer(code) => ApiError::Lost(format!("request reset by the server: {code}").into()),
            Ending::Violation(what) => ApiError::Malformed(what.into()),
        }
    }

    fn lost(cause: &Arc<io::Error>) -> ApiError {
        ApiError::Lost(ended(cause).into())
    }
}

impl Exchange {
    pub(super) fn new(requester: Requester) -> Self {
        Self { requester, head: None, content: Vec::new(), taken: 0, fields: None }
    }

    /// Keeps the fields of the response.
    pub(super) fn with_fields(requester: Requester) -> Self {
        Self { fields: Some(Vec::new()), ..Self::new(requester) }
    }
}

/// Why a connection has ended.
pub(super) fn ended(cause: &io::Error) -> String {
    match cause.kind() {
        io::ErrorKind::UnexpectedEof => "server closed the connection".to_owned(),
        _ => ErrorChain(cause).to_string(),
    }
}

impl Ongoing {
    pub(super) async fn head(&mut self) -> Result<Head, ApiError> {
        self.take(|exchange| exchange.head).await?.ok_or(ApiError::Malformed("no answer".into()))
    }

    /// The fields of the head, if they were kept.
    pub(super) async fn fields(&mut self) -> Result<Vec<Field>, ApiError> {
        let fields = self.take(|exchange| exchange.head.map(|_| exchange.fields.take().unwrap_or_default())).await?;
        Ok(fields.unwrap_or_default())
    }

    /// The content since the last call; `None` at its end.
    pub(super) async fn content(&mut self) -> Result<Option<Vec<u8>>, ApiError> {
        let content = self.take(|exchange| {
            exchange.taken += exchange.content.len();
            (!exchange.content.is_empty()).then(|| std::mem::take(&mut exchange.content))
        });
        content.await
    }
}

impl Head {
    /// Whether the status is 2xx; otherwise the content describes an error.
    pub(super) fn is_success(self) -> bool {
        (200..300).contains(&self.status)
    }

    pub(super) fn error(self, content: &[u8]) -> ApiError {
        ApiError::Refused(Box::new(Status::of_body(self.status, self.retry_after, content)))
    }
}
