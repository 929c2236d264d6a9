//! Parses frames from received bytes. Pure.

use std::fmt;

use super::{CONTROL_BIT, FLAG_FIN, SPDY_VERSION, StreamId, kind};

/// A received event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The server has accepted the stream.
    Accepted(StreamId),
    /// Part of a stream's data; never empty.
    Data { stream: StreamId, bytes: &'a [u8] },
    /// The server sends no more data on the stream.
    End(StreamId),
    /// The stream is closed in both directions.
    Reset(StreamId),
    /// To be echoed.
    Ping(u32),
    /// The server accepts no further streams.
    GoAway,
    /// Nothing that a client needs.
    Other,
}

/// Not SPDY/3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    Version(u16),
    /// A control frame of this type is too short.
    Short(u16),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "expected version 3 of SPDY, found {version}"),
            Self::Short(kind) => write!(f, "a SPDY frame of kind {kind} is too short"),
        }
    }
}

/// The position in the stream of frames. Frames are not buffered.
#[derive(Debug, Default)]
pub struct Incoming {
    within: PartialFrame,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PartialFrame {
    #[default]
    Nothing,
    Data {
        stream: StreamId,
        bytes_left: usize,
        fin: bool,
    },
    /// The rest of a frame that is already reported or ignored.
    Rest {
        bytes_left: usize,
        end_of: Option<StreamId>,
    },
}

impl Incoming {
    /// Takes one event off the front of `bytes`. Returns it and the number of bytes consumed, possibly none. `Ok(None)`
    /// means that more bytes are needed, never more than [`MAX_SPDY_HEADER_BYTES`] in total.
    pub fn take<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<(Event<'a>, usize)>, Malformed> {
        match self.within {
            PartialFrame::Nothing => self.take_head(bytes),
            PartialFrame::Data { bytes_left: 0, .. } | PartialFrame::Rest { bytes_left: 0, .. } => {
                Ok(Some((self.end(), 0)))
            }
            PartialFrame::Data { stream, bytes_left: left, fin } => {
                let part = bytes.get(..left.min(bytes.len())).unwrap_or_default();
                self.within = PartialFrame::Data { stream, bytes_left: left - part.len(), fin };
                Ok((!part.is_empty()).then_some((Event::Data { stream, bytes: part }, part.len())))
            }
            PartialFrame::Rest { bytes_left: left, end_of } => {
                let passed = left.min(bytes.len());
                self.within = PartialFrame::Rest { bytes_left: left - passed, end_of };
                Ok((passed > 0).then_some((Event::Other, passed)))
            }
        }
    }

    /// Handles the end of a frame.
    fn end<'a>(&mut self) -> Event<'a> {
        let ended = match std::mem::take(&mut self.within) {
            PartialFrame::Data { stream, fin: true, .. } => Some(stream),
            PartialFrame::Rest { end_of, .. } => end_of,
            PartialFrame::Data { .. } | PartialFrame::Nothing => None,
        };
        ended.map_or(Event::Other, Event::End)
    }

    fn take_head<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<(Event<'a>, usize)>, Malformed> {
        let Some((head, rest)) = bytes.split_first_chunk::<8>() else { return Ok(None) };
        let [a, b, c, d, flags, length @ ..] = *head;
        let [x, y, z] = length;
        let length = usize::try_from(u32::from_be_bytes([0, x, y, z])).unwrap_or(usize::MAX);
        let (first, kind, fin) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]), flags & FLAG_FIN != 0);
        if first & CONTROL_BIT == 0 {
            let stream = u32::from_be_bytes([a, b, c, d]);
            self.within = PartialFrame::Data { stream, bytes_left: length, fin };
            return Ok(Some((Event::Other, head.len())));
        }
        if first & !CONTROL_BIT != SPDY_VERSION {
            return Err(Malformed::Version(first & !CONTROL_BIT));
        }
        let needed = match kind {
            kind::SYN_REPLY | kind::PING | kind::GOAWAY => 4,
            kind::RST_STREAM => 8,
            _ => 0,
        };
        if length < needed {
            return Err(Malformed::Short(kind));
        }
        let Some(body) = rest.get(..needed) else { return Ok(None) };
        let number = body.first_chunk::<4>().map_or(0, |number| u32::from_be_bytes(*number));
        let event = match kind {
            kind::SYN_REPLY => Event::Accepted(number & 0x7fff_ffff),
            kind::RST_STREAM => Event::Reset(number & 0x7fff_ffff),
            kind::PING => Event::Ping(number),
            kind::GOAWAY => Event::GoAway,
            _ => Event::Other,
        };
        let end_of = (kind == kind::SYN_REPLY && fin).then_some(number & 0x7fff_ffff);
        self.within = PartialFrame::Rest { bytes_left: length - needed, end_of };
        Ok(Some((event, head.len() + needed)))
    }
}

/// The longest frame header, with the part of the body that must be known.
pub const MAX_SPDY_HEADER_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// All events but `Other`, from bytes that arrive in pieces of `step`.
    fn events(bytes: &[u8], step: usize) -> Result<Vec<String>, Malformed> {
        let (mut incoming, mut unread, mut shown) = (Incoming::default(), Vec::new(), Vec::new());
        for part in bytes.chunks(step) {
            unread.extend_from_slice(part);
            while let Some((event, used)) = incoming.take(&unread)? {
                match event {
                    Event::Other => {}
                    // Data is split where the input is split.
                    Event::Data { stream, bytes } => {
                        bytes.iter().for_each(|byte| shown.push(format!("{stream} {byte}")))
                    }
                    event => shown.push(format!("{event:?}")),
                }
                unread.drain(..used);
            }
            assert!(unread.len() < MAX_SPDY_HEADER_BYTES);
        }
        Ok(shown)
    }

    const TALK: &[&[u8]] = &[
        // SYN_REPLY of stream 1 with four bytes of headers.
        &[0x80, 3, 0, 2, 0, 0, 0, 8, 0, 0, 0, 1, 0xde, 0xad, 0xbe, 0xef],
        // SETTINGS, which a client ignores.
        &[0x80, 3, 0, 4, 0, 0, 0, 4, 0, 0, 0, 0],
        &[0, 0, 0, 1, 0, 0, 0, 3, 7, 8, 9],
        &[0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 2],
        // An empty data frame, then the last one.
        &[0, 0, 0, 1, 0, 0, 0, 0],
        &[0, 0, 0, 1, 1, 0, 0, 1, 10],
        // SYN_REPLY with FIN.
        &[0x80, 3, 0, 2, 1, 0, 0, 5, 0, 0, 0, 3, 0],
        &[0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 5, 0, 0, 0, 5],
        &[0x80, 3, 0, 7, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0, 0, 0, 7, 1, 0, 0, 0],
    ];

    #[test]
    fn events_do_not_depend_on_splits() {
        let talk = TALK.concat();
        let shown = [
            "Accepted(1)",
            "1 7",
            "1 8",
            "1 9",
            "Ping(2)",
            "1 10",
            "End(1)",
            "Accepted(3)",
            "End(3)",
            "Reset(5)",
            "GoAway",
            "End(7)",
        ];
        for step in 1..=talk.len() {
            assert_eq!(events(&talk, step).unwrap(), shown, "{step}");
        }
    }

    #[test]
    fn other_versions_are_refused() {
        assert_eq!(events(&[0x80, 2, 0, 6, 0, 0, 0, 4, 0, 0, 0, 2], 100), Err(Malformed::Version(2)));
        assert_eq!(events(&[0x80, 3, 0, 3, 0, 0, 0, 4, 0, 0, 0, 2], 100), Err(Malformed::Short(3)));
        assert_eq!(events(b"HTTP/1.1", 100), Ok(vec![]));
    }

    #[test]
    fn large_frames_are_passed_on_in_parts() {
        let mut incoming = Incoming::default();
        let head = [0, 0, 0, 1, 0, 0xff, 0xff, 0xff];
        assert_eq!(incoming.take(&head), Ok(Some((Event::Other, 8))));
        assert_eq!(incoming.take(&[]), Ok(None));
        let bytes = [5; 4096];
        for _ in 0..4095 {
            assert_eq!(incoming.take(&bytes), Ok(Some((Event::Data { stream: 1, bytes: &bytes }, 4096))));
        }
        assert_eq!(incoming.take(&bytes), Ok(Some((Event::Data { stream: 1, bytes: &bytes[..4095] }, 4095))));
        assert_eq!(incoming.take(&bytes), Ok(Some((Event::Other, 0))));
    }
}
