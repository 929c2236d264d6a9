//! Encodes header lists (RFC 7541 section 6). Pure.

use super::Field;
use super::primitive::{write_integer, write_string};
use super::table::{self, DynamicTable, TableMatch};

/// Indexes only the fields that repeat from call to call.
#[derive(Debug)]
pub struct Encoder {
    pub(super) table: DynamicTable,
    /// The smallest table size since the last block, if the size has changed: the decoder must learn of it as well
    /// (section 4.2).
    smallest: Option<usize>,
    limit: usize,
}

impl Encoder {
    /// Caps the dynamic table at `limit`, even if the peer allows more.
    pub fn new(limit: usize) -> Self {
        // Both sides start with the default SETTINGS_HEADER_TABLE_SIZE.
        let mut encoder = Self { table: DynamicTable::new(DEFAULT_TABLE_BYTES), smallest: None, limit };
        encoder.peer_allows(DEFAULT_TABLE_BYTES);
        encoder
    }

    /// Applies the peer's SETTINGS_HEADER_TABLE_SIZE.
    pub fn peer_allows(&mut self, size: usize) {
        let size = size.min(self.limit);
        if size != self.table.limit() {
            self.smallest = Some(self.smallest.unwrap_or(size).min(size));
            self.table.resize(size);
        }
    }

    /// Appends the header block of `fields` to `out`.
    pub fn encode(&mut self, fields: &[Field], out: &mut Vec<u8>) {
        if let Some(smallest) = self.smallest.take() {
            if smallest < self.table.limit() {
                write_integer(smallest, 5, TABLE_SIZE, out);
            }
            write_integer(self.table.limit(), 5, TABLE_SIZE, out);
        }
        for field in fields {
            self.encode_field(field, out);
        }
    }

    fn encode_field(&mut self, field: &Field, out: &mut Vec<u8>) {
        let name = match table::find(field, &self.table) {
            TableMatch::Whole(index) => return write_integer(index, 7, INDEXED, out),
            TableMatch::Name(index) => index,
            TableMatch::Nowhere => 0,
        };
        match IndexingPolicy::of(&field.name) {
            IndexingPolicy::Repeats => {
                write_integer(name, 6, LITERAL_INDEXED, out);
                self.table.insert(field.clone());
            }
            IndexingPolicy::Varies => write_integer(name, 4, LITERAL, out),
            IndexingPolicy::Secret => write_integer(name, 4, NEVER_INDEXED, out),
        }
        if name == 0 {
            write_string(&field.name, out);
        }
        write_string(&field.value, out);
    }
}

/// Whether indexing a field pays off.
enum IndexingPolicy {
    Repeats,
    Varies,
    /// Never in a table, where the sizes of other requests would confirm guesses (RFC 7541 section 7.1).
    Secret,
}

impl IndexingPolicy {
    fn of(name: &[u8]) -> Self {
        match name {
            b":path"
            | b":authority"
            | b":scheme"
            | b":status"
            | b"content-type"
            | b"te"
            | b"user-agent"
            | b"grpc-status"
            | b"grpc-accept-encoding" => Self::Repeats,
            b"authorization" | b"proxy-authorization" | b"cookie" | b"set-cookie" => Self::Secret,
            _ => Self::Varies,
        }
    }
}

const DEFAULT_TABLE_BYTES: usize = 4096;

const INDEXED: u8 = 0x80;
const LITERAL_INDEXED: u8 = 0x40;
const TABLE_SIZE: u8 = 0x20;
const NEVER_INDEXED: u8 = 0x10;
const LITERAL: u8 = 0x00;
