//! Detects a peer that floods this side with useless frames. Pure: the time is an argument.

use std::time::Instant;

use super::error::{self, Error};
use super::limits;

#[derive(Debug, Default)]
pub(super) struct Flood {
    since: Option<Instant>,
    count: u32,
}

impl Flood {
    /// Counts a frame without effect, with this many bytes.
    pub(super) fn idle_frame(&mut self, size: usize, now: Instant) -> Result<(), Error> {
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) > limits::IDLE_FRAMES_PERIOD {
            *self = Self { since: Some(now), count: 0 };
        }
        let more = u32::try_from(size / limits::IDLE_BYTES).unwrap_or(u32::MAX);
        self.count = self.count.saturating_add(1).saturating_add(more);
        if self.count > limits::MAX_IDLE_FRAMES { Err(error::too_much("flood of useless frames")) } else { Ok(()) }
    }

    /// Credits a stream that both sides have completed. A reset stream earns no credit: opening and resetting streams
    /// is a flood as well.
    pub(super) fn stream_completed(&mut self) {
        self.count = self.count.saturating_sub(limits::FORGIVEN_FOR_STREAM);
    }

    /// Credits sent content, which the peer answers with window updates and perhaps a PING.
    pub(super) fn content_sent(&mut self) {
        self.count = self.count.saturating_sub(limits::FORGIVEN_FOR_CONTENT);
    }
}
