//! Limits on the memory and work that a peer can cause. Pure.

use std::time::Duration;

/// The longest frame accepted: the protocol's default, which is never raised.
pub(super) const MAX_HTTP2_FRAME_BYTES: usize = 16_384;

/// The HPACK dynamic table, each way.
pub(super) const HEADER_TABLE_BYTES: usize = 4096;

/// A compressed header block, over all of its frames.
pub(super) const MAX_HEADER_BLOCK_BYTES: usize = 64 * 1024;

/// A decoded header list, measured as in RFC 9113 section 6.5.2. Enough for a runtime's long error messages.
pub(super) const MAX_HEADER_LIST_BYTES: u32 = 64 * 1024;

/// The header lists of all informational responses of a stream.
pub(super) const MAX_INFORMATIONAL_BYTES: usize = 64 * 1024;

/// CONTINUATION frames per block: many more than the largest block needs in frames of the usual size.
pub(super) const MAX_CONTINUATION_FRAMES: u32 = 64;

/// Streams that a client may open on this server.
pub(super) const MAX_OPEN_STREAMS: u32 = 100;

/// Receive window of a stream and of the connection: the default of the protocol, which needs no setting.
pub(super) const RECEIVE_WINDOW_BYTES: u32 = 65_535;

/// Answers (to PING, SETTINGS, faulty streams) that the peer has not read.
pub(super) const MAX_UNREAD_ANSWERS: u32 = 1000;

/// Useless frames within `IDLE_FRAMES_PERIOD`. Each `IDLE_BYTES` of a frame, or of a decoded header list, count as one
/// more. Each completed stream and each frame of content sent earns some of them back.
pub(super) const MAX_IDLE_FRAMES: u32 = 10_000;
pub(super) const IDLE_BYTES: usize = 1024;
pub(super) const IDLE_FRAMES_PERIOD: Duration = Duration::from_secs(10);
pub(super) const FORGIVEN_FOR_STREAM: u32 = 16;
pub(super) const FORGIVEN_FOR_CONTENT: u32 = 4;

/// `transmit` stops once it has appended this much.
pub(super) const TRANSMIT_BYTES: usize = 16 * 1024;
