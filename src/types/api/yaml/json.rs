//! Parses JSON with the same bounds as YAML, and reports duplicate keys. Pure.

use std::cell::RefCell;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::{
    Budget, Document, DuplicateKey, MAX_DUPLICATES, MAX_YAML_DEPTH, OBJECT_WEIGHT_BYTES, ParseError, Position, end_of,
    weight_of_key, weight_of_scalar,
};
use crate::types::api::decode::Path;

/// Up to `most` documents.
pub(super) fn parse(text: &str, most: usize) -> Result<Vec<Document>, ParseError> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let mut documents = Vec::new();
    let state = RefCell::new(State { budget: Budget::default(), duplicates: Vec::new() });
    loop {
        let node = Node { path: Path::Root, depth: 0, state: &state };
        let value = node.deserialize(&mut reader).map_err(error)?;
        let duplicates = std::mem::take(&mut state.borrow_mut().duplicates);
        // serde_json does not report where a value begins. Only whitespace precedes the first one.
        let blanks = text.len() - text.trim_start().len();
        let line =
            if documents.is_empty() { end_of(text.as_bytes().get(..blanks).unwrap_or_default()).line } else { 0 };
        documents.push(Document { value, line, duplicates });
        if documents.len() >= most || reader.end().is_ok() {
            return Ok(documents);
        }
    }
}

fn error(error: serde_json::Error) -> ParseError {
    let text = error.to_string();
    let position = Position { line: error.line(), column: error.column() };
    // serde_json appends the position; our errors put it first.
    let suffix = format!(" at line {} column {}", position.line, position.column);
    let problem = match text.strip_suffix(&suffix).unwrap_or(&text) {
        "lone leading surrogate in hex escape" | "unexpected end of hex escape" => {
            "half of a surrogate pair, as \\ud83d without the other half"
        }
        problem => problem,
    };
    ParseError::new((position.line > 0).then_some(position), format!("not JSON: {problem}"))
}

struct State {
    budget: Budget,
    duplicates: Vec<DuplicateKey>,
}

/// The place of a value in its document.
#[derive(Clone, Copy)]
struct Node<'a> {
    path: Path<'a>,
    depth: usize,
    state: &'a RefCell<State>,
}

impl Node<'_> {
    fn spend<E: de::Error>(&self, weight: usize) -> Result<(), E> {
        self.state.borrow_mut().budget.spend(weight).map_err(E::custom)
    }

    fn scalar<E: de::Error>(&self, value: Value) -> Result<Value, E> {
        self.spend(weight_of_scalar(value.as_str().unwrap_or_default()))?;
        Ok(value)
    }

    fn deeper<E: de::Error>(&self) -> Result<usize, E> {
        if self.depth >= MAX_YAML_DEPTH {
            return Err(E::custom("lists and objects are nested too deeply"));
        }
        Ok(self.depth + 1)
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        self.scalar(Value::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        self.scalar(Value::Bool(value))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Value, E> {
        self.scalar(Value::from(number))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Value, E> {
        self.scalar(Value::from(number))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Value, E> {
        self.scalar(Number::from_f64(number).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
        self.scalar(Value::String(text.to_owned()))
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<Value, E> {
        self.scalar(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let depth = self.deeper()?;
        self.spend(size_of::<Value>())?;
        let mut list = Vec::new();
        while let Some(value) =
            seq.next_element_seed(Node { path: Path::Index(&self.path, list.len()), depth, state: self.state })?
        {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let depth = self.deeper()?;
        self.spend(OBJECT_WEIGHT_BYTES)?;
        let mut entries = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            self.spend(weight_of_key(&key))?;
            let path = Path::Key(&self.path, &key);
            let value = map.next_value_seed(Node { path, depth, state: self.state })?;
            if entries.contains_key(&key) {
                let duplicates = &mut self.state.borrow_mut().duplicates;
                if duplicates.len() < MAX_DUPLICATES {
                    duplicates.push(DuplicateKey { path: path.to_string(), position: None });
                }
            }
            entries.insert(key, value);
        }
        Ok(Value::Object(entries))
    }
}
