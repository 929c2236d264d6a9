//! Decodes messages. Pure.

use std::error::Error;
use std::{fmt, mem};

use super::encode::wire_type;
use super::{Message, Slot};

/// Decodes a message. Unknown fields are skipped.
///
/// A repeated occurrence of a singular field replaces the earlier value, or is merged with it if it is a message.
pub fn decode<M: Message + Default>(bytes: &[u8]) -> Result<M, DecodeError> {
    let mut message = M::default();
    decode_into(&mut message, bytes)?;
    Ok(message)
}

/// Decodes into `message`, which must be new. After an error it holds the fields decoded so far.
pub fn decode_into(message: &mut dyn Message, bytes: &[u8]) -> Result<(), DecodeError> {
    Decoder { memory: MAX_DECODED_BYTES }.message(message, bytes, MAX_MESSAGE_DEPTH)
}

/// Passes each field of a message to `take`: its number, the content of a string, bytes or a message (else nothing), and
/// the whole field.
pub fn each_field<'a>(mut bytes: &'a [u8], take: &mut dyn FnMut(u32, &'a [u8], &'a [u8])) -> Result<(), DecodeError> {
    while !bytes.is_empty() {
        let (all, mut rest) = (bytes, bytes);
        let key = take_key(&mut rest)?;
        let content = match key.wire_type {
            wire_type::LENGTH => take_content(&mut rest)?,
            _ => skip(key, &mut rest, MAX_MESSAGE_DEPTH).map(|()| &[][..])?,
        };
        let whole = all.get(..all.len() - rest.len()).unwrap_or_default();
        take(key.field, content, whole);
        bytes = rest;
    }
    Ok(())
}

/// Why bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end within a field.
    Truncated,
    /// A varint has more than 64 bits.
    VarintTooLong,
    /// A field has the number 0, a number above 2^29-1, or an undefined wire type.
    BadKey,
    /// The wire type does not match the field's type.
    WrongWireType {
        field: u32,
    },
    NotUtf8 {
        field: u32,
    },
    /// An end of a group without its start, or the reverse.
    UnpairedGroup,
    TooDeep,
    /// The decoded message would take too much memory.
    TooLarge,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("protobuf message ends inside a field"),
            Self::VarintTooLong => f.write_str("protobuf number is longer than 64 bits"),
            Self::BadKey => f.write_str("protobuf field has an impossible key"),
            Self::WrongWireType { field } => write!(f, "protobuf field {field} has the wrong wire type"),
            Self::NotUtf8 { field } => write!(f, "protobuf field {field} is not UTF-8"),
            Self::UnpairedGroup => f.write_str("unpaired protobuf group"),
            Self::TooDeep => f.write_str("protobuf message is nested too deeply"),
            Self::TooLarge => f.write_str("protobuf message takes too much memory"),
        }
    }
}

impl Error for DecodeError {}

/// Nesting of messages and groups. CRI needs eight.
const MAX_MESSAGE_DEPTH: u32 = 32;

/// Memory of one decoded message. An empty message in a list takes two bytes on the wire and hundreds in memory.
const MAX_DECODED_BYTES: usize = 64 << 20;

struct Decoder {
    /// The bytes still available.
    memory: usize,
}

impl Decoder {
    fn message(&mut self, message: &mut dyn Message, mut bytes: &[u8], depth: u32) -> Result<(), DecodeError> {
        let depth = depth.checked_sub(1).ok_or(DecodeError::TooDeep)?;
        self.charge(size_of_val(message))?;
        // The entries of each map. A map with its entries in any order is sorted once, at the end.
        let mut maps: Vec<(u32, Vec<(String, String)>)> = Vec::new();
        while !bytes.is_empty() {
            let key = take_key(&mut bytes)?;
            match message.slot(key.field) {
                Some(Slot::Map(_)) if key.wire_type == wire_type::LENGTH => {
                    let entry = self.map_entry(take_content(&mut bytes)?, depth)?;
                    match maps.iter_mut().find(|(field, _)| *field == key.field) {
                        Some((_, entries)) => entries.push(entry),
                        None => maps.push((key.field, vec![entry])),
                    }
                }
                Some(slot) => self.value(slot, key, &mut bytes, depth)?,
                None => skip(key, &mut bytes, depth)?,
            }
        }
        maps.into_iter().try_for_each(|(field, entries)| self.fill(message, field, entries))
    }

    fn map_entry(&mut self, content: &[u8], depth: u32) -> Result<(String, String), DecodeError> {
        let mut entry = MapEntry::default();
        self.message(&mut entry, content, depth)?;
        Ok((entry.key, entry.value))
    }

    /// Adds the entries to a map of the message; of entries with the same key the last one counts.
    fn fill(
        &mut self,
        message: &mut dyn Message,
        field: u32,
        entries: Vec<(String, String)>,
    ) -> Result<(), DecodeError> {
        let Some(Slot::Map(target)) = message.slot(field) else { return Ok(()) };
        // A message that arrives in many parts moves its map with each of them.
        self.charge(target.len().saturating_mul(size_of::<(String, String)>()))?;
        *target = mem::take(target).into_iter().chain(entries).collect();
        Ok(())
    }

    fn value(&mut self, slot: Slot<'_>, key: Key, bytes: &mut &[u8], depth: u32) -> Result<(), DecodeError> {
        match (key.wire_type, slot) {
            (wire_type::VARINT, slot) => self.number(slot, key, take_varint(bytes)?),
            (wire_type::FIXED64, Slot::F64(target)) => {
                *target = f64::from_le_bytes(take_array(bytes)?);
                Ok(())
            }
            (wire_type::LENGTH, slot) => self.content(slot, key, take_content(bytes)?, depth),
            _ => Err(DecodeError::WrongWireType { field: key.field }),
        }
    }

    fn number(&mut self, slot: Slot<'_>, key: Key, value: u64) -> Result<(), DecodeError> {
        match slot {
            Slot::Bool(target) => *target = value != 0,
            Slot::I32(target) => *target = low_i32(value),
            Slot::I64(target) => *target = signed(value),
            Slot::U32(target) => *target = low_u32(value),
            Slot::U64(target) => *target = value,
            Slot::Enum(target) => target.set_number(low_i32(value)),
            Slot::I32s(target) => {
                self.charge(size_of::<i32>())?;
                target.push(low_i32(value));
            }
            Slot::I64s(target) => {
                self.charge(size_of::<i64>())?;
                target.push(signed(value));
            }
            _ => return Err(DecodeError::WrongWireType { field: key.field }),
        }
        Ok(())
    }

    fn content(&mut self, slot: Slot<'_>, key: Key, mut content: &[u8], depth: u32) -> Result<(), DecodeError> {
        match slot {
            Slot::String(target) => {
                self.charge(size_of::<String>() + content.len())?;
                let text = std::str::from_utf8(content).map_err(|_| DecodeError::NotUtf8 { field: key.field })?;
                text.clone_into(target);
            }
            Slot::Bytes(target) => {
                self.charge(content.len())?;
                content.clone_into(target);
            }
            Slot::Message(target) => self.message(target, content, depth)?,
            Slot::WrappedI64(target) => *target = signed(self.wrapped(unsigned(*target), content, depth)?),
            Slot::WrappedU64(target) => *target = self.wrapped(*target, content, depth)?,
            // Repeated numbers may be packed or not.
            Slot::I32s(target) => {
                while !content.is_empty() {
                    self.number(Slot::I32s(target), key, take_varint(&mut content)?)?;
                }
            }
            Slot::I64s(target) => {
                while !content.is_empty() {
                    self.number(Slot::I64s(target), key, take_varint(&mut content)?)?;
                }
            }
            _ => return Err(DecodeError::WrongWireType { field: key.field }),
        }
        Ok(())
    }

    fn wrapped(&mut self, value: u64, content: &[u8], depth: u32) -> Result<u64, DecodeError> {
        let mut wrapper = Wrapper { value };
        self.message(&mut wrapper, content, depth)?;
        Ok(wrapper.value)
    }

    fn charge(&mut self, bytes: usize) -> Result<(), DecodeError> {
        self.memory = self.memory.checked_sub(bytes).ok_or(DecodeError::TooLarge)?;
        Ok(())
    }
}

super::message! {
    struct MapEntry {
        1 => key: String,
        2 => value: String,
    }

    /// `Int64Value` and `UInt64Value` have the same encoding.
    struct Wrapper {
        1 => value: u64,
    }
}

/// The key of a field: number and wire type.
#[derive(Clone, Copy)]
struct Key {
    field: u32,
    wire_type: u8,
}

fn take_key(bytes: &mut &[u8]) -> Result<Key, DecodeError> {
    let key = u32::try_from(take_varint(bytes)?).map_err(|_| DecodeError::BadKey)?;
    let [low, ..] = key.to_le_bytes();
    match key >> 3 {
        0 => Err(DecodeError::BadKey),
        field => Ok(Key { field, wire_type: low & 7 }),
    }
}

/// Skips the value of an unknown field.
fn skip(key: Key, bytes: &mut &[u8], depth: u32) -> Result<(), DecodeError> {
    match key.wire_type {
        wire_type::VARINT => take_varint(bytes).map(drop),
        wire_type::FIXED64 => take_array::<8>(bytes).map(drop),
        wire_type::LENGTH => take_content(bytes).map(drop),
        wire_type::START_GROUP => skip_group(key.field, bytes, depth),
        wire_type::END_GROUP => Err(DecodeError::UnpairedGroup),
        wire_type::FIXED32 => take_array::<4>(bytes).map(drop),
        _ => Err(DecodeError::BadKey),
    }
}

fn skip_group(field: u32, bytes: &mut &[u8], depth: u32) -> Result<(), DecodeError> {
    let depth = depth.checked_sub(1).ok_or(DecodeError::TooDeep)?;
    loop {
        if bytes.is_empty() {
            return Err(DecodeError::UnpairedGroup);
        }
        let key = take_key(bytes)?;
        if key.wire_type != wire_type::END_GROUP {
            skip(key, bytes, depth)?;
        } else if key.field == field {
            return Ok(());
        } else {
            return Err(DecodeError::UnpairedGroup);
        }
    }
}

fn take_varint(bytes: &mut &[u8]) -> Result<u64, DecodeError> {
    let mut value = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let [byte] = take_array(bytes)?;
        // The tenth byte holds only one bit.
        if shift == 63 && byte > 1 {
            return Err(DecodeError::VarintTooLong);
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(DecodeError::VarintTooLong)
}

fn take_content<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], DecodeError> {
    let length = usize::try_from(take_varint(bytes)?).map_err(|_| DecodeError::Truncated)?;
    let (content, rest) = bytes.split_at_checked(length).ok_or(DecodeError::Truncated)?;
    *bytes = rest;
    Ok(content)
}

fn take_array<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], DecodeError> {
    let (array, rest) = bytes.split_first_chunk().ok_or(DecodeError::Truncated)?;
    *bytes = rest;
    Ok(*array)
}

/// A 32-bit field keeps the low bits of a longer number, as in every implementation.
fn low_u32(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

fn low_i32(value: u64) -> i32 {
    i32::from_le_bytes(low_u32(value).to_le_bytes())
}

fn signed(value: u64) -> i64 {
    i64::from_le_bytes(value.to_le_bytes())
}

fn unsigned(value: i64) -> u64 {
    u64::from_le_bytes(value.to_le_bytes())
}
