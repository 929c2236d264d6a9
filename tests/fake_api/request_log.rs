//! What was asked of the server.

use serde_json::Value;

use super::identity::Identity;

/// One request as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Counted from 1, in the order of arrival.
    pub number: usize,
    /// The number of its connection.
    pub connection: u64,
    pub method: String,
    /// As the API names it: get, list, watch, create, update, patch, delete; or the method in small letters.
    pub verb: &'static str,
    /// Without the query, with no escapes.
    pub path: String,
    pub query: Vec<(String, String)>,
    /// Names in small letters.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub identity: Identity,
    /// What it was answered with; `None` as long as it was not.
    pub status: Option<u16>,
}

impl Request {
    /// Whether it is of this verb, or of this method, and its path fits the pattern.
    pub(crate) fn is(&self, verb: &str, pattern: &str) -> bool {
        (verb == "*" || verb == self.verb || verb == self.method) && fits(pattern, &self.path)
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body, which must be JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a body of JSON")
    }

    /// Whether this text is in the query or in the body.
    pub(crate) fn is_about(&self, text: &str) -> bool {
        let bytes = text.as_bytes();
        text.is_empty()
            || self.query.iter().any(|(_, value)| value.contains(text))
            || self.body.windows(bytes.len()).any(|part| part == bytes)
    }
}

/// Whether a path fits a pattern, in which `*` is any text.
pub(crate) fn fits(pattern: &str, path: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == path };
    let Some(path) = path.strip_prefix(head) else { return false };
    let mut tails = path.char_indices().map(|(at, _)| at).chain([path.len()]);
    tails.any(|at| path.get(at..).is_some_and(|tail| fits(rest, tail)))
}
