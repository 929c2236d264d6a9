//! The recorded requests.

use serde_json::Value;

use super::identity::Identity;

/// One request as received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Counted from 1, in order of arrival.
    pub number: usize,
    pub connection: u64,
    pub method: String,
    /// The API verb: get, list, watch, create, update, patch, delete. For other requests, the method in lower case.
    pub verb: &'static str,
    /// Decoded, without the query.
    pub path: String,
    pub query: Vec<(String, String)>,
    /// Header names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub identity: Identity,
    /// The status of the response; `None` until it is sent.
    pub status: Option<u16>,
}

impl Request {
    /// Whether the verb or method is this one and the path matches the pattern.
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

    /// The body as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a body of JSON")
    }

    /// Whether the query or body contains this text.
    pub(crate) fn is_about(&self, text: &str) -> bool {
        let bytes = text.as_bytes();
        text.is_empty()
            || self.query.iter().any(|(_, value)| value.contains(text))
            || self.body.windows(bytes.len()).any(|part| part == bytes)
    }
}

/// Whether a path matches a pattern, in which `*` matches any text.
pub(crate) fn fits(pattern: &str, path: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == path };
    let Some(path) = path.strip_prefix(head) else { return false };
    let mut tails = path.char_indices().map(|(at, _)| at).chain([path.len()]);
    tails.any(|at| path.get(at..).is_some_and(|tail| fits(rest, tail)))
}
