//! Errors of calls, by whether the call may have had an effect.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::protocol::grpc::Status;
use crate::protocol::http2::ErrorCode;

#[derive(Clone, Debug)]
pub enum Error {
    /// No connection could be made: nothing was sent.
    Connect { endpoint: Arc<str>, cause: Arc<io::Error> },
    /// The peer has not seen the request, or states that it has not processed it.
    NeverSent,
    /// The connection ended after the request was sent and before the response: the outcome is unknown.
    Lost(Arc<io::Error>),
    /// The peer reset the call: the outcome is unknown.
    Reset(ErrorCode),
    /// The deadline passed before the response: the outcome is unknown.
    DeadlineExceeded,
    /// The peer returned an error.
    Status(Status),
    /// The response is not valid gRPC: the outcome is unknown.
    Protocol(&'static str),
}

impl Error {
    /// Whether the call certainly had no effect and may be repeated unchanged.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::NeverSent => true,
            Self::Lost(_) | Self::Reset(_) | Self::DeadlineExceeded | Self::Status(_) | Self::Protocol(_) => false,
        }
    }

    /// Whether the peer may have executed the call: check before repeating it.
    pub fn is_outcome_unknown(&self) -> bool {
        match self {
            Self::Lost(_) | Self::Reset(_) | Self::DeadlineExceeded | Self::Protocol(_) => true,
            Self::Connect { .. } | Self::NeverSent | Self::Status(_) => false,
        }
    }

    /// The peer's status, if it returned one.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Status(status) => Some(status),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect { endpoint, .. } => write!(f, "connect to {endpoint}"),
            Self::NeverSent => f.write_str("request not processed"),
            Self::Lost(_) => f.write_str("connection lost before the response"),
            Self::Reset(code) => write!(f, "call reset by peer ({code})"),
            Self::DeadlineExceeded => f.write_str("deadline exceeded"),
            Self::Status(status) => write!(f, "{status}"),
            Self::Protocol(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Connect { cause, .. } | Self::Lost(cause) => Some(&**cause),
            Self::NeverSent | Self::Reset(_) | Self::DeadlineExceeded | Self::Status(_) | Self::Protocol(_) => None,
        }
    }
}
