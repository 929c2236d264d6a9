//! Requests of other clients of the API server, with their own credentials.

use std::time::Duration;

use super::exchange::{Exchange, Ongoing};
use super::gate::Rank;
use super::request::{Caller, Requester};
use super::{ApiError, Client};
use crate::platform::rt;
use crate::protocol::hpack::Field;

/// A request that another client has made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PassedRequest {
    pub(crate) method: String,
    /// The escaped path, with the query.
    pub(crate) target: String,
    /// Names in lower case, and values.
    pub(crate) fields: Vec<(&'static str, String)>,
    pub(crate) content: Vec<u8>,
}

/// The server's response. Its content has not been read.
pub(crate) struct PassedResponse {
    pub(crate) status: u16,
    fields: Vec<Field>,
    ongoing: Ongoing,
    _client: Client,
}

/// How long a request waits for a connection.
const PASSED_REQUEST_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl Client {
    /// Sends a request once, and returns once the head of the response is there, within `limit`. The request is neither
    /// repeated nor does it wait at the gate. Dropping the response cancels it.
    pub(crate) async fn pass_on(&self, request: &PassedRequest, limit: Duration) -> Result<PassedResponse, ApiError> {
        // What others read must not use up what the node needs for its own requests.
        if !self.gate().admits_now(Rank::Event) {
            return Err(ApiError::NeverSent);
        }
        let link = rt::deadline(PASSED_REQUEST_CONNECT_TIMEOUT, self.connections().link(Requester::Tenant)).await;
        let link = link.unwrap_or_else(|rt::Elapsed| Err(self.failure().unwrap_or(ApiError::NeverSent)))?;
        let begun = rt::now();
        let head = request.head(&link.caller);
        let mut ongoing = link.begin(head, request.content.clone(), Exchange::with_fields(Requester::Tenant))?;
        let Ok(head) = rt::deadline(limit, ongoing.head()).await else { return Err(self.give_up(ongoing, begun)) };
        let (status, fields) = (head?.status, ongoing.fields().await?);
        Ok(PassedResponse { status, fields, ongoing, _client: self.clone() })
    }
}

impl PassedRequest {
    fn head(&self, caller: &Caller) -> Vec<Field> {
        let mut head = vec![
            Field::new(":method", self.method.as_bytes()),
            Field::fixed(":scheme", caller.scheme),
            Field::new(":authority", caller.authority.as_bytes()),
            Field::new(":path", [&*caller.prefix, &*self.target].concat()),
        ];
        head.extend(self.fields.iter().map(|(name, value)| Field::new(name, value.as_bytes())));
        head
    }
}

impl PassedResponse {
    /// The value of a field; `name` is in lower case.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let field = self.fields.iter().find(|field| field.name == name.as_bytes())?;
        std::str::from_utf8(&field.value).ok()
    }

    /// The next part of the content; `None` at its end.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, ApiError> {
        self.ongoing.content().await
    }
}
