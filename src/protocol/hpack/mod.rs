//! HPACK (RFC 7541): header compression with both tables and Huffman coding. Pure.
//!
//! The caller passes complete header blocks, so nothing here waits for more bytes. Memory is bounded: the dynamic table
//! by the announced size, a decoded list by the decoder's limit.

mod decoder;
mod encoder;
mod huffman;
mod primitive;
mod table;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;

pub use decoder::{Decoded, Decoder};
pub use encoder::Encoder;

/// One header field. Names are lower case; those of pseudo-headers begin with a colon.
#[derive(Clone, PartialEq, Eq)]
pub struct Field {
    pub name: Cow<'static, [u8]>,
    pub value: Cow<'static, [u8]>,
}

impl Field {
    /// A field with a constant name and value.
    pub const fn fixed(name: &'static str, value: &'static str) -> Self {
        Self { name: Cow::Borrowed(name.as_bytes()), value: Cow::Borrowed(value.as_bytes()) }
    }

    pub fn new(name: &'static str, value: impl Into<Vec<u8>>) -> Self {
        Self { name: Cow::Borrowed(name.as_bytes()), value: Cow::Owned(value.into()) }
    }

    /// The size that the field counts in a table and in a header list (RFC 7541 section 4.1).
    pub fn size(&self) -> usize {
        self.name.len() + self.value.len() + FIELD_OVERHEAD_BYTES
    }
}

impl fmt::Debug for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name.escape_ascii(), self.value.escape_ascii())
    }
}

const FIELD_OVERHEAD_BYTES: usize = 32;

/// Why a header block cannot be decoded. The tables are out of step after it, so the connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The block ends within a field.
    Truncated,
    IntegerTooLarge,
    /// An index beyond both tables.
    UnknownIndex,
    Huffman,
    /// A table size above the announced one, or not at the start of the block.
    TableSize,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "header block ends inside a field",
            Self::IntegerTooLarge => "integer of a header block too large",
            Self::UnknownIndex => "header field index in neither table",
            Self::Huffman => "malformed Huffman code in a header block",
            Self::TableSize => "header table size not allowed",
        })
    }
}

impl std::error::Error for Error {}
