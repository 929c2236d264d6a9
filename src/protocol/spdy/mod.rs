//! SPDY/3.1 for a client of the runtime's streaming server: bytes in, bytes out. Pure.
//!
//! SPDY is obsolete, and the only protocol with half-closed streams that every runtime supports. Two things keep the
//! code small: the server's headers are not needed, so nothing is decompressed; and the client's headers are so short
//! that they are sent in stored deflate blocks, so nothing is compressed. There are no windows: Kubernetes' servers
//! ignore them (moby/spdystream), so a side that does not read blocks all streams of its connection.

mod incoming;
mod outgoing;

pub use incoming::{Event, Incoming, MAX_SPDY_HEADER_BYTES, Malformed};
pub use outgoing::{Outgoing, data, end, ping};

/// A stream id. Those of a client are odd.
pub type StreamId = u32;

/// Control frame types (draft-mbelshe-httpbis-spdy-00, section 2.6).
mod kind {
    pub(super) const SYN_STREAM: u16 = 1;
    pub(super) const SYN_REPLY: u16 = 2;
    pub(super) const RST_STREAM: u16 = 3;
    pub(super) const PING: u16 = 6;
    pub(super) const GOAWAY: u16 = 7;
}

/// The sender ends its side of the stream.
const FLAG_FIN: u8 = 1;
const SPDY_VERSION: u16 = 3;
const CONTROL_BIT: u16 = 0x8000;
