//! Encodes messages in one pass: the length of a nested message is filled in when its end is known. Pure.

use super::Message;

/// Encodes `message`.
pub fn encode(message: &dyn Message) -> Vec<u8> {
    let mut out = Vec::new();
    message.put_fields(&mut out);
    out
}

/// Appends `message` as field `number`, even if it is empty: an empty message is present.
pub fn put_message(number: u32, message: &dyn Message, out: &mut Vec<u8>) {
    put_nested(number, out, &|out| message.put_fields(out));
}

/// Appends `text` as field `number`, unless it is empty.
pub fn put_str(number: u32, text: &str, out: &mut Vec<u8>) {
    if !text.is_empty() {
        put_bytes(number, text.as_bytes(), out);
    }
}

/// Wire types, the low three bits of a key.
pub(super) mod wire_type {
    pub(crate) const VARINT: u8 = 0;
    pub(crate) const FIXED64: u8 = 1;
    pub(crate) const LENGTH: u8 = 2;
    pub(crate) const START_GROUP: u8 = 3;
    pub(crate) const END_GROUP: u8 = 4;
    pub(crate) const FIXED32: u8 = 5;
}

pub(super) fn put_unsigned(number: u32, value: u64, out: &mut Vec<u8>) {
    if value != 0 {
        put_key(number, wire_type::VARINT, out);
        put_varint(value, out);
    }
}

pub(super) fn put_signed(number: u32, value: i64, out: &mut Vec<u8>) {
    put_unsigned(number, u64::from_le_bytes(value.to_le_bytes()), out);
}

pub(super) fn put_double(number: u32, value: f64, out: &mut Vec<u8>) {
    // Compares bits: minus zero is not the default.
    if value.to_bits() != 0 {
        put_key(number, wire_type::FIXED64, out);
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// Appends `bytes` as field `number`, even if empty, as list entries need.
pub fn put_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    put_key(number, wire_type::LENGTH, out);
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Appends field `number` with the content that `body` appends.
pub(super) fn put_nested(number: u32, out: &mut Vec<u8>, body: &dyn Fn(&mut Vec<u8>)) {
    put_key(number, wire_type::LENGTH, out);
    let mut at = out.len();
    out.push(0);
    body(out);
    // Most content is shorter than 128 bytes and fits the one reserved length byte; longer content is moved.
    let mut length = (out.len() - at - 1) as u64;
    if let Some(first) = out.get_mut(at) {
        *first = next_varint_byte(&mut length);
    }
    while length != 0 {
        at += 1;
        let byte = next_varint_byte(&mut length);
        out.insert(at, byte);
    }
}

/// A varint of a signed number; a negative one takes ten bytes.
pub(super) fn put_sign_extended(value: i64, out: &mut Vec<u8>) {
    put_varint(u64::from_le_bytes(value.to_le_bytes()), out);
}

fn put_key(number: u32, wire_type: u8, out: &mut Vec<u8>) {
    put_varint(u64::from(number) << 3 | u64::from(wire_type), out);
}

pub(super) fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    loop {
        out.push(next_varint_byte(&mut value));
        if value == 0 {
            return;
        }
    }
}

/// Takes the low seven bits off `value`; the top bit of the result means that more follow.
fn next_varint_byte(value: &mut u64) -> u8 {
    let [low, ..] = value.to_le_bytes();
    *value >>= 7;
    if *value == 0 { low } else { low | 0x80 }
}
