//! Times as the API writes them: RFC 3339, whole seconds, UTC. Pure.

use std::fmt;

use super::decode::{Decode, DecodeContext, DecodeError, Input, text};
use super::encode::{Encode, Json};
use crate::types::timestamp::Timestamp;

/// A time with the API's precision of one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(Timestamp);

impl Time {
    /// Truncates to the second.
    pub fn from_timestamp(timestamp: Timestamp) -> Self {
        Self::from_unix_seconds(timestamp.as_second())
    }

    /// Converts a CRI time. The CRI's 0 means "not yet": check for it before.
    pub fn from_unix_nanos(nanos: i64) -> Self {
        Self::from_unix_seconds(nanos.div_euclid(1_000_000_000))
    }

    pub(crate) fn from_unix_seconds(seconds: i64) -> Self {
        // Times outside the years 0 to 9999 become the epoch.
        Self(Timestamp::from_second(seconds).unwrap_or_default())
    }

    pub fn as_timestamp(self) -> Timestamp {
        self.0
    }

    pub fn unix_seconds(self) -> i64 {
        self.0.as_second()
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Decode for Time {
    fn decode(input: Input<'_>, _context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        let text = text(input)?;
        match text.parse() {
            Ok(moment) => Ok(Self::from_timestamp(moment)),
            Err(_) => {
                Err(DecodeError::new(format_args!("expected a time such as 2026-01-02T15:04:05Z, found {text:?}")))
            }
        }
    }
}

impl Encode for Time {
    fn write(&self, json: &mut Json) {
        json.raw(format_args!("\"{self}\""));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_truncate_to_seconds_before_the_epoch_too() {
        assert_eq!(Time::from_unix_nanos(1_700_000_000_999_999_999).to_string(), "2023-11-14T22:13:20Z");
        assert_eq!(Time::from_unix_nanos(-1).to_string(), "1969-12-31T23:59:59Z");
        assert_eq!(Time::from_timestamp(Timestamp::MAX).to_string(), "9999-12-31T23:59:59Z");
    }
}
