//! JSON responses as bytes: a value, or a list built one item at a time. Pure.

use serde::Serialize;

/// A JSON object whose last entry is a list, built one item at a time.
pub(super) struct List(Vec<u8>);

impl List {
    pub(super) fn new(head: &str) -> Self {
        Self(head.as_bytes().to_vec())
    }

    pub(super) fn push(&mut self, item: &[u8]) {
        if !self.0.ends_with(b"[") {
            self.0.push(b',');
        }
        self.0.extend_from_slice(item);
    }

    pub(super) fn end(mut self) -> Vec<u8> {
        self.0.extend_from_slice(b"]}");
        self.0
    }
}

pub(super) fn json(value: &impl Serialize) -> Vec<u8> {
    // Fails only for maps with keys other than strings; there are none.
    serde_json::to_vec(value).unwrap_or_default()
}
