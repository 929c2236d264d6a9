//! Errors of CRI calls.

use std::fmt;

use crate::platform::rpc;
use crate::protocol::grpc::Code;
use crate::protocol::grpc::Status;
use crate::protocol::protobuf::DecodeError;

/// A failed call.
#[derive(Clone, Debug)]
pub struct Error {
    /// The method's path.
    path: &'static str,
    /// The id or name that the call was about; may be empty.
    subject: String,
    cause: Cause,
}

#[derive(Clone, Debug)]
enum Cause {
    Rpc(rpc::Error),
    /// A response arrived that cannot be interpreted.
    Malformed(Malformed),
}

#[derive(Clone, Debug)]
enum Malformed {
    Bytes(DecodeError),
    Lacks(&'static str),
}

impl Error {
    pub(super) fn rpc(path: &'static str, subject: &str, cause: rpc::Error) -> Self {
        Self { path, subject: subject.to_owned(), cause: Cause::Rpc(cause) }
    }

    pub(super) fn undecodable(path: &'static str, subject: &str, cause: DecodeError) -> Self {
        Self { path, subject: subject.to_owned(), cause: Cause::Malformed(Malformed::Bytes(cause)) }
    }

    pub(super) fn lacks(path: &'static str, subject: &str, field: &'static str) -> Self {
        Self { path, subject: subject.to_owned(), cause: Cause::Malformed(Malformed::Lacks(field)) }
    }

    /// The name of the method, such as `RunPodSandbox`.
    pub fn call(&self) -> &'static str {
        self.path.rsplit_once('/').map_or(self.path, |(_, name)| name)
    }

    /// The runtime's status, if it returned one.
    pub fn status(&self) -> Option<&Status> {
        match &self.cause {
            Cause::Rpc(error) => error.status(),
            Cause::Malformed(_) => None,
        }
    }

    /// The runtime does not have the object of the call.
    pub fn is_not_found(&self) -> bool {
        self.has_code(Code::NotFound)
    }

    /// The runtime does not implement the method.
    pub fn is_unimplemented(&self) -> bool {
        self.has_code(Code::Unimplemented)
    }

    /// Whether there is no connection to the runtime, and the last attempt to connect failed.
    pub fn is_away(&self) -> bool {
        matches!(self.cause, Cause::Rpc(rpc::Error::Connect { .. }))
    }

    /// Whether the response was invalid.
    pub fn is_malformed(&self) -> bool {
        matches!(self.cause, Cause::Malformed(_))
    }

    /// Whether the call certainly had no effect and may be repeated unchanged.
    pub fn is_retryable(&self) -> bool {
        match &self.cause {
            Cause::Rpc(error) => error.is_retryable(),
            Cause::Malformed(_) => false,
        }
    }

    /// Whether the runtime may have executed the call or still be executing it: check before repeating it.
    pub fn outcome_unknown(&self) -> bool {
        match &self.cause {
            Cause::Rpc(rpc::Error::Status(status)) => match status.code {
                // The runtime timed out waiting for one of its own components.
                Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable => true,
                _ => false,
            },
            Cause::Rpc(error) => error.is_outcome_unknown(),
            Cause::Malformed(_) => true,
        }
    }

    fn has_code(&self, code: Code) -> bool {
        self.status().is_some_and(|status| status.code == code)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.call())?;
        if !self.subject.is_empty() {
            write!(f, " {}", self.subject)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(match &self.cause {
            Cause::Rpc(error) => error,
            Cause::Malformed(Malformed::Bytes(error)) => error,
            Cause::Malformed(malformed) => malformed,
        })
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(error) => write!(f, "{error}"),
            Self::Lacks(what) => write!(f, "response has no {what}"),
        }
    }
}

impl std::error::Error for Malformed {}
