//! Decodes header blocks (RFC 7541 sections 3 and 6). Pure.

use std::borrow::Cow;

use super::Error;
use super::Field;
use super::primitive::Reader;
use super::table::{self, DynamicTable};

#[derive(Debug)]
pub struct Decoder {
    pub(super) table: DynamicTable,
    /// The maximum table size that this side announced.
    table_limit: usize,
    list_limit: usize,
}

/// A decoded header block.
#[derive(Debug, PartialEq, Eq)]
pub struct Decoded {
    pub fields: Vec<Field>,
    /// Whether the list was over the limit and `fields` is only its beginning. The tables are still in step.
    pub cut: bool,
}

impl Decoder {
    /// `table_limit` is the announced SETTINGS_HEADER_TABLE_SIZE; `list_limit` bounds a decoded list, measured as in
    /// RFC 7541 section 4.1.
    pub fn new(table_limit: usize, list_limit: usize) -> Self {
        Self { table: DynamicTable::new(table_limit), table_limit, list_limit }
    }

    /// Decodes one complete header block.
    pub fn decode(&mut self, block: &[u8]) -> Result<Decoded, Error> {
        let mut reader = Reader::new(block);
        let mut list = List { decoded: Decoded { fields: Vec::new(), cut: false }, room: self.list_limit };
        let mut begun = false;
        while let Some(first) = reader.byte() {
            let form = Form::of(first);
            if form == Form::TableSize && begun {
                return Err(Error::TableSize);
            }
            begun |= form != Form::TableSize;
            match form {
                Form::Indexed => {
                    let index = reader.integer(first, 7)?;
                    list.push(table::field_at(index, &self.table).ok_or(Error::UnknownIndex)?);
                }
                Form::LiteralIndexed => {
                    let field = self.literal(&mut reader, first, 6)?;
                    list.push(Cow::Borrowed(&field));
                    self.table.insert(field);
                }
                Form::TableSize => {
                    let size = reader.integer(first, 5)?;
                    if size > self.table_limit {
                        return Err(Error::TableSize);
                    }
                    self.table.resize(size);
                }
                Form::Literal => list.push(Cow::Owned(self.literal(&mut reader, first, 4)?)),
            }
        }
        Ok(list.decoded)
    }

    fn literal(&self, reader: &mut Reader<'_>, first: u8, bits: u32) -> Result<Field, Error> {
        let name = match reader.integer(first, bits)? {
            0 => Cow::Owned(reader.string()?),
            index => table::field_at(index, &self.table).ok_or(Error::UnknownIndex)?.into_owned().name,
        };
        Ok(Field { name, value: Cow::Owned(reader.string()?) })
    }
}

/// Field representations, distinguished by their first bits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Indexed,
    LiteralIndexed,
    TableSize,
    /// Not indexed or never indexed, a difference that matters only to an intermediary.
    Literal,
}

impl Form {
    fn of(first: u8) -> Self {
        match first.leading_zeros() {
            0 => Self::Indexed,
            1 => Self::LiteralIndexed,
            2 => Self::TableSize,
            _ => Self::Literal,
        }
    }
}

struct List {
    decoded: Decoded,
    room: usize,
}

impl List {
    /// Fields beyond the limit are not copied: a short block can repeat a long field many times.
    fn push(&mut self, field: Cow<'_, Field>) {
        match self.room.checked_sub(field.size()) {
            Some(room) if !self.decoded.cut => {
                self.room = room;
                self.decoded.fields.push(field.into_owned());
            }
            _ => self.decoded.cut = true,
        }
    }
}
