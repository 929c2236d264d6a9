//! Reads and writes SETTINGS (RFC 9113 section 6.5). Pure.

use super::error::{self, Error};
use super::frame::{Flags, Kind, write_frame};
use super::limits;
use super::stream_id::StreamId;
use super::window::SendWindow;

/// A setting that this side uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    HeaderTableSize(u32),
    MaxConcurrentStreams(u32),
    InitialWindowSize(u32),
    MaxFrameSize(u32),
}

/// The settings in frame order, in which they take effect.
pub(super) fn read_settings(payload: &[u8], by_server: bool) -> Result<Vec<Setting>, Error> {
    let pairs = payload.chunks_exact(6);
    if !pairs.remainder().is_empty() {
        return Err(error::frame_size("SETTINGS length is not a multiple of 6"));
    }
    let mut settings = Vec::new();
    for pair in pairs {
        let &[a, b, c, d, e, f] = pair else { continue };
        let value = u32::from_be_bytes([c, d, e, f]);
        settings.push(match u16::from_be_bytes([a, b]) {
            HEADER_TABLE_SIZE => Setting::HeaderTableSize(value),
            // A server must not send ENABLE_PUSH=1.
            ENABLE_PUSH if value > 1 || (by_server && value == 1) => {
                return Err(error::protocol("bad SETTINGS_ENABLE_PUSH"));
            }
            MAX_CONCURRENT_STREAMS => Setting::MaxConcurrentStreams(value),
            INITIAL_WINDOW_SIZE if value > SendWindow::MAX_WINDOW_BYTES => {
                return Err(error::flow_control("bad SETTINGS_INITIAL_WINDOW_SIZE"));
            }
            INITIAL_WINDOW_SIZE => Setting::InitialWindowSize(value),
            MAX_FRAME_SIZE if !(16_384..1 << 24).contains(&value) => {
                return Err(error::protocol("bad SETTINGS_MAX_FRAME_SIZE"));
            }
            MAX_FRAME_SIZE => Setting::MaxFrameSize(value),
            _ => continue,
        });
    }
    Ok(settings)
}

/// Writes this side's settings.
pub(super) fn write_settings(by_server: bool, out: &mut Vec<u8>) {
    let role = if by_server { (MAX_CONCURRENT_STREAMS, limits::MAX_OPEN_STREAMS) } else { (ENABLE_PUSH, 0) };
    let mut payload = Vec::new();
    for (name, value) in [role, (MAX_HEADER_LIST_SIZE, limits::MAX_HEADER_LIST_BYTES)] {
        payload.extend(name.to_be_bytes());
        payload.extend(value.to_be_bytes());
    }
    write_frame(Kind::SETTINGS, Flags::NONE, StreamId::CONNECTION, &payload, out);
}

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const MAX_HEADER_LIST_SIZE: u16 = 6;
