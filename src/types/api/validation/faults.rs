//! The list of what is wrong with a pod: each fault with its field, the value that stands there and what should. Pure.

use std::fmt;

use crate::types::api::decode::Path;

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    pub path: String,
    pub problem: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.problem)
    }
}

/// More faults than these say nothing new, and a pod with a hundred thousand of them must not fill the memory.
pub const FAULT_LIMIT: usize = 64;

/// As much of a path or of a value as is shown.
const SHOWN: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Faults(Vec<FieldError>);

impl Faults {
    pub(super) fn into_list(self) -> Vec<FieldError> {
        self.0
    }

    /// The field is missing.
    pub(super) fn required(&mut self, path: &Path<'_>) {
        self.add(path, format_args!("required"));
    }

    /// The field is missing, and `why` it is needed.
    pub(super) fn required_as(&mut self, path: &Path<'_>, why: &str) {
        self.add(path, format_args!("required: {why}"));
    }

    /// The field must not be there at all.
    pub(super) fn forbidden(&mut self, path: &Path<'_>, when: &str) {
        self.add(path, format_args!("must not be set {when}"));
    }

    /// The text `value` is not as `wanted`.
    pub(super) fn invalid(&mut self, path: &Path<'_>, value: &str, wanted: impl fmt::Display) {
        self.add(path, format_args!("{}: {wanted}", Quoted(value)));
    }

    /// The number `value` is not as `wanted`.
    pub(super) fn out_of_range(&mut self, path: &Path<'_>, value: impl Into<i64>, wanted: impl fmt::Display) {
        self.add(path, format_args!("{}: {wanted}", value.into()));
    }

    /// Something before has the same `value`, and no two may.
    pub(super) fn duplicate(&mut self, path: &Path<'_>, value: &str) {
        self.invalid(path, value, "duplicate");
    }

    /// A problem that no single value stands for.
    pub(super) fn other(&mut self, path: &Path<'_>, problem: impl fmt::Display) {
        self.add(path, format_args!("{problem}"));
    }

    fn add(&mut self, path: &Path<'_>, problem: fmt::Arguments<'_>) {
        if self.0.len() < FAULT_LIMIT {
            let mut path = path.to_string();
            make_showable(&mut path);
            self.0.push(FieldError { path, problem: problem.to_string() });
        }
    }
}

/// A path holds keys from the manifest: whatever they are, it stays a short line.
fn make_showable(path: &mut String) {
    if path.contains(char::is_control) {
        *path = path.escape_debug().collect();
    }
    if let Some((end, _)) = path.char_indices().nth(SHOWN) {
        path.truncate(end);
        path.push('…');
    }
}

/// A value in quotes, cut when it is long.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(SHOWN) {
            Some((end, _)) => write!(f, "{:?}…", self.0.get(..end).unwrap_or_default()),
            None => write!(f, "{:?}", self.0),
        }
    }
}

impl<'a> Path<'a> {
    pub(super) fn key(&'a self, key: &'a str) -> Self {
        Path::Key(self, key)
    }

    pub(super) fn index(&'a self, index: usize) -> Self {
        Path::Index(self, index)
    }
}
