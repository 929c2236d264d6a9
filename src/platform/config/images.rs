//! Image credentials verification and image garbage collection. Pure.

use std::time::Duration;

/// `imagePullCredentialsVerificationPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum CredentialsVerification {
    /// Every image that is present may be used.
    Never,
    /// Images that this kubelet did not pull may be used.
    #[default]
    NeverForPreloaded,
    /// Images with these names may be used; `registry.example.com/team/*` is a prefix.
    NeverFor(Vec<String>),
    Always,
}

/// When to remove unused images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImageGc {
    /// Disk usage in percent at which garbage collection starts.
    pub(crate) high: u8,
    /// Disk usage in percent at which garbage collection stops.
    pub(crate) low: u8,
    /// Minimum age of an image that is removed to free space.
    pub(crate) min_age: Duration,
    /// Age at which an unused image is removed regardless of space; zero: never.
    pub(crate) max_age: Duration,
}

impl Default for ImageGc {
    fn default() -> Self {
        Self { high: 85, low: 80, min_age: Duration::from_secs(120), max_age: Duration::ZERO }
    }
}
