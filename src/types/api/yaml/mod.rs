//! YAML and JSON text as Kubernetes reads it, into JSON values. Pure.
//!
//! Everything that the text can make grow is bounded: its size, the depth of nesting, and the memory of the values,
//! which counts what aliases repeat.

mod json;
mod scalar;
mod tree;

use std::fmt;

use serde_json::Value;

/// One document of a text.
#[derive(Clone, Debug)]
pub struct Document {
    pub value: Value,
    /// The line on which it begins, from 1.
    pub line: usize,
    /// Keys that were given twice in one object; the later value counts. A strict reader refuses them.
    pub duplicates: Vec<DuplicateKey>,
}

/// A key that an object has twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuplicateKey {
    /// The path of the key, as `spec.containers[0].image`.
    pub path: String,
    /// Where it stands for the second time; JSON does not tell.
    pub position: Option<Position>,
}

/// A place in a text, both counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

/// The documents of `text`, in order; those that hold nothing are left out.
pub fn parse(text: &[u8]) -> Result<Vec<Document>, ParseError> {
    if text.len() > MAX_BYTES {
        return Err(ParseError::new(None, "the text is larger than 10 MiB"));
    }
    let text = match std::str::from_utf8(text) {
        Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
        Err(error) => {
            let good = text.get(..error.valid_up_to()).unwrap_or_default();
            return Err(ParseError::new(Some(end_of(good)), "the text is not UTF-8"));
        }
    };
    // No text has these; a file that lost its content in a power cut is full of them.
    if let Some((good, _)) = text.split_once('\0') {
        return Err(ParseError::new(Some(end_of(good.as_bytes())), "there is a NUL character in the text"));
    }
    let begin = text.trim_start();
    if !begin.starts_with('{') {
        return tree::parse(text);
    }
    // YAML can begin with a brace as well. Of two errors the one of the language that it looks like is told.
    json::parse(text).or_else(|error| {
        let looks_like_json = begin.get(1..).unwrap_or_default().trim_start().starts_with(['"', '}']);
        tree::parse(text).map_err(|yaml| if looks_like_json { error } else { yaml })
    })
}

/// No manifest and no configuration is larger.
pub const MAX_BYTES: usize = 10 << 20;
/// Containers within containers.
const MAX_DEPTH: usize = 100;
/// What the values of one text may take in memory, roughly, with everything that aliases repeat.
const MAX_WEIGHT: usize = 32 << 20;
/// More duplicates than these say nothing new.
const MAX_DUPLICATES: usize = 16;

impl Document {
    /// The value, if no key was given twice.
    pub fn strict(self) -> Result<Value, ParseError> {
        match self.duplicates.first() {
            None => Ok(self.value),
            Some(duplicate) => Err(ParseError::new(duplicate.position, format!("{} is given twice", duplicate.path))),
        }
    }
}

/// A text that is not YAML or JSON, or is too much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    position: Option<Position>,
    problem: String,
}

impl ParseError {
    fn new(position: Option<Position>, problem: impl Into<String>) -> Self {
        Self { position, problem: problem.into() }
    }

    pub fn position(&self) -> Option<Position> {
        self.position
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.position {
            Some(Position { line, column }) => write!(f, "line {line}, column {column}: {}", self.problem),
            None => f.write_str(&self.problem),
        }
    }
}

impl std::error::Error for ParseError {}

impl fmt::Display for DuplicateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is given twice", self.path)?;
        match self.position {
            Some(Position { line, .. }) => write!(f, " (line {line})"),
            None => Ok(()),
        }
    }
}

/// The position behind `text`.
fn end_of(text: &[u8]) -> Position {
    let line = 1 + text.iter().filter(|byte| **byte == b'\n').count();
    let column = 1 + text.iter().rev().take_while(|byte| **byte != b'\n').count();
    Position { line, column }
}

/// The memory that the values of a text take; a value asks here before it comes into being.
#[derive(Debug, Default)]
struct Budget {
    spent: usize,
}

impl Budget {
    fn spend(&mut self, weight: usize) -> Result<(), &'static str> {
        self.spent = self.spent.saturating_add(weight);
        if self.spent > MAX_WEIGHT { Err("the text holds too many values") } else { Ok(()) }
    }
}

/// A value in a list or an object, with the text that it may own.
fn weight_of_scalar(text: &str) -> usize {
    size_of::<Value>() + text.len()
}

/// An entry of an object: the key, and its share of a tree that is half full at worst.
fn weight_of_key(key: &str) -> usize {
    2 * (size_of::<String>() + size_of::<Value>()) + key.len()
}

/// An object that has entries has at least one node of a tree, with room for eleven.
const WEIGHT_OF_OBJECT: usize = 11 * (size_of::<String>() + size_of::<Value>());

#[cfg(test)]
mod tests;
