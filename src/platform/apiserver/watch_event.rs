//! Parses the lines of a watch. Pure.

use super::{ApiError, Status};
use crate::types::api::{DecodeError, ObjectText};

/// An event of a watch.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum WatchEvent {
    Added(ObjectText),
    Modified(ObjectText),
    Deleted(ObjectText),
    /// Only the progress of the watch.
    Bookmark(ObjectText),
}

/// Splits received pieces into lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    unread: Vec<u8>,
    /// The first bytes of `unread`, which hold no end of a line. A large line arrives in many pieces.
    searched: usize,
}

/// Upper bound on a line: etcd accepts objects up to 1.5 MiB, and Go's JSON encoder escapes one byte as six (`\u003c`).
const MAX_WATCH_LINE_BYTES: usize = 16 << 20;

impl Lines {
    pub(super) fn receive(&mut self, bytes: Vec<u8>) {
        if self.unread.is_empty() {
            self.unread = bytes;
        } else {
            self.unread.extend_from_slice(&bytes);
        }
    }

    /// The next event, or an error for an invalid line.
    pub(super) fn next(&mut self) -> Result<Option<WatchEvent>, ApiError> {
        loop {
            let Some(end) = self.unread.iter().skip(self.searched).position(|byte| *byte == b'\n') else {
                self.searched = self.unread.len();
                return match self.unread.len() > MAX_WATCH_LINE_BYTES {
                    true => Err(ApiError::Malformed("watch line too long".into())),
                    false => Ok(None),
                };
            };
            let rest = self.unread.split_off(self.searched + end + 1);
            self.searched = 0;
            let line = std::mem::replace(&mut self.unread, rest);
            if !line.trim_ascii().is_empty() {
                return read(line).map(Some);
            }
        }
    }
}

fn read(line: Vec<u8>) -> Result<WatchEvent, ApiError> {
    let malformed = |what: &str| ApiError::Malformed(format!("watch line: {what}").into());
    let not_json = |error: DecodeError| malformed(&error.to_string());
    let line = ObjectText::parse(line).map_err(not_json)?;
    if !line.is_object() {
        return Err(malformed("expected an object"));
    }
    let [kind, object] = line.parts(["type", "object"]).map_err(not_json)?;
    let Some(object) = object.filter(ObjectText::is_object) else {
        return Err(malformed("expected an object in it"));
    };
    let kind = kind.and_then(|kind| kind.value().ok()).unwrap_or_default();
    match kind.as_str().unwrap_or_default() {
        "ADDED" => Ok(WatchEvent::Added(object)),
        "MODIFIED" => Ok(WatchEvent::Modified(object)),
        "DELETED" => Ok(WatchEvent::Deleted(object)),
        "BOOKMARK" => Ok(WatchEvent::Bookmark(object)),
        "ERROR" => {
            let status = object.value().map_err(not_json)?;
            Err(ApiError::Refused(Box::new(Status::of_object(500, &status))))
        }
        kind => Err(malformed(&format!("unknown type {kind:?}"))),
    }
}

impl WatchEvent {
    /// The object's resource version; may be empty.
    pub(super) fn resource_version(&self) -> String {
        let (Self::Added(object) | Self::Modified(object) | Self::Deleted(object) | Self::Bookmark(object)) = self;
        let [version] = object.metadata(["resourceVersion"]);
        version
    }

    /// Whether all events up to its version were sent.
    pub(super) fn is_bookmark(&self) -> bool {
        matches!(self, Self::Bookmark(_))
    }

    /// Whether all initial events were sent.
    pub(super) fn ends_initial_events(&self) -> bool {
        let Self::Bookmark(object) = self else { return false };
        let Ok(object) = object.value() else { return false };
        object.pointer("/metadata/annotations/k8s.io~1initial-events-end").is_some_and(|end| end == "true")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn line(kind: &str, object: &Value) -> Vec<u8> {
        format!("{}\n", json!({"type": kind, "object": object})).into_bytes()
    }

    #[test]
    fn lines_do_not_depend_on_splits() {
        let objects = [json!({"metadata": {"resourceVersion": "7"}}), json!({"a": "x\\n"})];
        let text = [line("ADDED", &objects[0]), b"\n".to_vec(), line("BOOKMARK", &objects[1])].concat();
        for cut in 0..text.len() {
            let mut lines = Lines::default();
            let mut read = Vec::new();
            for part in [&text[..cut], &text[cut..]] {
                lines.receive(part.to_vec());
                while let Some(event) = lines.next().unwrap() {
                    read.push(event);
                }
            }
            let [first, second] = objects.each_ref().map(ObjectText::of);
            assert_eq!(read, [WatchEvent::Added(first), WatchEvent::Bookmark(second)]);
            assert_eq!(read[0].resource_version(), "7");
        }
    }

    #[test]
    fn largest_object_that_is_all_escapes_is_read() {
        let object = format!(r#"{{"metadata":{{"resourceVersion":"7"}},"a":"{}"}}"#, r"\u003c".repeat(1536 << 10));
        let mut lines = Lines::default();
        for part in format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n").as_bytes().chunks(1 << 20) {
            assert_eq!(lines.next().unwrap(), None);
            lines.receive(part.to_vec());
        }
        assert_eq!(lines.next().unwrap().unwrap().resource_version(), "7");
    }

    #[test]
    fn endless_line_is_an_error() {
        let mut lines = Lines::default();
        lines.receive(vec![b' '; MAX_WATCH_LINE_BYTES]);
        assert_eq!(lines.next().unwrap(), None);
        lines.receive(vec![b' ']);
        assert!(lines.next().is_err());
    }

    #[test]
    fn error_events_become_errors() {
        let mut lines = Lines::default();
        lines
            .receive(line("ERROR", &json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})));
        assert!(lines.next().unwrap_err().is_expired());
    }

    #[test]
    fn invalid_lines_are_errors() {
        for (text, told) in [
            ("x\n", "expected value at line 1 column 1"),
            ("[]\n", "expected an object"),
            (r#"{"type":"ADDED"}"#, "expected an object in it"),
            (r#"{"type":"NEWS","object":{}}"#, "unknown type \"NEWS\""),
        ] {
            let mut lines = Lines::default();
            lines.receive(format!("{text}\n").into_bytes());
            let error = lines.next().unwrap_err().to_string();
            assert!(error.ends_with(told), "{error}");
        }
    }

    #[test]
    fn annotation_ends_the_initial_events() {
        let marked = json!({"metadata": {"annotations": {"k8s.io/initial-events-end": "true"}}});
        assert!(WatchEvent::Bookmark(ObjectText::of(&marked)).ends_initial_events());
        assert!(!WatchEvent::Added(ObjectText::of(&marked)).ends_initial_events());
        assert!(!WatchEvent::Bookmark(ObjectText::of(&json!({}))).ends_initial_events());
    }
}
