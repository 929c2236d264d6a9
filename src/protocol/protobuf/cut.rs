//! Cuts the strings of a message while it arrives, so that a long one is never held. Pure.

use super::DecodeError;
use super::encode::{put_varint, wire_type};

/// Takes the bytes of a message in pieces of any size, and keeps its fields. Of each string and byte string of the
/// message itself only the first bytes are kept.
#[derive(Debug)]
pub struct Cutter {
    /// Bytes kept of each string.
    limit: usize,
    /// Bytes kept of all fields.
    room: usize,
    step: Step,
    output: Vec<u8>,
}

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug)]
enum Step {
    Key(Varint),
    Number(Varint),
    Length(Varint),
    /// This many bytes to keep and then to skip.
    Content {
        keep: u64,
        skip: u64,
    },
}

#[derive(Clone, Copy, Debug, Default)]
struct Varint {
    value: u64,
    /// Bytes so far.
    length: u32,
}

impl Cutter {
    /// Keeps at most `limit` bytes of each string, and `room` bytes in total.
    pub fn new(limit: usize, room: usize) -> Self {
        Self { limit, room, step: Step::Key(Varint::default()), output: Vec::new() }
    }

    pub fn take(&mut self, mut bytes: &[u8]) -> Result<(), DecodeError> {
        while let Some((&first, rest)) = bytes.split_first() {
            self.step = match self.step {
                Step::Content { keep: 0, skip: 0 } => Step::Key(Varint::default()),
                Step::Content { keep, skip } => {
                    let length = if keep > 0 { keep } else { skip };
                    let length = usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len());
                    let (now, later) = bytes.split_at_checked(length).unwrap_or((bytes, &[]));
                    bytes = later;
                    let taken = u64::try_from(length).unwrap_or(u64::MAX);
                    if keep > 0 {
                        self.keep(now)?;
                        Step::Content { keep: keep.saturating_sub(taken), skip }
                    } else {
                        Step::Content { keep, skip: skip.saturating_sub(taken) }
                    }
                }
                Step::Key(mut key) => {
                    bytes = rest;
                    self.keep(&[first])?;
                    match key.push(first)? {
                        None => Step::Key(key),
                        Some(key) => Self::value(key)?,
                    }
                }
                Step::Number(mut number) => {
                    bytes = rest;
                    self.keep(&[first])?;
                    match number.push(first)? {
                        None => Step::Number(number),
                        Some(_) => Step::Content { keep: 0, skip: 0 },
                    }
                }
                Step::Length(mut length) => {
                    bytes = rest;
                    match length.push(first)? {
                        None => Step::Length(length),
                        Some(length) => self.content(length)?,
                    }
                }
            };
        }
        Ok(())
    }

    /// The message with cut strings, if it is complete.
    pub fn finish(self) -> Result<Vec<u8>, DecodeError> {
        match self.step {
            Step::Content { keep: 0, skip: 0 } | Step::Key(Varint { length: 0, .. }) => Ok(self.output),
            Step::Content { .. } | Step::Key(_) | Step::Length(_) | Step::Number(_) => Err(DecodeError::Truncated),
        }
    }

    /// What follows a key.
    fn value(key: u64) -> Result<Step, DecodeError> {
        let [low, ..] = key.to_le_bytes();
        match low & 7 {
            wire_type::VARINT => Ok(Step::Number(Varint::default())),
            wire_type::FIXED64 => Ok(Step::Content { keep: 8, skip: 0 }),
            wire_type::FIXED32 => Ok(Step::Content { keep: 4, skip: 0 }),
            wire_type::LENGTH => Ok(Step::Length(Varint::default())),
            _ => Err(DecodeError::BadKey),
        }
    }

    fn content(&mut self, length: u64) -> Result<Step, DecodeError> {
        let keep = length.min(u64::try_from(self.limit).unwrap_or(u64::MAX));
        let mut coded = Vec::new();
        put_varint(keep, &mut coded);
        self.keep(&coded)?;
        Ok(Step::Content { keep, skip: length.saturating_sub(keep) })
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        self.room = self.room.checked_sub(bytes.len()).ok_or(DecodeError::TooLarge)?;
        self.output.extend_from_slice(bytes);
        Ok(())
    }
}

impl Varint {
    /// The number, once its last byte has arrived.
    fn push(&mut self, byte: u8) -> Result<Option<u64>, DecodeError> {
        if self.length == MAX_VARINT_BYTES || self.length + 1 == MAX_VARINT_BYTES && byte > 1 {
            return Err(DecodeError::VarintTooLong);
        }
        self.value |= u64::from(byte & 0x7f) << (7 * self.length);
        self.length += 1;
        Ok((byte < 0x80).then_some(self.value))
    }
}

/// Bytes of a number with 64 bits.
const MAX_VARINT_BYTES: u32 = 10;

#[cfg(test)]
mod tests {
    use super::super::{decode, encode, message};
    use super::*;

    message! {
        struct Output {
            1 => stdout: Vec<u8>,
            2 => stderr: Vec<u8>,
            3 => exit_code: i32,
            4 => share: f64,
        }
    }

    fn output(stdout: usize, stderr: usize) -> Output {
        Output { stdout: vec![b'o'; stdout], stderr: vec![b'e'; stderr], exit_code: -3, share: 0.5 }
    }

    fn cut(bytes: &[u8], piece: usize) -> Result<Vec<u8>, DecodeError> {
        let mut cutter = Cutter::new(300, 1000);
        bytes.chunks(piece).try_for_each(|piece| cutter.take(piece))?;
        cutter.finish()
    }

    #[test]
    fn strings_are_cut_and_other_fields_stay_however_the_bytes_arrive() {
        for (stdout, stderr) in [(0, 0), (1, 300), (300, 301), (100_000, 5000)] {
            let bytes = encode(&output(stdout, stderr));
            for piece in [1, 2, 3, 7, 299, 4096, bytes.len()] {
                let whole: Output = decode(&cut(&bytes, piece).unwrap()).unwrap();
                assert_eq!(whole, output(stdout.min(300), stderr.min(300)), "{stdout} {stderr} {piece}");
            }
        }
    }

    #[test]
    fn truncated_endless_and_malformed_messages_are_errors() {
        let bytes = encode(&output(400, 10));
        assert_eq!(cut(&bytes[..bytes.len() - 1], 7), Err(DecodeError::Truncated));
        assert_eq!(cut(&bytes[..200], 7), Err(DecodeError::Truncated));
        assert_eq!(cut(&bytes.repeat(4), 7), Err(DecodeError::TooLarge));
        assert_eq!(cut(&[0xff; 11], 3), Err(DecodeError::VarintTooLong));
        assert_eq!(cut(&[0x0b], 1), Err(DecodeError::BadKey), "a group");
        assert_eq!(
            cut(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], 1),
            Err(DecodeError::Truncated)
        );
    }
}
