//! Why authentication or authorization failed. Pure.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

use crate::platform::apiserver::ApiError;
use crate::protocol::der;

/// A failed review by the API server.
#[derive(Debug)]
pub(super) enum ReviewError {
    Api(ApiError),
    /// The API server's own message.
    Failed {
        why: String,
    },
    NoCluster,
    NoStatus,
}

/// Why a client certificate is not valid.
#[derive(Clone, Debug)]
pub(super) enum CertificateError {
    Malformed(der::Malformed),
    NoAuthorities,
    NoCertificate,
    NoName,
    Refused(rustls::Error),
}

/// The CA bundle cannot be used.
#[derive(Debug)]
pub(super) struct AuthoritiesError {
    pub(super) path: PathBuf,
    pub(super) source: Box<dyn Error + Send + Sync>,
}

impl fmt::Display for ReviewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Api(error) => error.fmt(f),
            Self::Failed { why } => f.write_str(why),
            Self::NoCluster => f.write_str("this node has no cluster"),
            Self::NoStatus => f.write_str("the answer has no status"),
        }
    }
}

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => error.fmt(f),
            Self::NoAuthorities => f.write_str("no client CA is loaded yet"),
            Self::NoCertificate => f.write_str("no certificate"),
            Self::NoName => f.write_str("the certificate has no common name"),
            Self::Refused(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for AuthoritiesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

impl Error for ReviewError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Api(error) => error.source(),
            Self::Failed { .. } | Self::NoCluster | Self::NoStatus => None,
        }
    }
}

impl Error for CertificateError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Malformed(error) => error.source(),
            Self::Refused(error) => error.source(),
            Self::NoAuthorities | Self::NoCertificate | Self::NoName => None,
        }
    }
}

impl Error for AuthoritiesError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
