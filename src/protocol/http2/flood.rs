//! Notices a peer that keeps this side busy for nothing. Pure: the moment is an argument.

use std::time::Instant;

use super::error::{self, Error};
use super::limits;

#[derive(Debug, Default)]
pub(super) struct Flood {
    since: Option<Instant>,
    count: u32,
}

impl Flood {
    /// A frame came that brings nothing to anyone.
    pub(super) fn idle_frame(&mut self, now: Instant) -> Result<(), Error> {
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) > limits::IDLE_FRAMES_PER {
            *self = Self { since: Some(now), count: 0 };
        }
        self.count += 1;
        if self.count > limits::IDLE_FRAMES {
            Err(error::too_much("flood of frames that bring nothing"))
        } else {
            Ok(())
        }
    }

    /// A stream has come to its end on both sides. One that was reset does not count: opening and resetting streams
    /// is a flood as well.
    pub(super) fn stream_completed(&mut self) {
        self.count = self.count.saturating_sub(limits::FORGIVEN_FOR_STREAM);
    }

    /// Content was sent, which the peer answers with window updates, and perhaps a PING to measure the way.
    pub(super) fn content_sent(&mut self) {
        self.count = self.count.saturating_sub(limits::FORGIVEN_FOR_CONTENT);
    }
}
