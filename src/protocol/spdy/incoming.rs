//! Frames out of the bytes that have come. Pure.

use std::fmt;

use super::{CONTROL, FLAG_FIN, StreamId, VERSION, kind};

/// What has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The server has taken the stream up.
    Accepted(StreamId),
    /// Some of what the stream carries; never empty.
    Data { stream: StreamId, bytes: &'a [u8] },
    /// The stream carries no more.
    End(StreamId),
    /// The stream is over, both ways.
    Reset(StreamId),
    /// To be sent back.
    Ping(u32),
    /// No further stream will be taken up.
    GoAway,
    /// What a client need not know.
    Other,
}

/// What came is not SPDY/3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    Version(u16),
    /// A control frame of this kind is shorter than what belongs in it.
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

/// Where in the stream of frames the next byte stands. Nothing of a frame is kept but this.
#[derive(Debug, Default)]
pub struct Incoming {
    within: Within,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Within {
    #[default]
    Nothing,
    Data {
        stream: StreamId,
        left: usize,
        fin: bool,
    },
    /// The end of a frame that was told of already, or is nothing to this side.
    Rest {
        left: usize,
        end_of: Option<StreamId>,
    },
}

impl Incoming {
    /// Takes one event off the front of `bytes`: it, and how many bytes it had, which may be none. `Ok(None)` means: come back
    /// with more. No more than [`LONGEST`] bytes are ever asked for at once.
    pub fn take<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<(Event<'a>, usize)>, Malformed> {
        match self.within {
            Within::Nothing => self.take_head(bytes),
            Within::Data { left: 0, .. } | Within::Rest { left: 0, .. } => Ok(Some((self.end(), 0))),
            Within::Data { stream, left, fin } => {
                let part = bytes.get(..left.min(bytes.len())).unwrap_or_default();
                self.within = Within::Data { stream, left: left - part.len(), fin };
                Ok((!part.is_empty()).then_some((Event::Data { stream, bytes: part }, part.len())))
            }
            Within::Rest { left, end_of } => {
                let passed = left.min(bytes.len());
                self.within = Within::Rest { left: left - passed, end_of };
                Ok((passed > 0).then_some((Event::Other, passed)))
            }
        }
    }

    /// A frame is over.
    fn end<'a>(&mut self) -> Event<'a> {
        let ended = match std::mem::take(&mut self.within) {
            Within::Data { stream, fin: true, .. } => Some(stream),
            Within::Rest { end_of, .. } => end_of,
            Within::Data { .. } | Within::Nothing => None,
        };
        ended.map_or(Event::Other, Event::End)
    }

    fn take_head<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<(Event<'a>, usize)>, Malformed> {
        let Some((head, rest)) = bytes.split_first_chunk::<8>() else { return Ok(None) };
        let [a, b, c, d, flags, length @ ..] = *head;
        let [x, y, z] = length;
        let length = usize::try_from(u32::from_be_bytes([0, x, y, z])).unwrap_or(usize::MAX);
        let (first, kind, fin) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]), flags & FLAG_FIN != 0);
        if first & CONTROL == 0 {
            let stream = u32::from_be_bytes([a, b, c, d]);
            self.within = Within::Data { stream, left: length, fin };
            return Ok(Some((Event::Other, head.len())));
        }
        if first & !CONTROL != VERSION {
            return Err(Malformed::Version(first & !CONTROL));
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
        self.within = Within::Rest { left: length - needed, end_of };
        Ok(Some((event, head.len() + needed)))
    }
}

/// The longest head of a frame with what has to be known of its body.
pub const LONGEST: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything but what says nothing, out of bytes that come so many at a time.
    fn events(bytes: &[u8], step: usize) -> Result<Vec<String>, Malformed> {
        let (mut incoming, mut unread, mut told) = (Incoming::default(), Vec::new(), Vec::new());
        for part in bytes.chunks(step) {
            unread.extend_from_slice(part);
            while let Some((event, used)) = incoming.take(&unread)? {
                match event {
                    Event::Other => {}
                    // Data comes in as many parts as it is cut into.
                    Event::Data { stream, bytes } => {
                        bytes.iter().for_each(|byte| told.push(format!("{stream} {byte}")))
                    }
                    event => told.push(format!("{event:?}")),
                }
                unread.drain(..used);
            }
            assert!(unread.len() < LONGEST);
        }
        Ok(told)
    }

    const TALK: &[&[u8]] = &[
        // SYN_REPLY of stream 1 with four bytes of headers.
        &[0x80, 3, 0, 2, 0, 0, 0, 8, 0, 0, 0, 1, 0xde, 0xad, 0xbe, 0xef],
        // SETTINGS: nothing to a client.
        &[0x80, 3, 0, 4, 0, 0, 0, 4, 0, 0, 0, 0],
        &[0, 0, 0, 1, 0, 0, 0, 3, 7, 8, 9],
        &[0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 2],
        // Data without any, and then the end.
        &[0, 0, 0, 1, 0, 0, 0, 0],
        &[0, 0, 0, 1, 1, 0, 0, 1, 10],
        // A reply with the end of its stream.
        &[0x80, 3, 0, 2, 1, 0, 0, 5, 0, 0, 0, 3, 0],
        &[0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 5, 0, 0, 0, 5],
        &[0x80, 3, 0, 7, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0, 0, 0, 7, 1, 0, 0, 0],
    ];

    #[test]
    fn frames_are_the_same_wherever_they_are_cut() {
        let talk = TALK.concat();
        let told = [
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
            assert_eq!(events(&talk, step).unwrap(), told, "{step}");
        }
    }

    #[test]
    fn what_is_not_spdy_3_is_told() {
        assert_eq!(events(&[0x80, 2, 0, 6, 0, 0, 0, 4, 0, 0, 0, 2], 100), Err(Malformed::Version(2)));
        assert_eq!(events(&[0x80, 3, 0, 3, 0, 0, 0, 4, 0, 0, 0, 2], 100), Err(Malformed::Short(3)));
        assert_eq!(events(b"HTTP/1.1", 100), Ok(vec![]));
    }

    #[test]
    fn a_frame_of_any_size_is_passed_on_in_parts() {
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
