//! Parses YAML and JSON as Kubernetes does, into JSON values. Pure.
//!
//! Kubernetes reads YAML with sigs.k8s.io/yaml over go-yaml v2, which is a port of libyaml. `scanner`, `parser` and
//! `scalar` follow it; `tests/data/yaml-test-suite` holds what it reads.
//!
//! Everything that the text can make grow is bounded: its size, its nesting, and the memory of its values, including
//! what aliases repeat.

mod cursor;
mod encoding;
mod json;
mod parser;
mod scalar;
mod scanner;
mod syntax_error;
mod tree;

use std::fmt;

use serde_json::Value;

/// One document of a stream.
#[derive(Clone, Debug)]
pub struct Document {
    pub value: Value,
    /// The line of its start, from 1.
    pub line: usize,
    /// Keys that occur twice in an object; the later value wins. A strict reader rejects the document.
    pub duplicates: Vec<DuplicateKey>,
}

/// A key that an object has twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuplicateKey {
    /// The path of the key: `spec.containers[0].image`.
    pub path: String,
    /// The position of the second occurrence; unknown in JSON.
    pub position: Option<Position>,
}

/// A position in a text; line and column start at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

/// The documents of `text`, in order, without empty ones.
pub fn parse(text: &[u8]) -> Result<Vec<Document>, ParseError> {
    parse_until(text, usize::MAX)
}

/// The first document of `text`, as a reader of one configuration takes it: what follows need not be YAML. `None`: there
/// is none.
pub fn parse_first(text: &[u8]) -> Result<Option<Document>, ParseError> {
    Ok(parse_until(text, 1)?.into_iter().next())
}

/// Up to `most` documents.
fn parse_until(text: &[u8], most: usize) -> Result<Vec<Document>, ParseError> {
    if text.len() > MAX_BYTES {
        return Err(ParseError::new(None, "the text is larger than 10 MiB"));
    }
    let text = encoding::decode(text)?;
    let text = text.as_ref();
    // A file that lost its content in a power cut is full of NUL characters.
    if let Some((good, _)) = text.split_once('\0') {
        return Err(ParseError::new(Some(end_of(good.as_bytes())), "there is a NUL character in the text"));
    }
    let begin = text.trim_start();
    if !begin.starts_with('{') {
        return tree::parse(text, most);
    }
    // YAML may begin with a brace too. If both parsers fail, report the error of the likelier language.
    json::parse(text, most).or_else(|error| {
        let looks_like_json = begin.get(1..).unwrap_or_default().trim_start().starts_with(['"', '}']);
        tree::parse(text, most).map_err(|yaml| if looks_like_json { error } else { yaml })
    })
}

/// Larger than any manifest or configuration.
pub const MAX_BYTES: usize = 10 << 20;
/// The prefix that `!!` stands for.
const CORE_TAG_PREFIX: &str = "tag:yaml.org,2002:";
/// Nesting of lists and objects.
const MAX_YAML_DEPTH: usize = 100;
/// Approximate memory of all values of one text, including what aliases repeat.
const MAX_WEIGHT_BYTES: usize = 32 << 20;
/// Upper bound on the list of duplicates.
const MAX_DUPLICATES: usize = 16;

impl Document {
    /// The value, unless a key occurs twice.
    pub fn strict(self) -> Result<Value, ParseError> {
        match self.duplicates.first() {
            None => Ok(self.value),
            Some(duplicate) => Err(ParseError::new(duplicate.position, format!("{} is given twice", duplicate.path))),
        }
    }
}

/// The error of parsing a text.
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

/// The position after `text`.
fn end_of(text: &[u8]) -> Position {
    let line = 1 + text.iter().filter(|byte| **byte == b'\n').count();
    let column = 1 + text.iter().rev().take_while(|byte| **byte != b'\n').count();
    Position { line, column }
}

/// The memory of the values so far. The parser charges it before it creates a value.
#[derive(Debug, Default)]
struct Budget {
    spent: usize,
}

impl Budget {
    fn spend(&mut self, weight: usize) -> Result<(), &'static str> {
        self.spent = self.spent.saturating_add(weight);
        if self.spent > MAX_WEIGHT_BYTES { Err("the text holds too many values") } else { Ok(()) }
    }
}

/// A value in a list or an object, with its own text.
fn weight_of_scalar(text: &str) -> usize {
    size_of::<Value>() + text.len()
}

/// An entry of an object: the key, and its share of a BTree node that may be half full.
fn weight_of_key(key: &str) -> usize {
    2 * (size_of::<String>() + size_of::<Value>()) + key.len()
}

/// An object with entries has at least one BTree node, with room for eleven.
const OBJECT_WEIGHT_BYTES: usize = 11 * (size_of::<String>() + size_of::<Value>());

#[cfg(test)]
mod tests;
