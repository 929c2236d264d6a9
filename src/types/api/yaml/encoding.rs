//! The characters of a text: UTF-8, or UTF-16 with a byte order mark. Pure.

use std::borrow::Cow;

use super::{ParseError, end_of};

/// Decodes a text and drops its byte order mark.
pub(super) fn decode(bytes: &[u8]) -> Result<Cow<'_, str>, ParseError> {
    match bytes {
        [0xFF, 0xFE, rest @ ..] => utf16(rest, u16::from_le_bytes).map(Cow::Owned),
        [0xFE, 0xFF, rest @ ..] => utf16(rest, u16::from_be_bytes).map(Cow::Owned),
        _ => utf8(bytes).map(Cow::Borrowed),
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, ParseError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.strip_prefix('\u{feff}').unwrap_or(text)),
        Err(error) => {
            let good = bytes.get(..error.valid_up_to()).unwrap_or_default();
            Err(ParseError::new(Some(end_of(good)), "the text is not UTF-8"))
        }
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, ParseError> {
    let units = bytes.chunks_exact(2);
    let rest = units.remainder();
    let mut text = String::new();
    for character in char::decode_utf16(units.filter_map(|bytes| bytes.try_into().ok().map(unit))) {
        match character {
            Ok(character) => text.push(character),
            Err(_) => return Err(not_utf16(&text)),
        }
    }
    if rest.is_empty() { Ok(text) } else { Err(not_utf16(&text)) }
}

fn not_utf16(good: &str) -> ParseError {
    ParseError::new(Some(end_of(good.as_bytes())), "the text is not UTF-16, although it has the mark of UTF-16")
}

/// Refuses the characters that YAML does not allow.
pub(super) fn check_characters(text: &str) -> Result<(), ParseError> {
    match text.char_indices().find(|(_, character)| !is_allowed(*character)) {
        None => Ok(()),
        Some((at, character)) => {
            let good = text.get(..at).unwrap_or_default();
            let problem = format!("not YAML: control characters are not allowed, found U+{:04X}", u32::from(character));
            Err(ParseError::new(Some(end_of(good.as_bytes())), problem))
        }
    }
}

/// The printable characters of YAML 1.1, section 5.1.
fn is_allowed(character: char) -> bool {
    matches!(
        character,
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..
    )
}
