//! WebSocket (RFC 6455), the server's side: bytes in, bytes out. Pure.
//!
//! Messages are not collected: their parts are passed on as they come, so that a message of any length needs no memory.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// A received frame, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event<'a> {
    /// A message begins; its bytes follow.
    Begin,
    /// Bytes of the current message; never empty.
    Data(&'a [u8]),
    /// To be answered with a pong of this content.
    Ping(&'a [u8]),
    /// The other side closes the connection.
    Close,
    /// Nothing that a server needs.
    Other,
}

/// Not what RFC 6455 lets a client send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// Section 5.1.
    NotMasked,
    /// An extension that was not agreed on.
    Reserved,
    Opcode(u8),
    /// A message within a message, or a continuation without one.
    Order,
    /// A control frame is longer than 125 bytes or in parts.
    Control,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMasked => f.write_str("a WebSocket frame of a client has no mask"),
            Self::Reserved => f.write_str("a WebSocket frame has reserved bits"),
            Self::Opcode(code) => write!(f, "a WebSocket frame has the unknown opcode {code}"),
            Self::Order => f.write_str("WebSocket messages are mixed up"),
            Self::Control => f.write_str("a WebSocket control frame is too long or in parts"),
        }
    }
}

impl std::error::Error for Malformed {}

/// The position in the stream of frames. Frames are not buffered.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    in_message: bool,
    /// What is missing of the current frame.
    bytes_left: u64,
    /// For the next byte first.
    mask: [u8; 4],
}

const FIN_BIT: u8 = 0x80;
const RESERVED_BITS: u8 = 0x70;
const MASKED_BIT: u8 = 0x80;
const OPCODE_BITS: u8 = 0x0f;
const CONTINUATION_OPCODE: u8 = 0;
const TEXT_OPCODE: u8 = 1;
const BINARY_OPCODE: u8 = 2;
const CLOSE_OPCODE: u8 = 8;
const PING_OPCODE: u8 = 9;
const PONG_OPCODE: u8 = 10;
const MAX_CONTROL_BYTES: usize = 125;
/// A following length of two bytes, and of eight.
const LENGTH_OF_2: u8 = 126;
const LENGTH_OF_8: u8 = 127;
/// Normal closure (section 7.4.1).
const NORMAL_CLOSURE: u16 = 1000;
/// Section 1.3.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

impl Incoming {
    /// Takes one event off the front of `bytes`, which it unmasks. Returns it and the number of bytes consumed.
    /// `Ok(None)` means that more bytes are needed, never more than 139 in total.
    pub(crate) fn take<'a>(&mut self, bytes: &'a mut [u8]) -> Result<Option<(Event<'a>, usize)>, Malformed> {
        if self.bytes_left == 0 {
            return self.take_head(bytes);
        }
        let most = usize::try_from(self.bytes_left).unwrap_or(usize::MAX);
        let count = most.min(bytes.len());
        let part = bytes.get_mut(..count).unwrap_or_default();
        if part.is_empty() {
            return Ok(None);
        }
        unmask(part, &mut self.mask);
        self.bytes_left -= u64::try_from(count).unwrap_or_default();
        Ok(Some((Event::Data(part), count)))
    }

    fn take_head<'a>(&mut self, bytes: &'a mut [u8]) -> Result<Option<(Event<'a>, usize)>, Malformed> {
        let Some(([first, second], rest)) = bytes.split_first_chunk_mut::<2>() else { return Ok(None) };
        let (opcode, is_last) = (*first & OPCODE_BITS, *first & FIN_BIT != 0);
        if *first & RESERVED_BITS != 0 {
            return Err(Malformed::Reserved);
        }
        if *second & MASKED_BIT == 0 {
            return Err(Malformed::NotMasked);
        }
        let short = *second & !MASKED_BIT;
        let width = match short {
            LENGTH_OF_8 => 8,
            LENGTH_OF_2 => 2,
            _ => 0,
        };
        let Some((length, rest)) = rest.split_at_mut_checked(width) else { return Ok(None) };
        let length = match width {
            0 => u64::from(short),
            _ => length.iter().fold(0, |length, byte| length << 8 | u64::from(*byte)),
        };
        let Some((mask, rest)) = rest.split_first_chunk_mut::<4>() else { return Ok(None) };
        let (mut mask, head) = (*mask, 2 + width + 4);
        match opcode {
            CONTINUATION_OPCODE if !self.in_message => return Err(Malformed::Order),
            TEXT_OPCODE | BINARY_OPCODE if self.in_message => return Err(Malformed::Order),
            CONTINUATION_OPCODE | TEXT_OPCODE | BINARY_OPCODE => {
                (self.in_message, self.bytes_left, self.mask) = (!is_last, length, mask);
                let event = if opcode == CONTINUATION_OPCODE { Event::Other } else { Event::Begin };
                return Ok(Some((event, head)));
            }
            CLOSE_OPCODE | PING_OPCODE | PONG_OPCODE => {}
            other => return Err(Malformed::Opcode(other)),
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if !is_last || length > MAX_CONTROL_BYTES {
            return Err(Malformed::Control);
        }
        let Some(content) = rest.get_mut(..length) else { return Ok(None) };
        unmask(content, &mut mask);
        let event = match opcode {
            CLOSE_OPCODE => Event::Close,
            PING_OPCODE => Event::Ping(content),
            _ => Event::Other,
        };
        Ok(Some((event, head + length)))
    }
}

/// The longest head of a frame, with a whole control frame.
#[cfg(test)]
const MAX_BUFFERED_BYTES: usize = 14 + MAX_CONTROL_BYTES;

fn unmask(bytes: &mut [u8], mask: &mut [u8; 4]) {
    for (byte, key) in bytes.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
    mask.rotate_left(bytes.len() % 4);
}

/// A message of one frame, whose content is `first` and `rest`.
pub(crate) fn binary(first: &[u8], rest: &[u8], out: &mut Vec<u8>) {
    frame(BINARY_OPCODE, first, rest, out);
}

pub(crate) fn pong(content: &[u8], out: &mut Vec<u8>) {
    frame(PONG_OPCODE, content, &[], out);
}

/// The end of a connection on which everything was said.
pub(crate) fn close(out: &mut Vec<u8>) {
    frame(CLOSE_OPCODE, &NORMAL_CLOSURE.to_be_bytes(), &[], out);
}

fn frame(opcode: u8, first: &[u8], rest: &[u8], out: &mut Vec<u8>) {
    let length = first.len() + rest.len();
    out.push(FIN_BIT | opcode);
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short), _) if short < LENGTH_OF_2 => out.push(short),
        (_, Ok(medium)) => {
            out.push(LENGTH_OF_2);
            out.extend_from_slice(&medium.to_be_bytes());
        }
        _ => {
            out.push(LENGTH_OF_8);
            out.extend_from_slice(&u64::try_from(length).unwrap_or(u64::MAX).to_be_bytes());
        }
    }
    out.extend_from_slice(first);
    out.extend_from_slice(rest);
}

/// `Sec-WebSocket-Accept` for a `Sec-WebSocket-Key`. SHA-1 protects nothing here.
pub(crate) fn accept(key: &str) -> String {
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GUID}").as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was received, parts of a message joined.
    #[derive(Debug, PartialEq, Eq)]
    enum Told {
        Message(Vec<u8>),
        Ping(Vec<u8>),
        Close,
    }

    /// The events of bytes that come in chunks of this size.
    fn read(bytes: &[u8], chunk: usize) -> Result<Vec<Told>, Malformed> {
        let (mut incoming, mut messages, mut buffer) = (Incoming::default(), Vec::new(), Vec::new());
        for part in bytes.chunks(chunk) {
            buffer.extend_from_slice(part);
            while let Some((event, used)) = incoming.take(&mut buffer)? {
                let message = messages.iter_mut().rev().find_map(|last| match last {
                    Told::Message(message) => Some(message),
                    Told::Ping(_) | Told::Close => None,
                });
                match event {
                    Event::Begin => messages.push(Told::Message(Vec::new())),
                    Event::Data(data) => message.unwrap().extend_from_slice(data),
                    Event::Ping(content) => messages.push(Told::Ping(content.to_vec())),
                    Event::Close => messages.push(Told::Close),
                    Event::Other => {}
                }
                buffer.drain(..used);
            }
            assert!(buffer.len() <= MAX_BUFFERED_BYTES);
        }
        Ok(messages)
    }

    /// A frame as a client sends it.
    fn masked(first: u8, content: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        frame(first & OPCODE_BITS, content, &[], &mut out);
        out[0] = first;
        out[1] |= MASKED_BIT;
        let head = out.len() - content.len();
        let mask = [1, 2, 3, 200];
        let mut body = out.split_off(head);
        unmask(&mut body, &mut mask.clone());
        out.extend_from_slice(&mask);
        out.extend(body);
        out
    }

    #[test]
    fn messages_of_every_length_come_back_however_they_are_cut() {
        for length in [0, 1, 5, 125, 126, 127, 300, 65535, 65536] {
            let content: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let bytes = [masked(FIN_BIT | BINARY_OPCODE, &content), masked(FIN_BIT | CLOSE_OPCODE, b"")].concat();
            for chunk in [1, 2, 3, 7, 1000, bytes.len()] {
                let expected = Ok(vec![Told::Message(content.clone()), Told::Close]);
                assert_eq!(read(&bytes, chunk), expected, "{length} in {chunk}");
            }
        }
    }

    #[test]
    fn control_frames_come_between_the_frames_of_a_message() {
        let frames = [
            masked(BINARY_OPCODE, b"ab"),
            masked(FIN_BIT | PING_OPCODE, b"here?"),
            masked(CONTINUATION_OPCODE, b""),
            masked(FIN_BIT | PONG_OPCODE, b""),
            masked(FIN_BIT | CONTINUATION_OPCODE, b"cd"),
            masked(FIN_BIT | TEXT_OPCODE, b"e"),
        ];
        let message = |text: &str| Told::Message(text.as_bytes().to_vec());
        for chunk in [1, 3, 100] {
            let messages = read(&frames.concat(), chunk).unwrap();
            assert_eq!(messages, [message("abcd"), Told::Ping(b"here?".to_vec()), message("e")], "{chunk}");
        }
    }

    #[test]
    fn frames_that_no_client_may_send_are_errors() {
        let mut plain = Vec::new();
        binary(b"a", b"", &mut plain);
        let long = [0; MAX_CONTROL_BYTES + 1];
        for (bytes, error) in [
            (plain, Malformed::NotMasked),
            (masked(FIN_BIT | 0x40 | BINARY_OPCODE, b"a"), Malformed::Reserved),
            (masked(FIN_BIT | 3, b"a"), Malformed::Opcode(3)),
            (masked(FIN_BIT | CONTINUATION_OPCODE, b"a"), Malformed::Order),
            ([masked(BINARY_OPCODE, b"a"), masked(FIN_BIT | TEXT_OPCODE, b"a")].concat(), Malformed::Order),
            (masked(PING_OPCODE, b"a"), Malformed::Control),
            (masked(FIN_BIT | PING_OPCODE, &long), Malformed::Control),
        ] {
            assert_eq!(read(&bytes, 1), Err(error));
        }
    }

    #[test]
    fn key_is_accepted_as_in_the_rfc() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
