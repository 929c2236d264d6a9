//! SPDY/3.1 as a client of the runtime's streaming server speaks it: bytes in, bytes out. Pure.
//!
//! It is old, and the one protocol that every runtime takes in which a stream can be closed on one side. Two things keep it
//! small. What a server says in headers is of no use here, so nothing is ever decompressed; and what is sent in headers is so
//! little that it goes as it is, in the stored blocks that deflate has for it, so nothing is ever compressed. There are no
//! windows: servers that Kubernetes is made of do not keep them (moby/spdystream), so a side that does not read holds up all
//! streams of its connection.

mod incoming;
mod outgoing;

pub use incoming::{Event, Incoming, LONGEST, Malformed};
pub use outgoing::{Outgoing, data, end, ping};

/// The number of a stream: odd, as those are that a client opens.
pub type StreamId = u32;

/// Kinds of control frames (draft-mbelshe-httpbis-spdy-00, section 2.6).
mod kind {
    pub(super) const SYN_STREAM: u16 = 1;
    pub(super) const SYN_REPLY: u16 = 2;
    pub(super) const RST_STREAM: u16 = 3;
    pub(super) const PING: u16 = 6;
    pub(super) const GOAWAY: u16 = 7;
}

/// No more comes on the stream from who sends this.
const FLAG_FIN: u8 = 1;
const VERSION: u16 = 3;
const CONTROL: u16 = 0x8000;
