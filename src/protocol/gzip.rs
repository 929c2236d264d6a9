//! Compresses texts into gzip (RFC 1952), with the fixed codes of deflate (RFC 1951, section 3.2.6), and decompresses
//! what others send, and the texts that the build has compressed. Pure.
//!
//! Metrics shrink to a fifth. Codes made for each text would save a further seventh, for 30 KB more of program.

use std::io::Read;

use flate2::Crc;
use flate2::bufread::MultiGzDecoder;

/// The member: deflate, no name, no time, system unknown.
const GZIP_HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
const DEFLATE_WINDOW_BYTES: usize = 32 * 1024;
const HASH_BITS: u32 = 13;
/// Earlier places that are compared for a match.
const MAX_CANDIDATES: usize = 8;
const MIN_DEFLATE_MATCH_BYTES: usize = 4;
const MAX_DEFLATE_MATCH_BYTES: usize = 258;
const END_OF_BLOCK: u32 = 256;

/// Uses 160 KiB of memory meanwhile.
pub(crate) fn gzip(text: &[u8]) -> Vec<u8> {
    let mut bits = Bits { out: Vec::with_capacity(text.len() / 4), buffer: 0, count: 0 };
    bits.out.extend_from_slice(&GZIP_HEAD);
    // One block, the last one, with fixed codes.
    bits.put(0b011, 3);
    let mut matches = Matches { text, newest: vec![0; 1 << HASH_BITS], older: vec![0; DEFLATE_WINDOW_BYTES] };
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let step = match matches.find(at) {
            Some(Match { length, distance }) => {
                bits.length(length);
                bits.distance(distance);
                usize::try_from(length).unwrap_or(1)
            }
            None => {
                bits.symbol(u32::from(*byte));
                1
            }
        };
        (at..at + step).for_each(|position| matches.add(position));
        at += step;
    }
    bits.symbol(END_OF_BLOCK);
    bits.put(0, 7);
    let mut crc = Crc::new();
    crc.update(text);
    bits.out.extend_from_slice(&crc.sum().to_le_bytes());
    bits.out.extend_from_slice(&crc.amount().to_le_bytes());
    bits.out
}

/// The content; an error of one line if the bytes are damaged or the content has more than `limit` bytes.
pub(crate) fn inflate(bytes: &[u8], limit: usize) -> Result<Vec<u8>, String> {
    let mut content = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let read = MultiGzDecoder::new(bytes).take(most).read_to_end(&mut content);
    read.map_err(|error| format!("gzip: {error}"))?;
    match content.len() > limit {
        true => Err(format!("more than {limit} bytes")),
        false => Ok(content),
    }
}

/// A text that the build has compressed.
pub(crate) fn unpacked_text(packed: &[u8]) -> String {
    let mut text = String::new();
    // It cannot fail: tests decompress every text.
    let _ = MultiGzDecoder::new(packed).read_to_string(&mut text);
    text
}

/// Bits in the order of deflate: the lowest bit of a byte comes first.
struct Bits {
    out: Vec<u8>,
    buffer: u64,
    count: u32,
}

impl Bits {
    fn put(&mut self, value: u32, count: u32) {
        self.buffer |= u64::from(value) << self.count;
        self.count += count;
        while self.count >= 8 {
            let [low, ..] = self.buffer.to_le_bytes();
            self.out.push(low);
            self.buffer >>= 8;
            self.count -= 8;
        }
    }

    /// Codes begin with their highest bit.
    fn code(&mut self, code: u32, count: u32) {
        self.put(code.reverse_bits() >> (u32::BITS - count), count);
    }

    fn symbol(&mut self, symbol: u32) {
        match symbol {
            0..=143 => self.code(0x30 + symbol, 8),
            144..=255 => self.code(0x190 + symbol - 144, 9),
            256..=279 => self.code(symbol - 256, 7),
            _ => self.code(0xc0 + symbol - 280, 8),
        }
    }

    /// From 3 to 258. Four symbols share each number of extra bits.
    fn length(&mut self, length: u32) {
        let rest = length - 3;
        match rest {
            0..8 => self.symbol(257 + rest),
            255 => self.symbol(285),
            _ => {
                let extra = rest.ilog2() - 2;
                self.symbol(257 + 4 * extra + (rest >> extra));
                self.put(rest & ((1 << extra) - 1), extra);
            }
        }
    }

    /// From 1 to 32768. Two symbols share each number of extra bits.
    fn distance(&mut self, distance: u32) {
        let rest = distance - 1;
        if rest < 4 {
            return self.code(rest, 5);
        }
        let extra = rest.ilog2() - 1;
        self.code(2 * extra + (rest >> extra), 5);
        self.put(rest & ((1 << extra) - 1), extra);
    }
}

#[derive(Clone, Copy)]
struct Match {
    length: u32,
    distance: u32,
}

/// Where the text had the same bytes before.
struct Matches<'a> {
    text: &'a [u8],
    /// The last place of each hash, plus one; zero without any.
    newest: Vec<u32>,
    /// The place before with the same hash, plus one, for each place of the window.
    older: Vec<u32>,
}

impl Matches<'_> {
    fn hash(&self, at: usize) -> Option<usize> {
        let bytes = self.text.get(at..)?.first_chunk::<MIN_DEFLATE_MATCH_BYTES>()?;
        let hash = u32::from_le_bytes(*bytes).wrapping_mul(0x9E37_79B1) >> (u32::BITS - HASH_BITS);
        usize::try_from(hash).ok()
    }

    /// The longest of the nearest matches.
    fn find(&self, at: usize) -> Option<Match> {
        let rest = self.text.get(at..)?;
        let mut candidate = *self.newest.get(self.hash(at)?)?;
        let mut best = None;
        let mut longest = MIN_DEFLATE_MATCH_BYTES - 1;
        for _ in 0..MAX_CANDIDATES {
            let Some(earlier) = usize::try_from(candidate).ok()?.checked_sub(1) else { break };
            let distance = at.saturating_sub(earlier);
            if distance > DEFLATE_WINDOW_BYTES {
                break;
            }
            let both = rest.iter().zip(self.text.get(earlier..)?).take(MAX_DEFLATE_MATCH_BYTES);
            let length = both.take_while(|(here, there)| here == there).count();
            if length > longest {
                longest = length;
                best = Some(Match { length: u32::try_from(length).ok()?, distance: u32::try_from(distance).ok()? });
            }
            candidate = *self.older.get(earlier % DEFLATE_WINDOW_BYTES)?;
        }
        best
    }

    fn add(&mut self, at: usize) {
        let Some(newest) = self.hash(at).and_then(|hash| self.newest.get_mut(hash)) else { return };
        if let Some(older) = self.older.get_mut(at % DEFLATE_WINDOW_BYTES) {
            // Places beyond 4 GiB match nothing.
            *older = std::mem::replace(newest, u32::try_from(at + 1).unwrap_or(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &[u8]) -> usize {
        let packed = gzip(text);
        assert!(inflate(&packed, text.len()).unwrap() == text, "{} bytes", text.len());
        packed.len()
    }

    /// Bytes without any pattern.
    fn noise(len: usize) -> Vec<u8> {
        let mut state = 1_u32;
        let next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        };
        std::iter::repeat_with(next).take(len).collect()
    }

    /// The check value of the catalogue of CRCs, and each byte once.
    #[test]
    fn checksum_is_that_of_gzip_and_goes_on_between_parts() {
        let sum = |parts: &[&[u8]]| {
            let mut crc = Crc::new();
            parts.iter().for_each(|part| crc.update(part));
            crc.sum()
        };
        assert_eq!(sum(&[]), 0);
        assert_eq!(sum(&[b"123456789"]), 0xcbf4_3926);
        assert_eq!(sum(&[b"1234", b"", b"56789"]), 0xcbf4_3926);
        let all: Vec<u8> = (0..=u8::MAX).collect();
        assert_eq!(sum(&[&all]), 0x2905_8c73);
        let [mut first, mut second] = [Crc::new(), Crc::new()];
        first.update(b"1234");
        second.update(b"56789");
        first.combine(&second);
        assert_eq!(first.sum(), 0xcbf4_3926);
    }

    #[test]
    fn every_length_and_distance_of_a_match_comes_back() {
        let noise = noise(DEFLATE_WINDOW_BYTES + 300);
        for length in 0..300 {
            check(&noise[..length].repeat(2));
        }
        for distance in (1..300)
            .chain((300..DEFLATE_WINDOW_BYTES).step_by(997))
            .chain(DEFLATE_WINDOW_BYTES - 2..DEFLATE_WINDOW_BYTES + 3)
        {
            let mut text = noise[..distance].to_vec();
            text.extend_from_within(..distance.min(20));
            check(&text);
        }
        assert!(check(&vec![b'a'; 100_000]) < 1000);
    }

    #[test]
    fn noise_grows_by_less_than_an_eighth() {
        let noise = noise(100_000);
        assert!(check(&noise) < 112_500);
    }

    #[test]
    fn metrics_shrink_to_a_fifth() {
        let metrics = include_bytes!("../../tests/data/upstream-1.36/figures/metrics-cadvisor.txt");
        let packed = check(metrics);
        assert!(packed * 5 < metrics.len(), "{packed} of {}", metrics.len());
    }

    #[test]
    fn truncated_damaged_or_long_content_is_an_error() {
        let packed = gzip(&b"pods ".repeat(1000));
        assert_eq!(inflate(&packed, 4999).unwrap_err(), "more than 4999 bytes");
        assert!(inflate(&packed[..packed.len() - 1], 5000).is_err());
        assert!(inflate(b"{}", 5000).is_err());
        let mut damaged = packed;
        let checksum = damaged.len() - 8;
        damaged[checksum] ^= 1;
        assert!(inflate(&damaged, 5000).is_err());
    }
}
