//! Why a URL could not be fetched, or its response not accepted or stored. Pure.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use super::signature::SignatureError;
use crate::platform::net::GetError;

#[derive(Debug)]
pub(super) enum FetchError {
    /// Of a registry, as one line.
    Artifact(String),
    /// The CA bundle cannot be used.
    Authorities {
        path: PathBuf,
        source: Box<dyn Error>,
    },
    Get(GetError),
    /// HTML, possibly from a captive portal or proxy.
    Html,
    /// The response could not be stored; its pods run.
    Keep {
        path: PathBuf,
        source: io::Error,
    },
    ReadAuthorities {
        path: PathBuf,
        source: io::Error,
    },
    /// The signature of the manifest could not be fetched.
    Signature {
        url: String,
        source: Box<FetchError>,
    },
    Status {
        status: u16,
    },
    Tls(rustls::Error),
    TooLong {
        limit: usize,
    },
    /// The response does not state its length.
    Uncounted,
}

/// Why a response was rejected as a whole.
#[derive(Debug)]
pub(super) enum ResponseError {
    Empty,
    /// One line.
    Manifest(String),
    Signature(SignatureError),
    /// It names a version of the agent, and no key is configured.
    UnsignedAgent,
}

impl fmt::Display for ResponseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("there is nothing in it; to remove its pods, give a PodList without items"),
            Self::Manifest(problems) => f.write_str(problems),
            Self::Signature(error) => error.fmt(f),
            Self::UnsignedAgent => f.write_str(
                "kind Agent: only from signed manifests (--manifest-public-key), or with coracle upgrade FILE",
            ),
        }
    }
}

impl Error for ResponseError {}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Artifact(line) => f.write_str(line),
            Self::Authorities { path, .. } => path.display().fmt(f),
            Self::Get(_) => f.write_str("cannot be fetched"),
            Self::Html => f.write_str("expected a manifest, found a page in HTML: is something else in between?"),
            Self::Keep { path, .. } => write!(f, "runs, and cannot be kept in {}", path.display()),
            Self::ReadAuthorities { path, .. } => write!(
                f,
                "the trusted authorities (--manifest-url-ca-file names another file) cannot be read: {}",
                path.display()
            ),
            Self::Signature { url, .. } => f.write_str(url),
            Self::Status { status } => write!(f, "expected 200 OK, found status {status}"),
            Self::Tls(error) => error.fmt(f),
            Self::TooLong { limit } => write!(f, "it has more than {limit} bytes"),
            Self::Uncounted => {
                f.write_str("the answer does not say how long it is, so that it may have been cut short")
            }
        }
    }
}

impl Error for FetchError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Authorities { source, .. } => Some(&**source),
            Self::Get(error) => Some(error),
            Self::Keep { source, .. } | Self::ReadAuthorities { source, .. } => Some(source),
            Self::Signature { source, .. } => Some(&**source),
            Self::Tls(error) => error.source(),
            Self::Artifact(_) | Self::Html | Self::Status { .. } | Self::TooLong { .. } | Self::Uncounted => None,
        }
    }
}
