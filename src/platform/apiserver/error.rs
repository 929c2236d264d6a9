//! Errors of API requests. Pure.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;

/// An error, by whether the request may have had an effect. Clones share the cause: one lost connection fails many
/// requests.
#[derive(Clone, Debug)]
pub(crate) enum ApiError {
    /// Address or credentials are missing or invalid. One line.
    Access(Rc<str>),
    /// No connection could be made. One line.
    Unreachable(Rc<str>),
    /// The server has not seen the request, or states that it has not processed it.
    NeverSent,
    /// The connection ended before the response: the outcome is unknown.
    Lost(Rc<str>),
    /// The deadline passed before the response: the outcome is unknown.
    Timeout,
    /// The server returned an error.
    Refused(Box<Status>),
    /// The response is invalid: the outcome is unknown. One line.
    Malformed(Rc<str>),
}

/// `v1.Status`: an error reported by the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// The HTTP status code.
    pub(crate) code: u16,
    /// `NotFound`, `Conflict`, `Expired`; may be empty.
    pub(crate) reason: String,
    pub(crate) message: String,
    /// The delay that the server asks for.
    pub(crate) retry_after: Option<Duration>,
}

impl ApiError {
    pub(crate) fn is_not_found(&self) -> bool {
        self.is(404, "NotFound")
    }

    /// The object has changed meanwhile, or another object has its name.
    pub(crate) fn is_conflict(&self) -> bool {
        self.is(409, "Conflict")
    }

    pub(crate) fn is_already_exists(&self) -> bool {
        self.is(409, "AlreadyExists")
    }

    /// The resource version is too old for a list or watch.
    pub(crate) fn is_expired(&self) -> bool {
        self.code() == Some(410)
    }

    pub(crate) fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// The client's credentials are not valid, or no longer.
    pub(crate) fn is_unauthorized(&self) -> bool {
        self.code() == Some(401)
    }

    /// The request is too large for the API server, or the changed object for its store. The store's message comes with
    /// status 500 (kube-apiserver: `isTooLargeError`).
    pub(crate) fn is_too_large(&self) -> bool {
        let is_refused_by_store = |message: &str| TOO_LARGE_TO_STORE.iter().any(|text| message.contains(text));
        match self {
            Self::Refused(status) => status.code == 413 || (status.code == 500 && is_refused_by_store(&status.message)),
            _ => false,
        }
    }

    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Self::Refused(status) => Some(status.code),
            _ => None,
        }
    }

    /// Whether the same request may succeed later. Credentials are read again for each connection.
    pub(crate) fn is_retryable(&self) -> bool {
        match self {
            Self::Access(_) | Self::Unreachable(_) | Self::NeverSent | Self::Lost(_) | Self::Timeout => true,
            Self::Refused(status) => status.code == 429 || status.code >= 500,
            Self::Malformed(_) => false,
        }
    }

    fn is(&self, code: u16, reason: &str) -> bool {
        match self {
            // The error page of a proxy has a code, but no reason.
            Self::Refused(status) => status.code == code && (status.reason == reason || status.reason.is_empty()),
            _ => false,
        }
    }
}

impl Status {
    /// Parses the body of an error response; a body other than a `Status` becomes the message.
    pub(super) fn of_body(code: u16, retry_after: Option<Duration>, body: &[u8]) -> Self {
        match serde_json::from_slice(body) {
            Ok(Value::Object(status)) if status.get("kind").is_some_and(|kind| kind == "Status") => {
                Self { retry_after, ..Self::of_object(code, &status.into()) }
            }
            _ => {
                let text: String = String::from_utf8_lossy(body).chars().take(MAX_SHOWN_ERROR_CHARS).collect();
                Self { code, reason: String::new(), message: text.trim().to_owned(), retry_after }
            }
        }
    }

    /// Parses a `Status` object from a response or a watch.
    pub(super) fn of_object(code: u16, status: &Value) -> Self {
        let text = |key: &str| status.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let seconds = status.pointer("/details/retryAfterSeconds").and_then(Value::as_u64);
        let status_code = status.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
        Self {
            code: status_code.unwrap_or(code),
            reason: text("reason"),
            message: text("message"),
            retry_after: seconds.map(Duration::from_secs),
        }
    }
}

/// Messages of etcd and of its client.
const TOO_LARGE_TO_STORE: [&str; 2] = ["etcdserver: request is too large", "trying to send message larger than max"];

/// How many characters of an error page to show.
const MAX_SHOWN_ERROR_CHARS: usize = 300;

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Access(why) | Self::Unreachable(why) => f.write_str(why),
            Self::NeverSent => f.write_str("API server did not process the request"),
            Self::Lost(why) => write!(f, "connection to the API server lost: {why}"),
            Self::Timeout => f.write_str("API server request timed out"),
            Self::Refused(status) => fmt::Display::fmt(status, f),
            Self::Malformed(what) => write!(f, "invalid API server response: {what}"),
        }
    }
}

impl std::error::Error for ApiError {}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message.as_str() {
            "" => write!(f, "API server returned {} {}", self.code, self.reason),
            message => write!(f, "{message} ({})", self.code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, body: &str) -> ApiError {
        ApiError::Refused(Box::new(Status::of_body(code, None, body.as_bytes())))
    }

    #[test]
    fn status_objects_have_reason_and_message() {
        let body = r#"{"kind":"Status","reason":"AlreadyExists","message":"leases \"n\" already exists","code":409}"#;
        let error = refused(409, body);
        assert!(error.is_already_exists() && !error.is_conflict() && !error.is_retryable());
        assert_eq!(error.to_string(), "leases \"n\" already exists (409)");
    }

    #[test]
    fn error_pages_are_shown_truncated() {
        let error = refused(502, &"x".repeat(1000));
        assert!(error.is_retryable());
        assert_eq!(error.to_string(), format!("{} (502)", "x".repeat(300)));
        assert_eq!(refused(503, "").to_string(), "API server returned 503 ");
    }

    #[test]
    fn objects_that_are_too_large_are_told_by_status_or_message_of_the_store() {
        assert!(refused(413, "Request entity too large: limit is 3145728").is_too_large());
        for message in [
            "etcdserver: request is too large",
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2100000 vs. 2097152)",
        ] {
            let body = serde_json::json!({"kind": "Status", "code": 500, "message": message}).to_string();
            assert!(refused(500, &body).is_too_large(), "{message}");
        }
        assert!(!refused(500, "etcdserver: request timed out").is_too_large());
        assert!(!refused(422, "etcdserver: request is too large").is_too_large());
    }

    #[test]
    fn retry_after_is_read_from_the_body() {
        let status = serde_json::json!({"kind": "Status", "code": 504, "details": {"retryAfterSeconds": 7}});
        assert_eq!(Status::of_object(500, &status).retry_after, Some(Duration::from_secs(7)));
        assert_eq!(Status::of_object(500, &status).code, 504);
    }
}
