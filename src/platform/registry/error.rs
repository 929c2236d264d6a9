//! Errors of registries. The texts contain those of Go's network stack, which distinguish outages from refusals.

use std::fmt;
use std::io;
use std::time::Duration;

#[derive(Debug)]
pub(crate) enum RegistryError {
    /// The request was ended by this side.
    Cancelled,
    /// No response, or an incomplete one.
    Connection { url: String, message: String },
    /// A response with an error status.
    Status { url: String, status: u16, message: String, retry_after: Option<Duration> },
    /// A response that violates the protocol.
    Protocol { url: String, message: String },
}

impl RegistryError {
    pub(super) fn of(url: &str, error: ureq::Error) -> Self {
        match error {
            ureq::Error::Io(error) => Self::io(url, &error),
            ureq::Error::Other(error) => Self::Connection { url: url.to_owned(), message: error.to_string() },
            error => Self::Connection { url: url.to_owned(), message: error.to_string() },
        }
    }

    pub(crate) fn io(url: &str, error: &io::Error) -> Self {
        let message = match error.kind() {
            io::ErrorKind::TimedOut => "i/o timeout".to_owned(),
            io::ErrorKind::UnexpectedEof => "unexpected EOF".to_owned(),
            io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
            io::ErrorKind::ConnectionReset => "connection reset by peer".to_owned(),
            _ => error.to_string(),
        };
        Self::Connection { url: url.to_owned(), message }
    }

    pub(super) fn protocol(url: &str, message: impl Into<String>) -> Self {
        Self::Protocol { url: url.to_owned(), message: message.into() }
    }

    /// Whether the same request may succeed soon.
    pub(crate) fn is_retryable(&self) -> bool {
        match self {
            Self::Connection { .. } => true,
            Self::Status { status, .. } => matches!(status, 408 | 429 | 500..=599),
            Self::Cancelled | Self::Protocol { .. } => false,
        }
    }

    /// How long the server asks to wait.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            Self::Cancelled | Self::Connection { .. } | Self::Protocol { .. } => None,
        }
    }
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled => f.write_str("cancelled"),
            Self::Connection { url, message } | Self::Protocol { url, message } => write!(f, "get {url}: {message}"),
            Self::Status { url, status, message, .. } => {
                write!(f, "get {url}: {status} {}", status_text(*status))?;
                if message.is_empty() { Ok(()) } else { write!(f, ": {message}") }
            }
        }
    }
}

impl std::error::Error for RegistryError {}

fn status_text(status: u16) -> &'static str {
    match status {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "",
    }
}
