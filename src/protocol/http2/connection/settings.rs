//! Applies SETTINGS (RFC 9113 sections 6.5.3 and 6.9.2). Pure.

use super::super::error::{self, Error};
use super::super::frame::{Flags, Kind, write_frame};
use super::super::limits;
use super::super::settings::{Setting, read_settings};
use super::super::stream_id::StreamId;
use super::receive::ReceivedFrame;
use super::{Connection, Role};

/// The peer's settings; defaults before it has sent any.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerSettings {
    pub(super) initial_window: u32,
    /// The longest frame to send; capped at the default.
    pub(super) max_frame: usize,
    /// How many streams this side may open.
    pub(super) max_streams: u32,
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self {
            initial_window: limits::RECEIVE_WINDOW_BYTES,
            max_frame: limits::MAX_HTTP2_FRAME_BYTES,
            max_streams: u32::MAX,
        }
    }
}

impl Connection {
    pub(super) fn on_settings(&mut self, arrival: ReceivedFrame<'_>) -> Result<(), Error> {
        if arrival.frame.stream != StreamId::CONNECTION {
            return Err(error::protocol("SETTINGS on a stream"));
        }
        self.flood.idle_frame(arrival.frame.payload.len(), arrival.now)?;
        if arrival.frame.flags.has(Flags::ACK) {
            if !arrival.frame.payload.is_empty() {
                return Err(error::frame_size("SETTINGS ack with a payload"));
            }
            self.is_acked = true;
            return Ok(());
        }
        for setting in read_settings(arrival.frame.payload, self.role == Role::Client)? {
            self.apply(setting)?;
        }
        write_frame(Kind::SETTINGS, Flags::ACK, StreamId::CONNECTION, &[], &mut self.control);
        self.count_reply()
    }

    fn apply(&mut self, setting: Setting) -> Result<(), Error> {
        match setting {
            Setting::HeaderTableSize(size) => {
                self.encoder.peer_allows(usize::try_from(size).unwrap_or(usize::MAX));
            }
            Setting::MaxConcurrentStreams(most) => self.peer.max_streams = most,
            Setting::InitialWindowSize(size) => {
                let change = i64::from(size) - i64::from(self.peer.initial_window);
                self.peer.initial_window = size;
                for stream in &mut self.streams {
                    let widened = stream.send_window.widen(change);
                    widened.map_err(|_| error::flow_control("SETTINGS makes a window too large"))?;
                }
            }
            Setting::MaxFrameSize(size) => {
                self.peer.max_frame = usize::try_from(size)
                    .map_or(limits::MAX_HTTP2_FRAME_BYTES, |size| size.min(limits::MAX_HTTP2_FRAME_BYTES));
            }
        }
        Ok(())
    }
}
