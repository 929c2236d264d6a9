//! The number of a stream (RFC 9113 section 5.1.1). Pure.

use std::fmt;

/// 0 is the connection itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId(u32);

impl StreamId {
    pub(super) const CONNECTION: Self = Self(0);
    pub(super) const FIRST_OF_CLIENT: Self = Self(1);
    pub(super) const FIRST_OF_SERVER: Self = Self(2);
    pub(super) const LAST: Self = Self(0x7fff_ffff);

    /// The highest bit has no meaning and is dropped.
    pub(super) fn read(bytes: [u8; 4]) -> Self {
        Self(u32::from_be_bytes(bytes) & Self::LAST.0)
    }

    pub(super) fn bytes(self) -> [u8; 4] {
        self.0.to_be_bytes()
    }

    /// The next stream of the same side.
    pub(super) fn next(self) -> Self {
        Self(self.0.saturating_add(2))
    }

    pub(super) fn is_of_client(self) -> bool {
        self.0 % 2 == 1
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
