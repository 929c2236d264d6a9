//! Errors of fetches.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::kubelet::image_archives::ImportFailure;
use crate::kubelet::image_archives::manifest::{Digest, ManifestError};
use crate::platform::cri;
use crate::platform::registry::RegistryError;
use crate::types::error::ErrorChain;

/// Why a pull has ended without the image.
#[derive(Debug)]
pub(crate) enum FetchError {
    /// The artifact does not have the wanted files.
    Artifact(String),
    /// The CA certificates of a server cannot be used.
    Authorities {
        /// Such as `for https://registry.example`.
        which: String,
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    Cancelled,
    /// The bytes of a server do not match the digest.
    Digest {
        what: String,
        server: String,
    },
    Disk(io::Error),
    /// By a window, or no bytes are left of a budget.
    Held,
    Import(ImportFailure),
    InvalidManifest {
        digest: Digest,
        problem: ManifestError,
    },
    /// With one line about the image's name.
    InvalidName(String),
    /// The length at a server differs from the manifest's.
    Length {
        what: String,
        expected: u64,
        actual: u64,
    },
    NestedIndex(Digest),
    /// The thread is gone.
    NoResult,
    NoServer,
    /// For the runtime with this name.
    NoTool(String),
    /// The runtime does not list the imported image.
    NotListed,
    /// The image does not support this machine.
    Platform(&'static str),
    Registry(RegistryError),
    Room {
        wanted: u64,
        free: u64,
    },
    Runtime(cri::Error),
    /// The signatures of the image are not usable.
    Signatures(String),
    StartThread(io::Error),
    /// The thread of the last fetch has not ended.
    ThreadBusy,
    Tls(rustls::Error),
    /// Together with other images that the pod is fetching.
    TooLarge {
        bytes: u64,
        most: u64,
    },
}

impl FetchError {
    /// Whether another attempt may succeed soon.
    pub(crate) fn is_retryable(&self) -> bool {
        match self {
            Self::Registry(error) => error.is_retryable(),
            Self::Digest { .. } | Self::Length { .. } => true,
            Self::Artifact(_)
            | Self::Authorities { .. }
            | Self::Cancelled
            | Self::Disk(_)
            | Self::Held
            | Self::Import(_)
            | Self::InvalidManifest { .. }
            | Self::InvalidName(_)
            | Self::NestedIndex(_)
            | Self::NoResult
            | Self::NoServer
            | Self::NoTool(_)
            | Self::NotListed
            | Self::Platform(_)
            | Self::Room { .. }
            | Self::Runtime(_)
            | Self::Signatures(_)
            | Self::StartThread(_)
            | Self::ThreadBusy
            | Self::Tls(_)
            | Self::TooLarge { .. } => false,
        }
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
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
            Self::Artifact(problem) | Self::Signatures(problem) => f.write_str(problem),
            Self::Authorities { which, cause } => write!(f, "CA certificates {which}: {cause}"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Digest { what, server } => write!(f, "{server} sent content that does not match {what}"),
            Self::Disk(error) if error.kind() == io::ErrorKind::StorageFull => f.write_str("no space left on device"),
            Self::Disk(error) => write!(f, "write to the disk: {error}"),
            Self::Held => f.write_str("held"),
            Self::Import(failure) => failure.fmt(f),
            Self::InvalidManifest { digest, problem } => write!(f, "{digest}: {problem}"),
            Self::InvalidName(problem) => f.write_str(problem),
            Self::Length { what, expected, actual } => {
                write!(f, "{what} has {actual} bytes at the registry, and {expected} in the manifest")
            }
            Self::NestedIndex(digest) => write!(f, "manifest {digest} is an index"),
            Self::NoResult => f.write_str("the fetch has ended without a result"),
            Self::NoServer => f.write_str("no server of the registry resolves tags"),
            Self::NoTool(runtime) => write!(f, "no tool is known that imports for the runtime {runtime}"),
            Self::NotListed => f.write_str("it is imported, but the runtime does not list it"),
            Self::Platform(machine) => write!(f, "no image for this machine ({machine})"),
            Self::Registry(error) => error.fmt(f),
            Self::Room { wanted, free } => write!(f, "no space left on device: {wanted} bytes needed, {free} free"),
            Self::Runtime(error) => ErrorChain(error).fmt(f),
            Self::StartThread(error) => write!(f, "start a thread: {error}"),
            Self::ThreadBusy => f.write_str("the last fetch of the image has not ended yet"),
            Self::Tls(error) => error.fmt(f),
            Self::TooLarge { bytes, most } => {
                write!(
                    f,
                    "image of {bytes} bytes: a pod may have {most} bytes of images on the disk while they are fetched"
                )
            }
        }
    }
}

impl std::error::Error for FetchError {}
