//! The error of a text that is not YAML. Pure.

use super::cursor::Mark;
use super::{ParseError, Position};

#[derive(Debug)]
pub(super) struct SyntaxError {
    /// What was being read, as libyaml words it: "while scanning a tag".
    context: &'static str,
    /// Where it began, if that is another line.
    began: Option<Mark>,
    problem: &'static str,
    at: Mark,
}

pub(super) const TOO_DEEP: &str = "lists and objects are nested too deeply";

impl SyntaxError {
    pub(super) fn new(context: &'static str, problem: &'static str, at: Mark) -> Self {
        Self { context, began: None, problem, at }
    }

    pub(super) fn too_deep(at: Mark) -> Self {
        Self::new("", TOO_DEEP, at)
    }

    pub(super) fn began(self, began: Mark) -> Self {
        Self { began: (began.line != self.at.line).then_some(began), ..self }
    }
}

impl From<SyntaxError> for ParseError {
    fn from(error: SyntaxError) -> Self {
        let SyntaxError { context, began, problem, at } = error;
        let of_line = began.map(|mark| format!(" of line {}", mark.line + 1)).unwrap_or_default();
        let comma = if context.is_empty() { "" } else { ", " };
        Self::new(Some(at.position()), format!("not YAML: {context}{of_line}{comma}{problem}"))
    }
}

impl Mark {
    pub(super) fn position(self) -> Position {
        Position { line: self.line + 1, column: self.column + 1 }
    }
}
