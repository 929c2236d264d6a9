//! Ages as command line arguments. Pure.

use std::str::FromStr;
use std::time::Duration;

use crate::platform::config::parse_duration;

/// A duration in Go's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Age(pub(super) Duration);

impl Age {
    pub(super) fn duration(self) -> Duration {
        self.0
    }

    /// Whole seconds, rounded as kubectl does.
    pub(super) fn seconds(self) -> u64 {
        self.0.as_secs() + u64::from(self.0.subsec_nanos() > 0)
    }
}

impl FromStr for Age {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, &'static str> {
        parse_duration(word).filter(|age| !age.is_zero()).map(Self).ok_or("expected a duration as 90s or 2h")
    }
}
/// How long to try; zero: for ever, as kubectl takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Patience(pub(super) Option<Duration>);

impl FromStr for Patience {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, &'static str> {
        let duration = parse_duration(word).ok_or("expected a duration as 90s or 2h, or 0 for no limit")?;
        Ok(Self(Some(duration).filter(|duration| !duration.is_zero())))
    }
}
