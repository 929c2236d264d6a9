//! The CRC-32 of gzip (RFC 1952, section 8). Pure.

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Crc32(u32);

/// The remainder of each byte, with the bits in reverse order.
#[expect(clippy::indexing_slicing, reason = "the compiler checks the index of a constant")]
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte;
        let mut bit = 0;
        while bit < 8 {
            remainder = remainder >> 1 ^ if remainder & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[byte as usize] = remainder;
        byte += 1;
    }
    table
};

const POLYNOMIAL: u32 = 0xedb8_8320;

impl Crc32 {
    pub(crate) fn of(bytes: &[u8]) -> u32 {
        let mut crc = Self::default();
        crc.update(bytes);
        crc.sum()
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        let next = |remainder: u32, byte: &u8| {
            let [low, ..] = remainder.to_le_bytes();
            remainder >> 8 ^ TABLE.get(usize::from(low ^ byte)).copied().unwrap_or_default()
        };
        self.0 = !bytes.iter().fold(!self.0, next);
    }

    pub(crate) const fn sum(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_flate2_however_the_bytes_are_split() {
        assert_eq!(Crc32::of(b"123456789"), 0xcbf4_3926);
        assert_eq!(Crc32::of(b""), 0);
        let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let mut expected = flate2::Crc::new();
        expected.update(&bytes);
        for at in [0, 1, 255, 999, 1000] {
            let (first, rest) = bytes.split_at(at);
            let mut crc = Crc32::default();
            crc.update(first);
            crc.update(rest);
            assert_eq!(crc.sum(), expected.sum(), "split at {at}");
        }
    }
}
