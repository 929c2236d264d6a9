//! CRC-32 of gzip and of records, with a table of 1 KB. `flate2` gets it in place of the crate of this name, whose tables
//! take 16 KB of the program and are made for gigabytes a second; what is summed here comes from flash or a network.
#![no_std]
#![forbid(unsafe_code)]

/// The checksum of the bytes so far.
#[derive(Clone, Debug, Default)]
pub struct Hasher {
    sum: u32,
    bytes: u64,
}

impl Hasher {
    #[must_use]
    pub const fn new() -> Self {
        Self { sum: 0, bytes: 0 }
    }

    pub fn update(&mut self, data: &[u8]) {
        self.sum = !data.iter().fold(!self.sum, |state, byte| step(state, *byte));
        self.bytes += data.len() as u64;
    }

    pub fn reset(&mut self) {
        *self = Self::new();
    }

    #[must_use]
    pub fn finalize(self) -> u32 {
        self.sum
    }

    /// Appends what `following` has summed. Takes a step for each of its bytes.
    pub fn combine(&mut self, following: &Self) {
        self.sum = (0..following.bytes).fold(self.sum, |state, _| step(state, 0)) ^ following.sum;
        self.bytes += following.bytes;
    }
}

fn step(state: u32, byte: u8) -> u32 {
    TABLE[(state as u8 ^ byte) as usize] ^ (state >> 8)
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
