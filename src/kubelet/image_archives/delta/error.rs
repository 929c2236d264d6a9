//! Why no delta was made of two archives.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use crate::kubelet::image_archives::archive_list::Failure;
use crate::kubelet::image_archives::manifest::ManifestError;

#[derive(Debug)]
pub(crate) enum DeltaError {
    /// An archive cannot be used, or the delta cannot be written.
    File {
        path: PathBuf,
        problem: Box<DeltaError>,
    },
    Gzip(io::Error),
    GzipFailed(ExitStatus),
    Invalid(&'static str),
    Io(io::Error),
    /// A document in the archive.
    Json {
        name: &'static str,
        error: serde_json::Error,
    },
    Layers {
        configuration: usize,
        manifest: usize,
    },
    /// A file in the archive.
    Missing(String),
    Other(Box<dyn std::error::Error>),
    Read(io::Error),
}

impl fmt::Display for DeltaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, problem } => write!(f, "{}: {problem}", path.display()),
            Self::Gzip(error) => write!(f, "gzip: {error}"),
            Self::GzipFailed(status) => write!(f, "gzip: {status}"),
            Self::Invalid(what) => f.write_str(what),
            Self::Io(error) => error.fmt(f),
            Self::Json { name, error } => write!(f, "its {name}: {error}"),
            Self::Layers { configuration, manifest } => {
                write!(f, "its configuration has {configuration} layers, and its manifest {manifest}")
            }
            Self::Missing(name) => write!(f, "it has no file {name}"),
            Self::Other(error) => error.fmt(f),
            Self::Read(error) => write!(f, "cannot be read: {error}"),
        }
    }
}

impl std::error::Error for DeltaError {}

impl From<Failure> for DeltaError {
    fn from(failure: Failure) -> Self {
        Self::Other(failure.into())
    }
}

impl From<ManifestError> for DeltaError {
    fn from(error: ManifestError) -> Self {
        Self::Other(error.into())
    }
}
