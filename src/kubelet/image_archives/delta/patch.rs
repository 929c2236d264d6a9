//! The steps that make a layer from an older one, and their execution. Pure.
//!
//! Three streams: steps, differences and new bytes. A step is a number, `length << 2 | kind`, and for the kinds that read
//! the older layer a second number: how far its position is from the end of the last such step, in zigzag. Numbers are
//! those of protobuf: seven bits a byte, the lowest first.
//!
//! ```text
//!   copy      bytes of the older layer
//!   add       bytes of the older layer, each plus a byte of the differences
//!   insert    new bytes
//! ```

use std::fmt;
use std::io::{self, Read};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Copy,
    Add,
    Insert,
}

/// The streams of a patch, to write.
#[derive(Debug, Default)]
pub(super) struct Steps {
    pub(super) steps: Vec<u8>,
    pub(super) differences: Vec<u8>,
    pub(super) inserts: Vec<u8>,
    /// The end of the last step that reads the older layer.
    position: u64,
}

impl Steps {
    /// A step that reads the older layer at `from`.
    pub(super) fn read(&mut self, kind: Kind, from: u64, length: u64) {
        self.number((length << 2) | u64::from(kind == Kind::Add));
        let moved = from.wrapping_sub(self.position);
        // Zigzag.
        self.number(if from >= self.position { moved << 1 } else { (moved.wrapping_neg() << 1) - 1 });
        self.position = from + length;
    }

    pub(super) fn insert(&mut self, bytes: &[u8]) {
        self.number((u64::try_from(bytes.len()).unwrap_or_default() << 2) | 2);
        self.inserts.extend_from_slice(bytes);
    }

    fn number(&mut self, mut number: u64) {
        loop {
            let low = u8::try_from(number & 0x7f).unwrap_or_default();
            number >>= 7;
            if number == 0 {
                self.steps.push(low);
                return;
            }
            self.steps.push(low | 0x80);
        }
    }
}

/// The streams of a patch, to read.
#[expect(missing_debug_implementations, reason = "readers have none")]
pub struct Patch<'a> {
    pub steps: &'a mut dyn Read,
    pub differences: &'a mut dyn Read,
    pub inserts: &'a mut dyn Read,
}

/// The older layer.
#[expect(missing_debug_implementations, reason = "a closure has none")]
pub struct Base<'a> {
    pub length: u64,
    /// Reads all of the bytes at a position.
    pub read: &'a dyn Fn(u64, &mut [u8]) -> io::Result<()>,
}

#[derive(Debug)]
pub enum PatchError {
    /// Of the base, or of the output.
    Io(io::Error),
    /// The streams are no patch for this base.
    Invalid,
}

impl fmt::Display for PatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Invalid => f.write_str("it is damaged: a patch in it is invalid"),
        }
    }
}

impl std::error::Error for PatchError {}

const PATCH_BUFFER_BYTES: usize = 64 << 10;

/// Writes the `length` bytes of the layer to `write`. Holds two small buffers.
pub fn apply(
    patch: Patch<'_>,
    base: &Base<'_>,
    length: u64,
    write: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> Result<(), PatchError> {
    let Patch { steps, differences, inserts } = patch;
    let mut position: u64 = 0;
    let mut left = length;
    let (mut buffer, mut other) = (vec![0; PATCH_BUFFER_BYTES], vec![0; PATCH_BUFFER_BYTES]);
    let broken = |_| PatchError::Invalid;
    while left > 0 {
        let step = number(steps)?;
        let kind = match step & 3 {
            0 => Kind::Copy,
            1 => Kind::Add,
            2 => Kind::Insert,
            _ => return Err(PatchError::Invalid),
        };
        let mut count = step >> 2;
        // A step of no bytes would let a small patch run for long.
        if count == 0 || count > left {
            return Err(PatchError::Invalid);
        }
        left -= count;
        if kind != Kind::Insert {
            let moved = number(steps)?;
            let distance = moved >> 1;
            let start = if moved & 1 == 0 {
                position.checked_add(distance)
            } else {
                position.checked_sub(distance).and_then(|at| at.checked_sub(1))
            };
            position = start.ok_or(PatchError::Invalid)?;
            if position.checked_add(count).is_none_or(|end| end > base.length) {
                return Err(PatchError::Invalid);
            }
        }
        while count > 0 {
            let most = usize::try_from(count).unwrap_or(usize::MAX).min(PATCH_BUFFER_BYTES);
            let (Some(bytes), Some(plus)) = (buffer.get_mut(..most), other.get_mut(..most)) else {
                return Err(PatchError::Invalid);
            };
            match kind {
                Kind::Insert => inserts.read_exact(bytes).map_err(broken)?,
                Kind::Copy => (base.read)(position, bytes).map_err(PatchError::Io)?,
                Kind::Add => {
                    (base.read)(position, bytes).map_err(PatchError::Io)?;
                    differences.read_exact(plus).map_err(broken)?;
                    for (byte, plus) in bytes.iter_mut().zip(plus) {
                        *byte = byte.wrapping_add(*plus);
                    }
                }
            }
            write(bytes).map_err(PatchError::Io)?;
            let done = u64::try_from(most).unwrap_or(u64::MAX);
            if kind != Kind::Insert {
                position += done;
            }
            count -= done;
        }
    }
    Ok(())
}

fn number(from: &mut dyn Read) -> Result<u64, PatchError> {
    let mut number = 0;
    for shift in (0..63).step_by(7) {
        let mut byte = [0];
        from.read_exact(&mut byte).map_err(|_| PatchError::Invalid)?;
        let [byte] = byte;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(PatchError::Invalid)
}
