//! The endpoint's own answers: `Status` objects, as clients of the API expect. Pure.

use serde_json::json;

/// An answer that is not the server's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnStatus {
    pub(super) code: u16,
    reason: &'static str,
    message: String,
    /// Whether the client may repeat the request, whatever it is: the server has not seen it.
    pub(super) may_retry: bool,
}

/// Seconds in `Retry-After`. client-go repeats such a request ten times, whatever its method.
pub(super) const RETRY_AFTER: &str = "1";

impl OwnStatus {
    /// The server was not asked.
    pub(super) fn unavailable(why: &str) -> Self {
        let message = format!("the API server cannot be reached: {why}");
        Self { code: 503, reason: "ServiceUnavailable", message, may_retry: true }
    }

    /// The server may have carried out the request.
    pub(super) fn unknown_outcome(why: &str) -> Self {
        let message = format!("the connection to the API server was lost: {why}: the outcome is unknown");
        Self { code: 504, reason: "Timeout", message, may_retry: false }
    }

    /// client-go lists and watches instead.
    pub(super) fn no_initial_events() -> Self {
        let message = "the API server cannot be reached: list first, then watch without sendInitialEvents".to_owned();
        Self { code: 422, reason: "Invalid", message, may_retry: false }
    }

    /// The client has a corrected list.
    pub(super) fn expired() -> Self {
        let message = "the list has what the node knew better while the API server was away: list again".to_owned();
        Self { code: 410, reason: "Expired", message, may_retry: false }
    }

    pub(super) fn unauthorized() -> Self {
        let message = "this endpoint passes on bearer tokens only: use a kubeconfig with token or tokenFile; a client \
                       certificate cannot be passed on";
        Self { code: 401, reason: "Unauthorized", message: message.to_owned(), may_retry: false }
    }

    pub(super) fn too_many() -> Self {
        let message = "too many requests with tokens that the API server has not accepted: try again in a minute";
        Self { code: 429, reason: "TooManyRequests", message: message.to_owned(), may_retry: true }
    }

    pub(super) fn bad_request(message: &str) -> Self {
        Self { code: 400, reason: "BadRequest", message: message.to_owned(), may_retry: false }
    }

    pub(super) fn body(&self) -> Vec<u8> {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        status.to_string().into_bytes()
    }
}
