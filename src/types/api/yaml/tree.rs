//! Builds values from YAML parser events: anchors, aliases, merge keys, duplicates. Pure.

use std::fmt::Write as _;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};
use serde_json::{Map, Value};

use super::scalar::{self, Scalar};
use super::{
    Budget, Document, DuplicateKey, MAX_DUPLICATES, MAX_YAML_DEPTH, ParseError, Position, WEIGHT_OF_OBJECT,
    weight_of_key, weight_of_scalar,
};
use crate::types::sorted::SortedMap;

pub(super) fn parse(text: &str) -> Result<Vec<Document>, ParseError> {
    let mut parser = Parser::new_from_str(text);
    let mut documents = Vec::new();
    let mut budget = Budget::default();
    let mut tree = Tree::new(&mut budget);
    let mut line = 1;
    while let Some(event) = parser.next_event() {
        let (event, span) = event
            .map_err(|error| ParseError::new(Some(position(error.marker())), format!("not YAML: {}", error.info())))?;
        match event {
            Event::StreamEnd => break,
            Event::StreamStart | Event::Nothing => {}
            Event::DocumentStart(_) => line = span.start.line(),
            Event::DocumentEnd => {
                let finished = std::mem::take(&mut tree.finished);
                let duplicates = std::mem::take(&mut tree.duplicates);
                // Anchors are local to a document.
                tree.anchors.clear();
                if !finished.is_null() {
                    documents.push(Document { value: finished, line, duplicates });
                }
            }
            event => {
                tree.event(event, &span.start)
                    .map_err(|problem| ParseError::new(Some(position(&span.start)), problem))?;
            }
        }
    }
    Ok(documents)
}

fn position(marker: &Marker) -> Position {
    Position { line: marker.line(), column: marker.col() + 1 }
}

struct Tree<'a> {
    /// The unfinished lists and objects, outermost first.
    open: Vec<Open>,
    anchors: SortedMap<usize, Anchored>,
    duplicates: Vec<DuplicateKey>,
    finished: Value,
    budget: &'a mut Budget,
}

struct Open {
    content: Content,
    /// 0 means no anchor.
    anchor: usize,
    /// The budget spent when it began.
    spent: usize,
    /// Nesting levels below it.
    height: usize,
}

enum Content {
    List(Vec<Value>),
    Object { entries: Map<String, Value>, key: Key, merged: Vec<Value> },
}

/// What an object expects next: a key, or the value of a key.
enum Key {
    Awaited,
    Merge,
    Named(String),
}

#[derive(Clone)]
struct Anchored {
    value: Value,
    weight: usize,
    height: usize,
}

impl<'a> Tree<'a> {
    fn new(budget: &'a mut Budget) -> Self {
        Self { open: Vec::new(), anchors: SortedMap::new(), duplicates: Vec::new(), finished: Value::Null, budget }
    }

    fn event(&mut self, event: Event<'_>, at: &Marker) -> Result<(), String> {
        if self.expects_key() && !matches!(event, Event::MappingEnd) {
            return self.key(event, at);
        }
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let value = value_of(&text, style, tag.as_deref())?;
                let weight = weight_of_scalar(&text);
                self.budget.spend(weight)?;
                self.anchor(anchor, &value, weight, 0)?;
                self.place(value, 0)
            }
            Event::Alias(id) => {
                let Anchored { value, weight, height } = self.alias(id)?;
                self.budget.spend(weight)?;
                self.place(value, height)
            }
            Event::SequenceStart(anchor, _) => self.begin(Content::List(Vec::new()), anchor),
            Event::MappingStart(anchor, _) => {
                self.begin(Content::Object { entries: Map::new(), key: Key::Awaited, merged: Vec::new() }, anchor)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd => {
                Ok(())
            }
        }
    }

    fn expects_key(&self) -> bool {
        matches!(self.open.last(), Some(Open { content: Content::Object { key: Key::Awaited, .. }, .. }))
    }

    fn key(&mut self, event: Event<'_>, at: &Marker) -> Result<(), String> {
        let key = match event {
            Event::Scalar(text, ScalarStyle::Plain, 0, None) if text == "<<" => Key::Merge,
            Event::Scalar(text, style, anchor, tag) => {
                let value = value_of(&text, style, tag.as_deref())?;
                self.anchor(anchor, &value, weight_of_scalar(&text), 0)?;
                Key::Named(key_of(value)?)
            }
            Event::Alias(id) => Key::Named(key_of(self.alias(id)?.value)?),
            _ => return Err("a list or an object cannot be a key".to_owned()),
        };
        if let Key::Named(name) = &key {
            self.budget.spend(weight_of_key(name))?;
            self.note_duplicate(name, at);
        }
        if let Some(Open { content: Content::Object { key: next, .. }, .. }) = self.open.last_mut() {
            *next = key;
        }
        Ok(())
    }

    fn note_duplicate(&mut self, name: &str, at: &Marker) {
        let given = match self.open.last() {
            Some(Open { content: Content::Object { entries, .. }, .. }) => entries.contains_key(name),
            _ => false,
        };
        if given && self.duplicates.len() < MAX_DUPLICATES {
            let path = self.path(name);
            self.duplicates.push(DuplicateKey { path, position: Some(position(at)) });
        }
    }

    /// The path of the key `name` in the innermost object.
    fn path(&self, name: &str) -> String {
        let mut path = String::new();
        for open in &self.open {
            match &open.content {
                Content::List(list) => drop(write!(path, "[{}]", list.len())),
                Content::Object { key, .. } => {
                    path.push_str(if path.is_empty() { "" } else { "." });
                    path.push_str(match key {
                        Key::Awaited => name,
                        Key::Merge => "<<",
                        Key::Named(key) => key,
                    });
                }
            }
        }
        path
    }

    fn begin(&mut self, content: Content, anchor: usize) -> Result<(), String> {
        if self.open.len() >= MAX_YAML_DEPTH {
            return Err(TOO_DEEP.to_owned());
        }
        let spent = self.budget.spent;
        self.budget.spend(match content {
            Content::List(_) => size_of::<Value>(),
            Content::Object { .. } => WEIGHT_OF_OBJECT,
        })?;
        self.open.push(Open { content, anchor, spent, height: 0 });
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        let Some(Open { content, anchor, spent, height }) = self.open.pop() else { return Ok(()) };
        let value = match content {
            Content::List(list) => Value::Array(list),
            Content::Object { mut entries, merged, .. } => {
                for other in merged {
                    merge(&mut entries, other)?;
                }
                Value::Object(entries)
            }
        };
        let height = height + 1;
        self.anchor(anchor, &value, self.budget.spent - spent, height)?;
        self.place(value, height)
    }

    /// Adds a value to the innermost open collection, or makes it the document.
    fn place(&mut self, value: Value, height: usize) -> Result<(), String> {
        if self.open.len() + height > MAX_YAML_DEPTH {
            return Err(TOO_DEEP.to_owned());
        }
        let Some(open) = self.open.last_mut() else {
            self.finished = value;
            return Ok(());
        };
        open.height = open.height.max(height);
        match &mut open.content {
            Content::List(list) => list.push(value),
            Content::Object { entries, key, merged } => match std::mem::replace(key, Key::Awaited) {
                Key::Merge => merged.push(value),
                Key::Named(name) => drop(entries.insert(name, value)),
                // `key` has taken the keys.
                Key::Awaited => {}
            },
        }
        Ok(())
    }

    fn anchor(&mut self, anchor: usize, value: &Value, weight: usize, height: usize) -> Result<(), String> {
        if anchor != 0 {
            self.budget.spend(weight)?;
            self.anchors.insert(anchor, Anchored { value: value.clone(), weight, height });
        }
        Ok(())
    }

    fn alias(&self, id: usize) -> Result<Anchored, String> {
        let anchored = self.anchors.get(&id).ok_or("an alias refers to no earlier anchor of its document")?;
        // Checked before the copy is made.
        if self.budget.spent.saturating_add(anchored.weight) > super::MAX_WEIGHT {
            return Err("the aliases make the text too large".to_owned());
        }
        Ok(anchored.clone())
    }
}

const TOO_DEEP: &str = "lists and objects are nested too deeply";

/// Merges `<<: {...}` or `<<: [{...}, ...]`: adds missing keys; of several objects the earlier wins.
fn merge(entries: &mut Map<String, Value>, other: Value) -> Result<(), &'static str> {
    match other {
        Value::Object(other) => {
            for (key, value) in other {
                entries.entry(key).or_insert(value);
            }
            Ok(())
        }
        Value::Array(list) => list.into_iter().try_for_each(|other| match other {
            Value::Object(_) => merge(entries, other),
            _ => Err(NO_MERGE),
        }),
        _ => Err(NO_MERGE),
    }
}

const NO_MERGE: &str = "a merge key (<<) needs an object or a list of objects";

/// Every scalar key but null becomes a string: `on: push` reads as `"true": push`.
fn key_of(value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Bool(value) => Ok(value.to_string()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Null => Err("null cannot be a key".to_owned()),
        Value::Array(_) | Value::Object(_) => Err("a list or an object cannot be a key".to_owned()),
    }
}

fn value_of(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, String> {
    let as_string = || Ok(Value::String(text.to_owned()));
    let meaning = match tag {
        None if style == ScalarStyle::Plain => scalar::plain(text),
        None => return as_string(),
        Some(tag) if !tag.is_yaml_core_schema() => return as_string(),
        Some(tag) => match tag.suffix.as_str() {
            "str" | "timestamp" => return as_string(),
            "null" | "bool" | "int" | "float" => {
                let meaning = scalar::plain(text);
                let fits = meaning.tag().strip_prefix("!!") == Some(tag.suffix.as_str())
                    || (tag.suffix == "float" && matches!(meaning, Scalar::Integer(_)));
                if !fits {
                    return Err(format!("{text:?} is not a !!{}", tag.suffix));
                }
                meaning
            }
            other => return Err(format!("the tag !!{other} is not supported")),
        },
    };
    meaning.into_value(text).ok_or_else(|| format!("{text} is a number that JSON cannot hold"))
}
