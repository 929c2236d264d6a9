//! Errors of fetches.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::platform::registry::RegistryError;

#[derive(Debug)]
pub(super) enum FetchError {
    Cancelled,
    /// The bytes of a server do not match the digest.
    Digest {
        what: String,
        server: String,
    },
    Disk(io::Error),
    /// No bytes are left of a budget.
    Held,
    /// A document is malformed.
    Invalid(String),
    /// The length at a server differs from the manifest's.
    Length {
        what: String,
        expected: u64,
        told: u64,
    },
    NoServer,
    /// The image does not support this machine.
    Platform(&'static str),
    Registry(RegistryError),
    Room {
        wanted: u64,
        free: u64,
    },
}

/// Why a pull has ended without the image.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::kubelet::images) enum FetchFailure {
    /// With one line about it.
    Failed(String),
    /// By a window or a budget.
    Held,
}

impl From<String> for FetchFailure {
    fn from(message: String) -> Self {
        Self::Failed(message)
    }
}

impl From<FetchError> for FetchFailure {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::Held => Self::Held,
            error => Self::Failed(error.to_string()),
        }
    }
}

impl FetchError {
    /// Whether another attempt may succeed soon.
    pub(super) fn is_retryable(&self) -> bool {
        match self {
            Self::Registry(error) => error.is_retryable(),
            Self::Digest { .. } | Self::Length { .. } => true,
            Self::Cancelled
            | Self::Disk(_)
            | Self::Held
            | Self::Invalid(_)
            | Self::NoServer
            | Self::Platform(_)
            | Self::Room { .. } => false,
        }
    }

    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Registry(error) => error.retry_after(),
            _ => None,
        }
    }
}

impl From<io::Error> for FetchError {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

impl From<RegistryError> for FetchError {
    fn from(error: RegistryError) -> Self {
        match error {
            RegistryError::Cancelled => Self::Cancelled,
            error => Self::Registry(error),
        }
    }
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled => f.write_str("cancelled"),
            Self::Digest { what, server } => write!(f, "{server} sent content that does not match {what}"),
            Self::Disk(error) if error.kind() == io::ErrorKind::StorageFull => f.write_str("no space left on device"),
            Self::Disk(error) => write!(f, "write to the disk: {error}"),
            Self::Held => f.write_str("held"),
            Self::Invalid(problem) => f.write_str(problem),
            Self::Length { what, expected, told } => {
                write!(f, "{what} has {told} bytes at the registry, and {expected} in the manifest")
            }
            Self::NoServer => f.write_str("no server of the registry resolves tags"),
            Self::Platform(machine) => write!(f, "no image for this machine ({machine})"),
            Self::Registry(error) => error.fmt(f),
            Self::Room { wanted, free } => write!(f, "no space left on device: {wanted} bytes needed, {free} free"),
        }
    }
}

impl std::error::Error for FetchError {}
