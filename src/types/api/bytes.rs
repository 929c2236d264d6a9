//! Byte strings, which JSON holds as base64 (RFC 4648, with padding). Pure.

use serde_json::Value;

use super::decode::{Decode, DecodeError, Place, text};
use super::encode::{Encode, Json};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl Bytes {
    /// `None` if `text` is not base64 with padding.
    pub fn from_base64(text: &str) -> Option<Self> {
        from_base64(text).map(Self)
    }

    pub fn to_base64(&self) -> String {
        to_base64(&self.0)
    }
}

impl Decode for Bytes {
    fn decode(value: Value, _place: Place<'_>) -> Result<Self, DecodeError> {
        let text = text(value)?;
        match Self::from_base64(&text) {
            Some(bytes) => Ok(bytes),
            None => Err(DecodeError::new("expected base64, with padding")),
        }
    }
}

impl Encode for Bytes {
    fn write(&self, json: &mut Json) {
        json.string(&to_base64(&self.0));
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Skips line breaks and ignores the unused bits before padding, as Go does.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let mut group = 0_u32;
    let mut digits = 0;
    let mut padding = 0;
    for byte in text.bytes() {
        let digit = match byte {
            b'\n' | b'\r' => continue,
            b'=' => {
                padding += 1;
                continue;
            }
            _ if padding > 0 => return None,
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        group = group << 6 | u32::from(digit);
        digits += 1;
        if digits == 4 {
            bytes.extend(group.to_be_bytes().into_iter().skip(1));
            (group, digits) = (0, 0);
        }
    }
    let rest = match (digits, padding) {
        (0, 0) => 0,
        (2, 2) => 1,
        (3, 1) => 2,
        _ => return None,
    };
    group <<= 6 * (4 - digits);
    bytes.extend(group.to_be_bytes().into_iter().skip(1).take(rest));
    Some(bytes)
}

fn to_base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let group = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let digit = usize::try_from(group >> (18 - 6 * place) & 63).ok().and_then(|digit| ALPHABET.get(digit));
            let is_padding = place > u32::try_from(chunk.len()).unwrap_or(3);
            text.push(if is_padding { '=' } else { char::from(digit.copied().unwrap_or(b'=')) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_vectors_round_trip() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(from_base64(text).as_deref(), Some(bytes.as_bytes()), "{text}");
            assert_eq!(to_base64(bytes.as_bytes()), text);
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(from_base64(&to_base64(&all)), Some(all));
        assert_eq!(from_base64("Zm9v\r\nYmFy\n").as_deref(), Some(&b"foobar"[..]));
        assert_eq!(to_base64(&[0xfb, 0xff]), "+/8=");
    }

    #[test]
    fn invalid_base64_is_refused() {
        for text in ["Z", "Zg", "Zg=", "Zg===", "Zm8", "=", "====", "Zg==Zg==", "Zm9v=", "Zm 9v", "Zm9_", "Zé=="] {
            assert_eq!(from_base64(text), None, "{text}");
        }
    }
}
