//! The limits on what a peer can make this side keep or do. Pure.

use std::time::Duration;

/// The longest frame taken: the protocol's default, which is never raised.
pub(super) const FRAME: usize = 16_384;

/// The dynamic table of header compression, each way.
pub(super) const HEADER_TABLE: usize = 4096;

/// A compressed header block, over all of its frames.
pub(super) const HEADER_BLOCK: usize = 64 * 1024;

/// A header list as RFC 9113 section 6.5.2 counts it. Long enough for the error of a runtime that quotes its helper.
pub(super) const HEADER_LIST: u32 = 64 * 1024;

/// CONTINUATION frames of one block: the longest block in frames of the usual size, many times over.
pub(super) const CONTINUATIONS: u32 = 64;

/// Streams that a client may have open with this server.
pub(super) const STREAMS: u32 = 100;

/// What a stream may receive before someone here consumes it, and a connection before it is looked at.
pub(super) const WINDOW: u32 = 65_535;

/// Answers (to PING, SETTINGS, faulty streams) that wait for the peer to read them.
pub(super) const UNREAD_ANSWERS: u32 = 1000;

/// Frames that bring nothing, in the time below. Each stream that comes to its end and each frame of content sent make
/// up for some of them.
pub(super) const IDLE_FRAMES: u32 = 10_000;
pub(super) const IDLE_FRAMES_PER: Duration = Duration::from_secs(10);
pub(super) const FORGIVEN_FOR_STREAM: u32 = 16;
pub(super) const FORGIVEN_FOR_CONTENT: u32 = 4;

/// `transmit` adds no further frame once it has added this much.
pub(super) const TRANSMIT: usize = 16 * 1024;
