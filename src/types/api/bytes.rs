//! Byte strings, which JSON holds as base64 (RFC 4648, with padding). Pure.

use super::decode::{Decode, DecodeContext, DecodeError, Input, text};
use super::encode::{Encode, Json};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine as _, alphabet};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl Bytes {
    /// `None` if `text` is not base64 with padding.
    pub fn from_base64(text: &str) -> Option<Self> {
        // Go skips line breaks.
        let decoded = match text.contains(['\n', '\r']) {
            true => STANDARD.decode(text.replace(['\n', '\r'], "")),
            false => STANDARD.decode(text),
        };
        decoded.ok().map(Self)
    }

    /// Base64 for URLs, without padding (RFC 4648, section 5).
    pub fn from_base64url(text: &str) -> Option<Self> {
        URL_SAFE.decode(text).ok().map(Self)
    }

    pub fn to_base64(&self) -> String {
        STANDARD.encode(&self.0)
    }

    pub fn to_base64url(&self) -> String {
        URL_SAFE.encode(&self.0)
    }
}

impl Decode for Bytes {
    fn decode(input: Input<'_>, _context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        let text = text(input)?;
        match Self::from_base64(&text) {
            Some(bytes) => Ok(bytes),
            None => Err(DecodeError::new("expected base64, with padding")),
        }
    }
}

impl Encode for Bytes {
    fn write(&self, json: &mut Json) {
        json.string(&self.to_base64());
    }
}

/// As Go decodes it: unused bits before the padding are ignored.
const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    LENIENT.with_decode_padding_mode(DecodePaddingMode::RequireNone).with_encode_padding(false),
);

#[cfg(test)]
mod tests {
    use super::*;

    fn from_base64(text: &str) -> Option<Vec<u8>> {
        Bytes::from_base64(text).map(|bytes| bytes.0)
    }

    fn to_base64(bytes: &[u8]) -> String {
        Bytes(bytes.to_vec()).to_base64()
    }

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
        assert_eq!(from_base64("Zh==").as_deref(), Some(&b"f"[..]));
        assert_eq!(Bytes::from_base64url("-_8"), Some(Bytes(vec![0xfb, 0xff])));
        assert_eq!(Bytes(vec![0xfb, 0xff]).to_base64url(), "-_8");
        for text in ["-_8=", "+/8", "Z"] {
            assert_eq!(Bytes::from_base64url(text), None, "{text}");
        }
    }

    #[test]
    fn invalid_base64_is_refused() {
        for text in ["Z", "Zg", "Zg=", "Zg===", "Zm8", "=", "====", "Zg==Zg==", "Zm9v=", "Zm 9v", "Zm9_", "Zé=="] {
            assert_eq!(from_base64(text), None, "{text}");
        }
    }
}
