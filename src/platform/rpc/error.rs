//! Why a call did not succeed, by what is known of its effect.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::protocol::grpc::Status;
use crate::protocol::http2::ErrorCode;

#[derive(Clone, Debug)]
pub enum Error {
    /// There is no connection and none could be made: nothing was sent.
    Connect { endpoint: Arc<str>, cause: Arc<io::Error> },
    /// The peer has not seen the request, or said that it has not acted on it.
    NeverSent,
    /// The request left and the connection ended before the answer: the outcome is unknown.
    Lost(Arc<io::Error>),
    /// The peer gave the call up in the middle: the outcome is unknown.
    Reset(ErrorCode),
    /// The time was up before the answer: the outcome is unknown.
    DeadlineExceeded,
    /// The peer's answer is an error.
    Status(Status),
    /// The peer's answer is no gRPC: the outcome is unknown.
    Protocol(&'static str),
}

impl Error {
    /// The call had no effect for certain and may be made again as it is.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::NeverSent => true,
            Self::Lost(_) | Self::Reset(_) | Self::DeadlineExceeded | Self::Status(_) | Self::Protocol(_) => false,
        }
    }

    /// The peer may have done what was asked: look before asking again.
    pub fn is_outcome_unknown(&self) -> bool {
        match self {
            Self::Lost(_) | Self::Reset(_) | Self::DeadlineExceeded | Self::Protocol(_) => true,
            Self::Connect { .. } | Self::NeverSent | Self::Status(_) => false,
        }
    }

    /// The peer's own word, when it gave one.
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
            Self::NeverSent => f.write_str("request not taken"),
            Self::Lost(_) => f.write_str("connection lost before the answer"),
            Self::Reset(code) => write!(f, "call given up by the peer ({code})"),
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
