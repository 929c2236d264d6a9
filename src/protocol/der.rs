//! Reads and writes DER, the encoding of certificates and certificate requests. Pure.
//!
//! X.690, section 10: every length is definite and of minimal size. X.509 uses only one-byte tags.

use std::fmt;

/// The tags that occur in certificates.
pub mod tag {
    pub const BOOLEAN: u8 = 0x01;
    pub const INTEGER: u8 = 0x02;
    pub const BIT_STRING: u8 = 0x03;
    pub const OCTET_STRING: u8 = 0x04;
    pub const OID: u8 = 0x06;
    pub const UTF8_STRING: u8 = 0x0c;
    pub const UTC_TIME: u8 = 0x17;
    pub const GENERALIZED_TIME: u8 = 0x18;
    pub const SEQUENCE: u8 = 0x30;
    pub const SET: u8 = 0x31;

    /// `[number]`, explicit or of a constructed type.
    pub const fn constructed(number: u8) -> u8 {
        0xa0 | number
    }

    /// `[number]`, implicit, of a primitive type.
    pub const fn implicit(number: u8) -> u8 {
        0x80 | number
    }
}

/// Not DER, or not the expected element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("malformed DER")
    }
}

impl std::error::Error for Malformed {}

/// One element: tag, content, and the complete encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element<'a> {
    pub tag: u8,
    pub content: &'a [u8],
    pub encoding: &'a [u8],
}

/// Reads consecutive elements.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next element.
    pub fn any(&mut self) -> Result<Element<'a>, Malformed> {
        let (&[tag, first], mut rest) = self.0.split_first_chunk::<2>().ok_or(Malformed)?;
        // A multi-byte tag.
        if tag & 0x1f == 0x1f {
            return Err(Malformed);
        }
        let mut length = usize::from(first);
        if first >= 0x80 {
            let (digits, after) = rest.split_at_checked(usize::from(first & 0x7f)).ok_or(Malformed)?;
            // At most four length bytes. Zero length bytes are the indefinite form.
            let is_short = digits.len() <= 4 && digits.first().is_some_and(|first| *first != 0);
            length = digits.iter().take(4).fold(0, |length, digit| length << 8 | usize::from(*digit));
            if !is_short || length < 0x80 {
                return Err(Malformed);
            }
            rest = after;
        }
        let (content, rest) = rest.split_at_checked(length).ok_or(Malformed)?;
        let whole = self.0.get(..self.0.len() - rest.len()).ok_or(Malformed)?;
        self.0 = rest;
        Ok(Element { tag, content, encoding: whole })
    }

    /// The next element, which must have this tag.
    pub fn element(&mut self, tag: u8) -> Result<Element<'a>, Malformed> {
        let element = self.any()?;
        if element.tag == tag { Ok(element) } else { Err(Malformed) }
    }

    /// The content of the next element, which must have this tag.
    pub fn content(&mut self, tag: u8) -> Result<&'a [u8], Malformed> {
        self.element(tag).map(|element| element.content)
    }

    /// A reader of the content of the next element, which must have this tag.
    pub fn inside(&mut self, tag: u8) -> Result<Self, Malformed> {
        self.content(tag).map(Self)
    }

    /// The content of the next element if it has this tag.
    pub fn optional(&mut self, tag: u8) -> Result<Option<&'a [u8]>, Malformed> {
        if self.0.first() == Some(&tag) { self.content(tag).map(Some) } else { Ok(None) }
    }
}

/// Encodes an element whose content is the concatenation of `pieces`.
pub fn element(tag: u8, pieces: &[&[u8]]) -> Vec<u8> {
    let length: usize = pieces.iter().map(|piece| piece.len()).sum();
    let mut out = Vec::with_capacity(length + 6);
    out.push(tag);
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => out.push(short),
        _ => {
            let digits = length.to_be_bytes();
            let leading = digits.iter().take_while(|digit| **digit == 0).count();
            let digits = digits.get(leading..).unwrap_or_default();
            out.push(0x80 | u8::try_from(digits.len()).unwrap_or_default());
            out.extend_from_slice(digits);
        }
    }
    pieces.iter().for_each(|piece| out.extend_from_slice(piece));
    out
}

pub fn sequence(pieces: &[&[u8]]) -> Vec<u8> {
    element(tag::SEQUENCE, pieces)
}

/// A bit string of whole bytes.
pub fn bit_string(bytes: &[u8]) -> Vec<u8> {
    element(tag::BIT_STRING, &[&[0], bytes])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_every_length_round_trip() {
        for length in [0, 1, 0x7f, 0x80, 0xff, 0x100, 0xffff, 0x1_0000] {
            let content = vec![7; length];
            let bytes = sequence(&[&element(tag::OCTET_STRING, &[&content]), &element(tag::INTEGER, &[&[1]])]);
            let mut inside = Reader::new(&bytes).inside(tag::SEQUENCE).unwrap();
            let first = inside.any().unwrap();
            assert_eq!((first.tag, first.content.len()), (tag::OCTET_STRING, length));
            assert_eq!(first.encoding, element(tag::OCTET_STRING, &[&content]));
            assert_eq!(inside.optional(tag::BOOLEAN), Ok(None));
            assert_eq!(inside.optional(tag::INTEGER), Ok(Some(&[1][..])));
            assert!(inside.is_empty());
        }
    }

    #[test]
    fn invalid_der_is_refused() {
        for bytes in [
            &[][..],
            &[0x30],
            // Longer than the input.
            &[0x30, 1],
            &[0x30, 0x82, 1],
            &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff, 0],
            // Indefinite form, non-minimal length, two-byte tag, five length bytes.
            &[0x30, 0x80, 0, 0],
            &[0x30, 0x81, 1, 0],
            &[0x30, 0x82, 0, 0x80],
            &[0x1f, 1, 0],
            &[0x30, 0x85, 1, 0, 0, 0, 0],
        ] {
            assert_eq!(Reader::new(bytes).any(), Err(Malformed), "{bytes:x?}");
        }
        assert_eq!(Reader::new(&[2, 1, 1]).content(tag::SEQUENCE), Err(Malformed));
    }

    #[test]
    fn truncated_elements_are_refused() {
        let bytes = sequence(&[&[0; 300]]);
        for end in 0..bytes.len() {
            assert_eq!(Reader::new(&bytes[..end]).any(), Err(Malformed), "{end}");
        }
    }
}
