//! Which images are trusted, and which go. Pure.

use std::time::Duration;

/// `imagePullCredentialsVerificationPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum CredentialsVerification {
    /// Whatever is present may be used.
    Never,
    /// What this kubelet has not pulled itself may be used.
    #[default]
    NeverForPreloaded,
    /// Images of these names may be used; `registry.example.com/team/*` is all that begins so.
    NeverFor(Vec<String>),
    Always,
}

/// When unused images are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImageGc {
    /// In percent of the file system: from here on it is made room.
    pub(crate) high: u8,
    /// In percent: until no more than this is used.
    pub(crate) low: u8,
    /// Nothing younger is removed to make room.
    pub(crate) min_age: Duration,
    /// What was not used for longer is removed; zero: nothing for its age alone.
    pub(crate) max_age: Duration,
}

impl Default for ImageGc {
    fn default() -> Self {
        Self { high: 85, low: 80, min_age: Duration::from_secs(120), max_age: Duration::ZERO }
    }
}
