//! Digest of a record's content, without the version of the object. Pure.
//!
//! ```text
//! {"metadata":{"resourceVersion":"7",...},...}      this version is not part of the digest
//! [{"metadata":{"resourceVersion":"7",...},...}]    nor are those of the objects of a list
//! ```
//!
//! An object is not written again for a new version alone, such as a lock that is renewed. The same key anywhere else,
//! for example in the data of a Secret, is content.

/// The content is JSON; other bytes have a digest too.
pub(super) fn digest(content: &[u8]) -> u64 {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    let mut scan = Scan::new(content);
    let mut rest = content;
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'"' {
            scan.punctuation(byte);
            rest = after;
            continue;
        }
        let (text, after) = split_string(after);
        rest = after;
        if !scan.string(text) {
            continue;
        }
        // The bytes before the version; those of the version are skipped.
        let before = scan.bytes.len().saturating_sub(rest.len() + 1 + text.len());
        context.update(scan.bytes.get(..before).unwrap_or_default());
        scan.bytes = rest;
    }
    context.update(scan.bytes);
    let digest = context.finish();
    let first = digest.as_ref().first_chunk::<8>().copied().unwrap_or_default();
    u64::from_be_bytes(first)
}

/// A position in JSON.
struct Scan<'a> {
    /// The rest of the content that is not in the digest yet.
    bytes: &'a [u8],
    depth: usize,
    /// The depth of an object's fields: 1, in a list 2.
    object: usize,
    /// The last string.
    last: &'a [u8],
    is_in_metadata: bool,
    /// The next string is the version of an object.
    is_version: bool,
}

impl<'a> Scan<'a> {
    fn new(content: &'a [u8]) -> Self {
        let object = if content.first() == Some(&b'[') { 2 } else { 1 };
        Self { bytes: content, depth: 0, object, last: b"", is_in_metadata: false, is_version: false }
    }

    fn punctuation(&mut self, byte: u8) {
        match byte {
            b'{' | b'[' => {
                self.depth += 1;
                self.is_version = false;
            }
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            b':' if self.depth == self.object => self.is_in_metadata = self.last == b"metadata",
            b':' if self.depth == self.object + 1 => {
                self.is_version = self.is_in_metadata && self.last == b"resourceVersion";
            }
            b',' => self.is_version = false,
            _ => {}
        }
    }

    /// Whether the string is the version of an object.
    fn string(&mut self, text: &'a [u8]) -> bool {
        self.last = text;
        std::mem::take(&mut self.is_version)
    }
}

/// Splits after the opening quote of a string: its text with escapes, and what follows the closing quote.
fn split_string(bytes: &[u8]) -> (&[u8], &[u8]) {
    let mut is_escaped = false;
    let end = bytes.iter().position(|byte| {
        let ends = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        ends
    });
    let (text, rest) = bytes.split_at_checked(end.unwrap_or(bytes.len())).unwrap_or((bytes, &[]));
    (text, rest.get(1..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(is_same: bool, one: &str, other: &str) {
        assert_eq!(digest(one.as_bytes()) == digest(other.as_bytes()), is_same, "{one} and {other}");
    }

    #[test]
    fn version_of_an_object_is_ignored() {
        for content in [
            r#"{"metadata":{"resourceVersion":"@"}}"#,
            r#"{"data":{"a":"b"},"metadata":{"labels":{"x":"y"},"name":"n","resourceVersion":"@"},"z":[1]}"#,
            r#"{"metadata": {"a\"}": "\\", "resourceVersion": "@"}}"#,
            r#"[{"metadata":{"resourceVersion":"@"}},{"metadata":{"resourceVersion":"@"},"spec":{}}]"#,
        ] {
            check(true, &content.replace('@', "1"), &content.replace('@', "22"));
            check(true, &content.replace('@', "1"), &content.replace('@', ""));
        }
    }

    #[test]
    fn same_key_elsewhere_is_content() {
        for content in [
            r#""resourceVersion":"@""#,
            r#"{"resourceVersion":"@"}"#,
            r#"{"data":{"resourceVersion":"@"},"metadata":{"resourceVersion":"1"}}"#,
            r#"{"metadata":{"labels":{"resourceVersion":"@"}}}"#,
            r#"{"metadata":{"annotations":{"metadata":"x","resourceVersion":"@"}}}"#,
            r#"{"metadata":{"name":"resourceVersion","uid":"@"}}"#,
            r#"{"metadata":{"resourceVersion":{"a":"@"}}}"#,
            r#"{"metadata":"resourceVersion","data":"@"}"#,
            r#"{"data":{"metadata":{"resourceVersion":"@"}}}"#,
            r#"{"spec":{"template":{"metadata":{"resourceVersion":"@"}}}}"#,
            r#"{"metadata":{"name":"\",\"resourceVersion\":\"","x":"@"}}"#,
            r#"[{"data":{"resourceVersion":"@"}}]"#,
            r#"[[{"metadata":{"resourceVersion":"@"}}]]"#,
        ] {
            check(false, &content.replace('@', "1"), &content.replace('@', "2"));
        }
    }

    #[test]
    fn bytes_that_are_no_json_have_a_digest() {
        check(false, r#"{"metadata":{"resourceVersion":"1"#, r#"{"metadata":{"name":"1"#);
        check(false, "}}]", "}}}");
        check(false, "", "\"");
    }
}
