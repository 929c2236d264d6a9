//! The Huffman code of RFC 7541 appendix B. Pure.
//!
//! The code is canonical: codes of one length are consecutive in symbol order, and each length continues where the
//! shorter one ended. The lengths alone define the code, and decoding takes one comparison per bit.

use super::Error;

/// Appends the decoded bytes to `out`.
pub(super) fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    let mut code = 0_u32;
    let mut length = 0_usize;
    for byte in coded {
        for shift in (0..8).rev() {
            code = code << 1 | u32::from(byte >> shift & 1);
            length += 1;
            // Only the end-of-string symbol is longer, and it must not appear.
            let group = CODE.groups.get(length).ok_or(Error::Huffman)?;
            if let Some(symbol) = group.symbol(code) {
                out.push(symbol);
                code = 0;
                length = 0;
            }
        }
    }
    // The rest is padding: fewer than 8 bits, all ones as in the end-of-string symbol.
    if length < 8 && code == (1 << length) - 1 { Ok(()) } else { Err(Error::Huffman) }
}

/// The encoded length of `plain` in bytes.
pub(super) fn encoded_len(plain: &[u8]) -> usize {
    let bits: usize = plain.iter().map(|&symbol| usize::from(length_of(symbol))).sum();
    bits.div_ceil(8)
}

/// Appends the encoded bytes to `out`.
pub(super) fn encode(plain: &[u8], out: &mut Vec<u8>) {
    let mut bits = 0_u64;
    let mut filled = 0;
    for &symbol in plain {
        let length = length_of(symbol);
        // At most 7 bits are pending, and no code has more than 30.
        bits = bits << length | u64::from(code_of(symbol));
        filled += u32::from(length);
        while filled >= 8 {
            filled -= 8;
            out.push(low_byte(bits >> filled));
        }
    }
    if filled > 0 {
        let padding = 8 - filled;
        out.push(low_byte(bits << padding | ((1 << padding) - 1)));
    }
}

fn low_byte(bits: u64) -> u8 {
    let [.., low] = bits.to_be_bytes();
    low
}

fn length_of(symbol: u8) -> u8 {
    LENGTHS.get(usize::from(symbol)).copied().unwrap_or_default()
}

fn code_of(symbol: u8) -> u32 {
    CODE.codes.get(usize::from(symbol)).copied().unwrap_or_default()
}

/// The codes of one length.
#[derive(Clone, Copy)]
struct Group {
    first: u32,
    count: u32,
    /// Index of the group's first symbol in `SYMBOLS`.
    start: usize,
}

impl Group {
    fn symbol(self, code: u32) -> Option<u8> {
        let nth = code.checked_sub(self.first).filter(|nth| *nth < self.count)?;
        CODE.symbols.get(self.start + usize::try_from(nth).ok()?).copied()
    }
}

const MAX_HUFFMAN_CODE_BITS: usize = 30;

struct Code {
    codes: [u32; 256],
    /// All symbols in code order.
    symbols: [u8; 256],
    groups: [Group; MAX_HUFFMAN_CODE_BITS + 1],
}

#[expect(clippy::indexing_slicing, reason = "the compiler evaluates it; a wrong index does not build")]
static CODE: Code = {
    let mut code = Code {
        codes: [0; 256],
        symbols: [0; 256],
        groups: [Group { first: 0, count: 0, start: 0 }; MAX_HUFFMAN_CODE_BITS + 1],
    };
    let mut next = 0;
    let mut start = 0;
    let mut length: u8 = 1;
    while length as usize <= MAX_HUFFMAN_CODE_BITS {
        next <<= 1;
        let first = next;
        let mut count = 0;
        let mut symbol: u8 = 0;
        loop {
            if LENGTHS[symbol as usize] == length {
                code.codes[symbol as usize] = next;
                code.symbols[start + count as usize] = symbol;
                next += 1;
                count += 1;
            }
            if symbol == u8::MAX {
                break;
            }
            symbol += 1;
        }
        code.groups[length as usize] = Group { first, count, start };
        start += count as usize;
        length += 1;
    }
    code
};

/// The code length of each byte, in bits.
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, // 0x00
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, // 0x10
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, // 0x20
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, // 0x30
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, // 0x40
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, // 0x50
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, // 0x60
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, // 0x70
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, // 0x80
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, // 0x90
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, // 0xa0
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, // 0xb0
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, // 0xc0
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, // 0xd0
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, // 0xe0
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, // 0xf0
];
