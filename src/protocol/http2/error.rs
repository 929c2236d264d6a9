//! Error codes, and connection and stream errors. Pure.

use std::fmt;

use super::stream_id::StreamId;

/// RFC 9113 section 7.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    pub const NO_ERROR: Self = Self(0x0);
    pub const PROTOCOL_ERROR: Self = Self(0x1);
    pub const INTERNAL_ERROR: Self = Self(0x2);
    pub const FLOW_CONTROL_ERROR: Self = Self(0x3);
    pub const STREAM_CLOSED: Self = Self(0x5);
    pub const FRAME_SIZE_ERROR: Self = Self(0x6);
    pub const REFUSED_STREAM: Self = Self(0x7);
    pub const CANCEL: Self = Self(0x8);
    pub const COMPRESSION_ERROR: Self = Self(0x9);
    pub const ENHANCE_YOUR_CALM: Self = Self(0xb);
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            "NO_ERROR",
            "PROTOCOL_ERROR",
            "INTERNAL_ERROR",
            "FLOW_CONTROL_ERROR",
            "SETTINGS_TIMEOUT",
            "STREAM_CLOSED",
            "FRAME_SIZE_ERROR",
            "REFUSED_STREAM",
            "CANCEL",
            "COMPRESSION_ERROR",
            "CONNECT_ERROR",
            "ENHANCE_YOUR_CALM",
            "INADEQUATE_SECURITY",
            "HTTP_1_1_REQUIRED",
        ];
        match usize::try_from(self.0).ok().and_then(|code| names.get(code)) {
            Some(name) => f.write_str(name),
            None => write!(f, "{:#x}", self.0),
        }
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A connection error: what the peer did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    pub code: ErrorCode,
    pub violation: &'static str,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HTTP/2 peer: {} ({})", self.violation, self.code)
    }
}

impl std::error::Error for Error {}

/// A protocol violation, by its scope.
#[derive(Debug)]
pub(super) enum Fault {
    Stream(StreamId, ErrorCode, &'static str),
    Connection(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Connection(error)
    }
}

pub(super) fn protocol(violation: &'static str) -> Error {
    Error { code: ErrorCode::PROTOCOL_ERROR, violation }
}

pub(super) fn frame_size(violation: &'static str) -> Error {
    Error { code: ErrorCode::FRAME_SIZE_ERROR, violation }
}

pub(super) fn flow_control(violation: &'static str) -> Error {
    Error { code: ErrorCode::FLOW_CONTROL_ERROR, violation }
}

pub(super) fn too_much(violation: &'static str) -> Error {
    Error { code: ErrorCode::ENHANCE_YOUR_CALM, violation }
}
