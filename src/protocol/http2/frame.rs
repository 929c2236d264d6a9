//! Frame headers and padding (RFC 9113 sections 4.1 and 6.1). Pure.

use super::error::{self, Error};
use super::limits;
use super::stream_id::StreamId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind(pub(super) u8);

impl Kind {
    pub(super) const DATA: Self = Self(0x0);
    pub(super) const HEADERS: Self = Self(0x1);
    pub(super) const PRIORITY: Self = Self(0x2);
    pub(super) const RST_STREAM: Self = Self(0x3);
    pub(super) const SETTINGS: Self = Self(0x4);
    pub(super) const PUSH_PROMISE: Self = Self(0x5);
    pub(super) const PING: Self = Self(0x6);
    pub(super) const GOAWAY: Self = Self(0x7);
    pub(super) const WINDOW_UPDATE: Self = Self(0x8);
    pub(super) const CONTINUATION: Self = Self(0x9);
}

/// Frame flags; the meaning of a bit depends on the frame type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags(pub(super) u8);

impl Flags {
    pub(super) const NONE: Self = Self(0);
    pub(super) const ACK: Self = Self(0x1);
    pub(super) const END_STREAM: Self = Self(0x1);
    pub(super) const END_HEADERS: Self = Self(0x4);
    pub(super) const PADDED: Self = Self(0x8);
    pub(super) const PRIORITY: Self = Self(0x20);

    pub(super) fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }

    pub(super) fn and(self, flag: Self, wanted: bool) -> Self {
        if wanted { Self(self.0 | flag.0) } else { self }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    pub(super) kind: Kind,
    pub(super) flags: Flags,
    pub(super) stream: StreamId,
    pub(super) payload: &'a [u8],
}

/// Takes one complete frame off the front of `buf`. Returns it and the rest.
///
/// `Ok(None)` means that more bytes are needed. A frame that is too long is refused once its header is complete.
pub(super) fn take_frame(buf: &[u8]) -> Result<Option<(Frame<'_>, &[u8])>, Error> {
    let Some((head, rest)) = buf.split_first_chunk::<FRAME_HEADER_BYTES>() else { return Ok(None) };
    let [a, b, c, kind, flags, s, t, u, v] = *head;
    let len = usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap_or(usize::MAX);
    if len > limits::MAX_HTTP2_FRAME_BYTES {
        return Err(error::frame_size("frame longer than allowed"));
    }
    let (kind, flags, stream) = (Kind(kind), Flags(flags), StreamId::read([s, t, u, v]));
    Ok(rest.split_at_checked(len).map(|(payload, rest)| (Frame { kind, flags, stream, payload }, rest)))
}

/// Writes a frame; the length of `payload` must fit into 24 bits.
pub(super) fn write_frame(kind: Kind, flags: Flags, stream: StreamId, payload: &[u8], out: &mut Vec<u8>) {
    let [.., a, b, c] = payload.len().to_be_bytes();
    out.extend([a, b, c, kind.0, flags.0]);
    out.extend(stream.bytes());
    out.extend_from_slice(payload);
}

/// The payload without its padding.
pub(super) fn unpad<'a>(frame: &Frame<'a>) -> Result<&'a [u8], Error> {
    if !frame.flags.has(Flags::PADDED) {
        return Ok(frame.payload);
    }
    let (padding, rest) = frame.payload.split_first().ok_or(error::frame_size("padded frame without a pad length"))?;
    let len = rest.len().checked_sub(usize::from(*padding));
    len.and_then(|len| rest.get(..len)).ok_or(error::protocol("padding longer than its frame"))
}

const FRAME_HEADER_BYTES: usize = 9;
