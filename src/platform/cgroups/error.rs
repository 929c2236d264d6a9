//! The error of cgroup operations.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The operation and its file or group; the cause is the source.
#[derive(Debug)]
pub(crate) struct CgroupError {
    doing: &'static str,
    path: PathBuf,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl CgroupError {
    pub(super) fn new(
        doing: &'static str,
        path: &Path,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { doing, path: path.to_owned(), source: source.into() }
    }

    /// For `map_err`.
    pub(super) fn io<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + use<'a> {
        move |source| Self::new(doing, path, source)
    }
}

impl fmt::Display for CgroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.doing, self.path.display())
    }
}

impl std::error::Error for CgroupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}
