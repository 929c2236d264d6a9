//! Integers and strings (RFC 7541 section 5). Pure.

use super::Error;
use super::huffman;

/// The unread bytes of a header block.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(block: &'a [u8]) -> Self {
        Self { rest: block }
    }

    /// The next byte, or `None` at the end of the block.
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// Reads an integer whose prefix is the low `bits` of `first`. Limited to 28 bits beyond the prefix, more than
    /// HPACK needs.
    pub(super) fn integer(&mut self, first: u8, bits: u32) -> Result<usize, Error> {
        let mask = prefix_mask(bits);
        let mut value = usize::from(first & mask);
        if first & mask < mask {
            return Ok(value);
        }
        for shift in [0, 7, 14, 21] {
            let byte = self.byte().ok_or(Error::Truncated)?;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Error::IntegerTooLarge)
    }

    pub(super) fn string(&mut self) -> Result<Vec<u8>, Error> {
        let first = self.byte().ok_or(Error::Truncated)?;
        let len = self.integer(first, 7)?;
        let (raw, rest) = self.rest.split_at_checked(len).ok_or(Error::Truncated)?;
        self.rest = rest;
        if first & HUFFMAN == 0 {
            return Ok(raw.to_vec());
        }
        let mut plain = Vec::new();
        huffman::decode(raw, &mut plain)?;
        Ok(plain)
    }
}

/// Writes `value` with a prefix of `bits`; `pattern` sets the bits above the prefix.
pub(super) fn write_integer(value: usize, bits: u32, pattern: u8, out: &mut Vec<u8>) {
    let mask = prefix_mask(bits);
    let mut rest = match u8::try_from(value) {
        Ok(small) if small < mask => return out.push(pattern | small),
        _ => value - usize::from(mask),
    };
    out.push(pattern | mask);
    loop {
        let [low, ..] = rest.to_le_bytes();
        rest >>= 7;
        if rest == 0 {
            return out.push(low & 0x7f);
        }
        out.push(low | 0x80);
    }
}

/// Writes `text` plain or Huffman-coded, whichever is shorter.
pub(super) fn write_string(text: &[u8], out: &mut Vec<u8>) {
    let coded = huffman::encoded_len(text);
    if coded < text.len() {
        write_integer(coded, 7, HUFFMAN, out);
        huffman::encode(text, out);
    } else {
        write_integer(text.len(), 7, 0, out);
        out.extend_from_slice(text);
    }
}

fn prefix_mask(bits: u32) -> u8 {
    u8::MAX.checked_shr(8 - bits).unwrap_or_default()
}

const HUFFMAN: u8 = 0x80;
