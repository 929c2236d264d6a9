//! Why a plugin is not registered. Pure.

use std::error::Error;
use std::fmt;

use crate::platform::rpc;
use crate::protocol::protobuf::DecodeError;

#[derive(Debug)]
pub(super) enum RegisterError {
    GetInfo(CallError),
    NoHandler {
        kind: String,
        socket: String,
    },
    Notify(CallError),
    /// The handler of this plugin type refused it.
    Refused(Box<dyn Error>),
}

#[derive(Debug)]
pub(super) enum CallError {
    Answer(DecodeError),
    Rpc(rpc::Error),
}

impl RegisterError {
    /// Whether another attempt may succeed.
    pub(super) fn is_retryable(&self) -> bool {
        match self {
            Self::GetInfo(_) | Self::Notify(_) | Self::Refused(_) => true,
            Self::NoHandler { .. } => false,
        }
    }
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GetInfo(_) => f.write_str("failed to get plugin info"),
            Self::NoHandler { kind, socket } => {
                write!(f, "no handler registered for plugin type: {kind} at socket {socket}")
            }
            Self::Notify(_) => f.write_str("failed to send registration status"),
            Self::Refused(error) => error.fmt(f),
        }
    }
}

impl Error for RegisterError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::GetInfo(error) | Self::Notify(error) => Some(error),
            Self::NoHandler { .. } => None,
            Self::Refused(error) => error.source(),
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer(error) => error.fmt(f),
            Self::Rpc(error) => error.fmt(f),
        }
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Answer(error) => error.source(),
            Self::Rpc(error) => error.source(),
        }
    }
}
