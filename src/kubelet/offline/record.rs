//! Records of the store: a line of JSON with a checksum. Pure.
//!
//! ```text
//! {"crc":"89abcdef","record":{"v":1,"name":"configmap/default/settings","content":[...]}}
//! {"crc":"89abcdef","record":{"v":1,"name":"secret/default/login","sealed":"base64"}}
//! {"crc":"89abcdef","record":{"v":1,"name":"configmap/default/settings","gone":true}}
//! ```
//!
//! The checksum (CRC-32, as in gzip) covers the bytes of the record. Of several records with one name, the last one
//! is valid.

use std::fmt;

use flate2::Crc;

/// The state of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordValue<'a> {
    /// The content, JSON.
    Content(&'a [u8]),
    /// The encrypted content, base64.
    Sealed(&'a [u8]),
    /// Removed.
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub name: &'a str,
    pub value: RecordValue<'a>,
}

/// Why a line is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRecord {
    /// Its checksum does not match.
    Damaged,
    /// Written by another version of this program, in an unknown format.
    OtherFormat,
}

const RECORD_HEAD: &[u8] = b"{\"crc\":\"";
const CHECKSUM_BYTES: usize = 8;
const RECORD_CONTENT_KEY: &[u8] = b"\",\"record\":";
const RECORD_FORMAT: &[u8] = b"{\"v\":1,\"name\":\"";
const CONTENT: &[u8] = b"\",\"content\":";
const SEALED: &[u8] = b"\",\"sealed\":\"";
const RECORD_GONE: &[u8] = b"\",\"gone\":true}";

impl<'a> Record<'a> {
    /// Reads a line without its line break.
    pub fn read(line: &'a [u8]) -> Result<Self, BadRecord> {
        let body = checked(line).ok_or(BadRecord::Damaged)?;
        // The checksum is correct, so the line was written like this.
        let rest = body.strip_prefix(RECORD_FORMAT).ok_or(BadRecord::OtherFormat)?;
        let end = rest.iter().position(|byte| *byte == b'"').ok_or(BadRecord::OtherFormat)?;
        let (name, value) = rest.split_at_checked(end).ok_or(BadRecord::OtherFormat)?;
        let name = std::str::from_utf8(name).ok().filter(|name| is_plain(name)).ok_or(BadRecord::OtherFormat)?;
        let value = parse_value(value).ok_or(BadRecord::OtherFormat)?;
        Ok(Self { name, value })
    }

    /// Appends the line with its line break. The name must be plain, and the content JSON on one line.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut body = [RECORD_FORMAT, self.name.as_bytes()].concat();
        match self.value {
            RecordValue::Content(content) => body.extend_from_slice(&[CONTENT, content, b"}"].concat()),
            RecordValue::Sealed(sealed) => body.extend_from_slice(&[SEALED, sealed, b"\"}"].concat()),
            RecordValue::Gone => body.extend_from_slice(RECORD_GONE),
        }
        out.extend_from_slice(RECORD_HEAD);
        out.extend_from_slice(sum(&body).as_bytes());
        out.extend_from_slice(RECORD_CONTENT_KEY);
        out.extend_from_slice(&body);
        out.extend_from_slice(b"}\n");
    }
}

/// The record's bytes, if the checksum matches.
fn checked(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(RECORD_HEAD)?;
    let (checksum, rest) = rest.split_at_checked(CHECKSUM_BYTES)?;
    let body = rest.strip_prefix(RECORD_CONTENT_KEY)?.strip_suffix(b"}")?;
    (sum(body).as_bytes() == checksum).then_some(body)
}

fn parse_value(rest: &[u8]) -> Option<RecordValue<'_>> {
    if let Some(content) = rest.strip_prefix(CONTENT) {
        return content.strip_suffix(b"}").map(RecordValue::Content);
    }
    if let Some(sealed) = rest.strip_prefix(SEALED) {
        return sealed.strip_suffix(b"\"}").map(RecordValue::Sealed);
    }
    (rest == RECORD_GONE).then_some(RecordValue::Gone)
}

fn sum(bytes: &[u8]) -> String {
    let mut crc = Crc::new();
    crc.update(bytes);
    format!("{:08x}", crc.sum())
}

/// Joins the parts; characters that need escaping in JSON or in a part become `%XX`.
pub(super) fn name(parts: &[&str]) -> String {
    let mut name = String::new();
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            name.push('/');
        }
        for byte in part.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b':' | b'@' => name.push(byte.into()),
                _ => name.push_str(&format!("%{byte:02X}")),
            }
        }
    }
    name
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\')
}

/// The complete lines of a journal, and the incomplete line at its end, if a power failure left one.
pub fn lines(bytes: &[u8]) -> (impl Iterator<Item = &[u8]>, &[u8]) {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let (whole, rest) = bytes.split_at_checked(end).unwrap_or((bytes, &[]));
    (whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()), rest)
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Damaged => "corrupt",
            Self::OtherFormat => "written by another version of Coracle",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(name: &str, value: RecordValue<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        Record { name, value }.write(&mut out);
        out
    }

    #[test]
    fn record_is_json_and_is_read_back() {
        for value in [RecordValue::Content(b"[{\"a\":\"}\"}]"), RecordValue::Sealed(b"AAAA"), RecordValue::Gone] {
            let line = written("secret/ns/a", value);
            let line = line.strip_suffix(b"\n").unwrap();
            assert_eq!(Record::read(line), Ok(Record { name: "secret/ns/a", value }));
            let json: serde_json::Value = serde_json::from_slice(line).unwrap();
            assert_eq!(json["record"]["name"], "secret/ns/a");
        }
    }

    #[test]
    fn flipped_bit_or_cut_is_detected() {
        let line = written("pod/ns/a/u", RecordValue::Content(br#"{"kind":"Pod"}"#));
        let line = line.strip_suffix(b"\n").unwrap();
        for bit in 0..line.len() * 8 {
            let mut bad = line.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Record::read(&bad), Err(BadRecord::Damaged), "bit {bit}");
        }
        for end in 0..line.len() {
            assert_eq!(Record::read(&line[..end]), Err(BadRecord::Damaged), "cut at {end}");
        }
    }

    #[test]
    fn format_of_a_later_version_is_recognized() {
        for body in [r#"{"v":2,"name":"a","content":1}"#, r#"{"v":1,"name":"a","news":1}"#, r#"{"v":1,"name":"#] {
            let line = format!("{{\"crc\":\"{}\",\"record\":{body}}}", sum(body.as_bytes()));
            assert_eq!(Record::read(line.as_bytes()), Err(BadRecord::OtherFormat), "{line}");
        }
    }

    #[test]
    fn names_are_escaped() {
        assert_eq!(name(&["token", "ns", "a/\"b\"", "é"]), "token/ns/a%2F%22b%22/%C3%A9");
        assert!(is_plain("token/ns/a%2F%22b%22/%C3%A9"));
        assert!(["", "a\"", "a b", "a\\"].iter().all(|name| !is_plain(name)));
    }

    #[test]
    fn only_complete_lines_are_returned() {
        let split = |bytes: &'static [u8]| {
            let (lines, rest) = lines(bytes);
            (lines.collect::<Vec<_>>(), rest)
        };
        assert_eq!(split(b"a\n\nb\nc"), (vec![&b"a"[..], b"b"], &b"c"[..]));
        assert_eq!(split(b"a"), (vec![], &b"a"[..]));
        assert_eq!(split(b""), (vec![], &b""[..]));
    }
}
