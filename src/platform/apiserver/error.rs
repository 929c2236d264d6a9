//! Why the API server did not do what it was asked for. Pure.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;

/// An error by what is known of its effect. Clones share the cause: all requests of a connection end with it.
#[derive(Clone, Debug)]
pub(crate) enum ApiError {
    /// What it takes to ask is missing or wrong: one line.
    Access(Rc<str>),
    /// There is no connection and none could be made: one line.
    Unreachable(Rc<str>),
    /// The server has not seen the request, or said that it has not acted on it.
    NeverSent,
    /// The connection ended before the answer: the outcome is unknown.
    Lost(Rc<str>),
    /// The time was up before the answer: the outcome is unknown.
    Timeout,
    /// The server's answer is an error.
    Refused(Box<Status>),
    /// The answer cannot be read: one line. The outcome is unknown.
    Malformed(Rc<str>),
}

/// `v1.Status`: an error in the server's own words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// As in HTTP.
    pub(crate) code: u16,
    /// `NotFound`, `Conflict`, `Expired`; empty if it said none.
    pub(crate) reason: String,
    pub(crate) message: String,
    /// The server asks for patience.
    pub(crate) retry_after: Option<Duration>,
}

impl ApiError {
    pub(crate) fn is_not_found(&self) -> bool {
        self.is(404, "NotFound")
    }

    /// Somebody else was faster, or it is another object of the same name.
    pub(crate) fn is_conflict(&self) -> bool {
        self.is(409, "Conflict")
    }

    pub(crate) fn is_already_exists(&self) -> bool {
        self.is(409, "AlreadyExists")
    }

    /// Nobody knows any more what has happened since that resource version.
    pub(crate) fn is_expired(&self) -> bool {
        self.code() == Some(410)
    }

    pub(crate) fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// Who asks is not known to the server, or no more.
    pub(crate) fn is_unauthorized(&self) -> bool {
        self.code() == Some(401)
    }

    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Self::Refused(status) => Some(status.code),
            _ => None,
        }
    }

    /// The same request may do better later, as it is.
    pub(crate) fn is_retryable(&self) -> bool {
        match self {
            Self::Access(_) | Self::Unreachable(_) | Self::NeverSent | Self::Lost(_) | Self::Timeout => true,
            Self::Refused(status) => status.code == 429 || status.code >= 500,
            Self::Malformed(_) => false,
        }
    }

    fn is(&self, code: u16, reason: &str) -> bool {
        match self {
            Self::Refused(status) => status.code == code && (status.reason == reason || status.reason.is_empty()),
            _ => false,
        }
    }
}

impl Status {
    /// From the body of an answer with this code; whatever stands there, if it is no `Status`.
    pub(super) fn of_body(code: u16, retry_after: Option<Duration>, body: &[u8]) -> Self {
        match serde_json::from_slice(body) {
            Ok(Value::Object(status)) if status.get("kind").is_some_and(|kind| kind == "Status") => {
                Self { retry_after, ..Self::of_object(code, &status.into()) }
            }
            _ => {
                let text: String = String::from_utf8_lossy(body).chars().take(LONGEST).collect();
                Self { code, reason: String::new(), message: text.trim().to_owned(), retry_after }
            }
        }
    }

    /// From a `Status` in an answer or a watch.
    pub(super) fn of_object(code: u16, status: &Value) -> Self {
        let text = |key: &str| status.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let seconds = status.pointer("/details/retryAfterSeconds").and_then(Value::as_u64);
        let own = status.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
        Self {
            code: own.unwrap_or(code),
            reason: text("reason"),
            message: text("message"),
            retry_after: seconds.map(Duration::from_secs),
        }
    }
}

/// Characters of an error page that are shown.
const LONGEST: usize = 300;

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Access(why) | Self::Unreachable(why) => f.write_str(why),
            Self::NeverSent => f.write_str("the API server did not take the request"),
            Self::Lost(why) => write!(f, "connection to the API server lost: {why}"),
            Self::Timeout => f.write_str("the API server did not answer in time"),
            Self::Refused(status) => fmt::Display::fmt(status, f),
            Self::Malformed(what) => write!(f, "the API server's answer cannot be read: {what}"),
        }
    }
}

impl std::error::Error for ApiError {}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message.as_str() {
            "" => write!(f, "the API server answered {} {}", self.code, self.reason),
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
    fn a_status_object_tells_reason_and_message() {
        let body = r#"{"kind":"Status","reason":"AlreadyExists","message":"leases \"n\" already exists","code":409}"#;
        let error = refused(409, body);
        assert!(error.is_already_exists() && !error.is_conflict() && !error.is_retryable());
        assert_eq!(error.to_string(), "leases \"n\" already exists (409)");
    }

    #[test]
    fn an_error_page_is_shown_as_it_is_and_cut() {
        let error = refused(502, &"x".repeat(1000));
        assert!(error.is_retryable());
        assert_eq!(error.to_string(), format!("{} (502)", "x".repeat(300)));
        assert_eq!(refused(503, "").to_string(), "the API server answered 503 ");
    }

    #[test]
    fn patience_that_is_asked_for_in_the_body_counts() {
        let status = serde_json::json!({"kind": "Status", "code": 504, "details": {"retryAfterSeconds": 7}});
        assert_eq!(Status::of_object(500, &status).retry_after, Some(Duration::from_secs(7)));
        assert_eq!(Status::of_object(500, &status).code, 504);
    }
}
