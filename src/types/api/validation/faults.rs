//! The list of validation errors: each has its field, the value there, and what was expected. Pure.

use std::fmt;

use crate::types::api::decode::Path;

/// The validation error of one field.
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

/// Bounds the memory that a hostile pod can make validation use.
pub const MAX_FAULTS: usize = 64;

/// How many bytes of a path or a value a message shows.
const MAX_SHOWN_FAULT_BYTES: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Faults(Vec<FieldError>);

impl Faults {
    pub(super) fn into_list(self) -> Vec<FieldError> {
        self.0
    }

    /// A missing field.
    pub(super) fn required(&mut self, path: &Path<'_>) {
        self.add(path, format_args!("required"));
    }

    /// A missing field, with the reason why it is needed.
    pub(super) fn required_as(&mut self, path: &Path<'_>, why: &str) {
        self.add(path, format_args!("required: {why}"));
    }

    /// A field that must not be set.
    pub(super) fn forbidden(&mut self, path: &Path<'_>, when: &str) {
        self.add(path, format_args!("must not be set {when}"));
    }

    /// A string that does not meet the rule `wanted`.
    pub(super) fn invalid(&mut self, path: &Path<'_>, value: &str, wanted: impl fmt::Display) {
        self.add(path, format_args!("{}: {wanted}", Quoted(value)));
    }

    /// A number that does not meet the rule `wanted`.
    pub(super) fn out_of_range(&mut self, path: &Path<'_>, value: impl Into<i64>, wanted: impl fmt::Display) {
        self.add(path, format_args!("{}: {wanted}", value.into()));
    }

    /// A value that must be unique, and is not.
    pub(super) fn duplicate(&mut self, path: &Path<'_>, value: &str) {
        self.invalid(path, value, "duplicate");
    }

    /// A problem without a value to show.
    pub(super) fn other(&mut self, path: &Path<'_>, problem: impl fmt::Display) {
        self.add(path, format_args!("{problem}"));
    }

    fn add(&mut self, path: &Path<'_>, problem: fmt::Arguments<'_>) {
        if self.0.len() < MAX_FAULTS {
            let mut path = path.to_string();
            make_showable(&mut path);
            self.0.push(FieldError { path, problem: problem.to_string() });
        }
    }
}

/// A path contains keys from the manifest: escapes control characters and cuts it to a short line.
fn make_showable(path: &mut String) {
    if path.contains(char::is_control) {
        *path = path.escape_debug().collect();
    }
    if let Some((end, _)) = path.char_indices().nth(MAX_SHOWN_FAULT_BYTES) {
        path.truncate(end);
        path.push('…');
    }
}

/// A value in quotes, cut if it is long.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(MAX_SHOWN_FAULT_BYTES) {
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
