//! CRC-32 of gzip and of records, with a table of 1 KB. `flate2` gets it in place of the crate of this name, whose tables
//! take 16 KB of the program and are made for gigabytes a second; what is summed here comes from flash or a network.
//!
//! It has what `flate2` calls, except `combine`, which it offers to its users and nothing here uses.
#![no_std]
#![forbid(unsafe_code)]

/// The checksum of the bytes so far.
#[derive(Clone, Debug, Default)]
pub struct Hasher {
    sum: u32,
}

impl Hasher {
    #[must_use]
    pub const fn new() -> Self {
        Self { sum: 0 }
    }

    pub fn update(&mut self, data: &[u8]) {
        let step = |state: u32, byte: &u8| TABLE[(state as u8 ^ byte) as usize] ^ (state >> 8);
        self.sum = !data.iter().fold(!self.sum, step);
    }

    pub fn reset(&mut self) {
        self.sum = 0;
    }

    #[must_use]
    pub fn finalize(self) -> u32 {
        self.sum
    }

    /// # Panics
    /// Always: nothing here sums parts apart from each other.
    pub fn combine(&mut self, _: &Self) {
        unimplemented!("CRC-32 of parts that were summed apart");
    }
}

/// The reversed polynomial of RFC 1952.
const POLYNOMIAL: u32 = 0xedb8_8320;

static TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut state, mut bit) = (byte as u32, 0);
        while bit < 8 {
            state = (state >> 1) ^ (POLYNOMIAL & 0_u32.wrapping_sub(state & 1));
            bit += 1;
        }
        table[byte] = state;
        byte += 1;
    }
    table
};
