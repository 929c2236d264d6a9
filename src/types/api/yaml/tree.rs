//! Builds values from YAML parser events: anchors, aliases, merge keys, duplicates. Pure.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::cursor::Mark;
use super::encoding;
use super::parser::{Event, Parser, ScalarEvent};
use super::scalar::{self, Scalar};
use super::syntax_error::TOO_DEEP;
use super::{
    Budget, CORE_TAG_PREFIX, Document, DuplicateKey, MAX_DUPLICATES, MAX_YAML_DEPTH, OBJECT_WEIGHT_BYTES, ParseError,
    weight_of_key, weight_of_scalar,
};
use crate::types::api::bytes::Bytes;

/// Up to `most` documents.
pub(super) fn parse(text: &str, most: usize) -> Result<Vec<Document>, ParseError> {
    encoding::check_characters(text)?;
    let mut parser = Parser::new(text);
    let mut documents = Vec::new();
    let mut budget = Budget::default();
    let mut tree = Tree::new(&mut budget);
    let mut line = 1;
    loop {
        let (event, at) = parser.next()?;
        match event {
            Event::StreamEnd => return Ok(documents),
            Event::DocumentStart => line = at.position().line,
            Event::DocumentEnd => {
                let finished = std::mem::take(&mut tree.finished);
                let duplicates = std::mem::take(&mut tree.duplicates);
                tree.anchors = Anchors::default();
                if !finished.is_null() {
                    documents.push(Document { value: finished, line, duplicates });
                }
                if documents.len() >= most {
                    return Ok(documents);
                }
            }
            event => tree.event(event, at).map_err(|problem| ParseError::new(Some(at.position()), problem))?,
        }
    }
}

struct Tree<'a> {
    /// The unfinished lists and objects, outermost first.
    open: Vec<Open>,
    anchors: Anchors,
    duplicates: Vec<DuplicateKey>,
    finished: Value,
    budget: &'a mut Budget,
}

struct Open {
    content: Content,
    anchor: Option<AnchorId>,
    /// The budget spent when it began.
    spent: usize,
    /// Nesting levels below it.
    height: usize,
}

enum Content {
    List(Vec<Value>),
    Object(OpenObject),
}

struct OpenObject {
    entries: Map<String, Value>,
    /// What merge keys have brought that the object does not have itself.
    inherited: Map<String, Value>,
    key: Key,
}

/// What an object expects next: a key, or the value of a key.
enum Key {
    Awaited,
    Merge,
    Named(String),
}

/// The anchors of a document.
#[derive(Default)]
struct Anchors {
    /// Indices of `values`. A tree, since a text can hold a hundred thousand anchors, and this one is in the binary
    /// anyway.
    names: Map<String, Value>,
    /// `None` while the value is being read.
    values: Vec<Option<Anchored>>,
}

#[derive(Clone, Copy)]
struct AnchorId(usize);

#[derive(Clone)]
struct Anchored {
    value: Value,
    weight: usize,
    height: usize,
}

impl Anchors {
    /// The value of an earlier anchor with this name is no longer reachable.
    fn declare(&mut self, name: String) -> AnchorId {
        let id = self.values.len();
        self.values.push(None);
        if let Some(older) = self.names.insert(name, Value::from(id)).and_then(|older| self.slot(&older)) {
            *older = None;
        }
        AnchorId(id)
    }

    fn slot(&mut self, index: &Value) -> Option<&mut Option<Anchored>> {
        self.values.get_mut(usize::try_from(index.as_u64()?).ok()?)
    }

    fn set(&mut self, AnchorId(id): AnchorId, anchored: Anchored) {
        if let Some(slot) = self.values.get_mut(id) {
            *slot = Some(anchored);
        }
    }

    fn get(&self, name: &str) -> Option<&Anchored> {
        self.values.get(usize::try_from(self.names.get(name)?.as_u64()?).ok()?)?.as_ref()
    }
}

impl<'a> Tree<'a> {
    fn new(budget: &'a mut Budget) -> Self {
        let anchors = Anchors::default();
        Self { open: Vec::new(), anchors, duplicates: Vec::new(), finished: Value::Null, budget }
    }

    fn event(&mut self, event: Event, at: Mark) -> Result<(), String> {
        if self.expects_key() && !matches!(event, Event::MappingEnd) {
            return self.key(event, at);
        }
        match event {
            Event::Scalar(scalar) => {
                let value = value_of(&scalar)?;
                let weight = weight_of_scalar(&scalar.text);
                self.budget.spend(weight)?;
                self.anchor_scalar(scalar.anchor, &value, weight)?;
                self.insert(value, 0)
            }
            Event::Alias(name) => {
                let Anchored { value, weight, height } = self.alias(&name)?;
                self.budget.spend(weight)?;
                self.insert(value, height)
            }
            Event::SequenceStart { anchor } => self.begin(Content::List(Vec::new()), anchor),
            Event::MappingStart { anchor } => {
                let object = OpenObject { entries: Map::new(), inherited: Map::new(), key: Key::Awaited };
                self.begin(Content::Object(object), anchor)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::StreamEnd | Event::DocumentStart | Event::DocumentEnd => Ok(()),
        }
    }

    fn open_object(&mut self) -> Option<&mut OpenObject> {
        match self.open.last_mut() {
            Some(Open { content: Content::Object(object), .. }) => Some(object),
            _ => None,
        }
    }

    fn expects_key(&mut self) -> bool {
        matches!(self.open_object(), Some(OpenObject { key: Key::Awaited, .. }))
    }

    fn key(&mut self, event: Event, at: Mark) -> Result<(), String> {
        let key = match event {
            Event::Scalar(scalar) => {
                let value = value_of(&scalar)?;
                let merges = is_merge(&scalar);
                self.anchor_scalar(scalar.anchor, &value, weight_of_scalar(&scalar.text))?;
                if merges { Key::Merge } else { Key::Named(key_of(value)?) }
            }
            Event::Alias(name) => Key::Named(key_of(self.alias(&name)?.value)?),
            _ => {
                return Err(
                    "a list or an object cannot be a key: put a text that begins with a bracket in quotes".to_owned()
                );
            }
        };
        if let Key::Named(name) = &key {
            self.budget.spend(weight_of_key(name))?;
            self.note_duplicate(name, at);
        }
        if let Some(object) = self.open_object() {
            object.key = key;
        }
        Ok(())
    }

    fn note_duplicate(&mut self, name: &str, at: Mark) {
        let is_duplicate = self.open_object().is_some_and(|object| object.entries.contains_key(name));
        if is_duplicate && self.duplicates.len() < MAX_DUPLICATES {
            let path = self.path(name);
            self.duplicates.push(DuplicateKey { path, position: Some(at.position()) });
        }
    }

    /// The path of the key `name` in the innermost object.
    fn path(&self, name: &str) -> String {
        let mut path = String::new();
        for open in &self.open {
            match &open.content {
                Content::List(list) => drop(write!(path, "[{}]", list.len())),
                Content::Object(OpenObject { key, .. }) => {
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

    fn begin(&mut self, content: Content, anchor: Option<String>) -> Result<(), String> {
        if self.open.len() >= MAX_YAML_DEPTH {
            return Err(TOO_DEEP.to_owned());
        }
        let spent = self.budget.spent;
        self.budget.spend(match content {
            Content::List(_) => size_of::<Value>(),
            Content::Object(_) => OBJECT_WEIGHT_BYTES,
        })?;
        let anchor = anchor.map(|name| self.declare(name)).transpose()?;
        self.open.push(Open { content, anchor, spent, height: 0 });
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        let Some(Open { content, anchor, spent, height }) = self.open.pop() else { return Ok(()) };
        let value = match content {
            Content::List(list) => Value::Array(list),
            Content::Object(OpenObject { mut entries, inherited, .. }) => {
                for (key, value) in inherited {
                    entries.entry(key).or_insert(value);
                }
                Value::Object(entries)
            }
        };
        let height = height + 1;
        if let Some(id) = anchor {
            let weight = self.budget.spent - spent;
            self.budget.spend(weight)?;
            self.anchors.set(id, Anchored { value: value.clone(), weight, height });
        }
        self.insert(value, height)
    }

    /// Adds a value to the innermost open collection, or makes it the document.
    fn insert(&mut self, value: Value, height: usize) -> Result<(), String> {
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
            Content::Object(object) => match std::mem::replace(&mut object.key, Key::Awaited) {
                Key::Merge => object.merge(value)?,
                Key::Named(name) => drop(object.entries.insert(name, value)),
                // `key` has taken the keys.
                Key::Awaited => {}
            },
        }
        Ok(())
    }

    fn declare(&mut self, name: String) -> Result<AnchorId, &'static str> {
        self.budget.spend(weight_of_key(&name) + size_of::<Anchored>())?;
        Ok(self.anchors.declare(name))
    }

    fn anchor_scalar(&mut self, name: Option<String>, value: &Value, weight: usize) -> Result<(), String> {
        if let Some(name) = name {
            let id = self.declare(name)?;
            self.budget.spend(weight)?;
            self.anchors.set(id, Anchored { value: value.clone(), weight, height: 0 });
        }
        Ok(())
    }

    fn alias(&self, name: &str) -> Result<Anchored, String> {
        let Some(anchored) = self.anchors.get(name) else {
            return Err(format!("the alias *{name} refers to no earlier anchor of its document"));
        };
        // Checked before the copy is made.
        if self.budget.spent.saturating_add(anchored.weight) > super::MAX_WEIGHT_BYTES {
            return Err("the aliases make the text too large".to_owned());
        }
        Ok(anchored.clone())
    }
}

fn is_merge(scalar: &ScalarEvent) -> bool {
    scalar.text == "<<"
        && match scalar.tag.as_deref() {
            None => scalar.plain,
            Some(tag) => tag == "!" || tag.strip_prefix(CORE_TAG_PREFIX) == Some("merge"),
        }
}

impl OpenObject {
    /// Merges `<<: {...}` or `<<: [{...}, ...]`; of several objects the earlier wins. As upstream, and unlike YAML 1.1,
    /// a merged entry replaces what stands before the merge key.
    fn merge(&mut self, other: Value) -> Result<(), &'static str> {
        match other {
            Value::Object(other) => {
                for (key, value) in other {
                    match self.entries.get_mut(&key) {
                        Some(own_value) => *own_value = value,
                        None => drop(self.inherited.insert(key, value)),
                    }
                }
                Ok(())
            }
            Value::Array(list) => list.into_iter().rev().try_for_each(|other| match other {
                Value::Object(_) => self.merge(other),
                _ => Err(NO_MERGE),
            }),
            _ => Err(NO_MERGE),
        }
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

fn value_of(scalar: &ScalarEvent) -> Result<Value, String> {
    let text = scalar.text.as_str();
    let meaning = match scalar.tag.as_deref() {
        None if scalar.plain => scalar::plain(text),
        None => Scalar::String,
        Some(tag) => match tag.strip_prefix(CORE_TAG_PREFIX) {
            Some(name @ ("null" | "bool" | "int" | "float")) => tagged(text, name)?,
            Some("binary") => return binary(text).map(Value::String),
            _ => Scalar::String,
        },
    };
    meaning.into_value(text).ok_or_else(|| format!("{text} is a number that JSON cannot hold"))
}

fn tagged(text: &str, name: &str) -> Result<Scalar, String> {
    let meaning = scalar::plain(text);
    let fits =
        meaning.tag().strip_prefix("!!") == Some(name) || (name == "float" && matches!(meaning, Scalar::Integer(_)));
    if fits { Ok(meaning) } else { Err(format!("{text:?} is not a !!{name}")) }
}

/// The bytes of `!!binary` as a string. Go's JSON encoder replaces each byte that is not UTF-8.
fn binary(text: &str) -> Result<String, String> {
    let Some(Bytes(bytes)) = Bytes::from_base64(text) else {
        return Err("the value of !!binary is not base64 with padding".to_owned());
    };
    let mut string = String::new();
    for chunk in bytes.utf8_chunks() {
        string.push_str(chunk.valid());
        string.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    Ok(string)
}
