//! JSON that is decoded: a value, or text that is read piece by piece. Pure.
//!
//! A [`Value`] takes up to twenty times the bytes of its text. Large objects and lists are read one entry after the other,
//! so that only the entry at hand is a value.

use std::fmt;

use serde::Deserializer as _;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Decode, DecodeContext, DecodeError, Path};

/// JSON to decode.
#[derive(Debug)]
pub enum Input<'a> {
    Value(Value),
    /// A large object or list.
    Text(&'a RawValue),
}

/// Longer objects and lists are read piece by piece.
const MAX_VALUE_BYTES: usize = 4096;

impl<'a> Input<'a> {
    pub(in crate::types::api) fn of(text: &'a RawValue) -> Result<Self, DecodeError> {
        let is_composed = text.get().starts_with(['{', '[']);
        if is_composed && text.get().len() > MAX_VALUE_BYTES {
            Ok(Self::Text(text))
        } else {
            parse(text).map(Self::Value)
        }
    }

    pub(in crate::types::api) fn into_value(self) -> Result<Value, DecodeError> {
        match self {
            Self::Value(value) => Ok(value),
            Self::Text(text) => parse(text),
        }
    }

    pub(in crate::types::api) fn is_null(&self) -> bool {
        matches!(self, Self::Value(Value::Null))
    }

    pub(in crate::types::api) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Value(value) => value.as_str(),
            Self::Text(_) => None,
        }
    }

    /// The number of elements or entries, if it is known before they are read.
    pub(super) fn known_len(&self) -> usize {
        match self {
            Self::Value(Value::Array(elements)) => elements.len(),
            Self::Value(Value::Object(entries)) => entries.len(),
            Self::Value(_) | Self::Text(_) => 0,
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Value(Value::Null) => "null",
            Self::Value(Value::Bool(_)) => "a boolean",
            Self::Value(Value::Number(_)) => "a number",
            Self::Value(Value::String(_)) => "a string",
            Self::Value(Value::Array(_)) => "a list",
            Self::Value(Value::Object(_)) => "an object",
            Self::Text(text) if text.get().starts_with('[') => "a list",
            Self::Text(_) => "an object",
        }
    }

    /// Passes each entry of an object to `read`; `null` has none.
    pub(super) fn each_entry(
        self,
        read: &mut dyn FnMut(&str, Input<'_>) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        match self {
            Self::Value(Value::Object(entries)) => {
                entries.into_iter().try_for_each(|(key, value)| read(&key, Input::Value(value)))
            }
            Self::Value(Value::Null) => Ok(()),
            Self::Text(text) if text.get().starts_with('{') => {
                each_entry_text(text, &mut |key, value| read(key, Input::of(value)?))
            }
            other => Err(DecodeError::expected("an object", &other)),
        }
    }

    /// Passes each element of a list to `read`; `null` has none.
    fn each_element(
        self,
        read: &mut dyn FnMut(usize, Input<'_>) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        match self {
            Self::Value(Value::Array(elements)) => {
                elements.into_iter().enumerate().try_for_each(|(index, value)| read(index, Input::Value(value)))
            }
            Self::Value(Value::Null) => Ok(()),
            Self::Text(text) if text.get().starts_with('[') => {
                let mut index = 0;
                each_element_text(text, &mut |element| {
                    read(index, Input::of(element)?)?;
                    index += 1;
                    Ok(())
                })
            }
            other => {
                let kind = other.kind();
                Err(DecodeError::new(format_args!("expected a list, found {kind}: begin each entry with a dash")))
            }
        }
    }
}

impl Input<'_> {
    /// Decodes each element of a list and passes it to `keep`; `null` has none.
    pub(in crate::types::api) fn each_decoded<T: Decode>(
        self,
        context: DecodeContext<'_>,
        keep: &mut dyn FnMut(usize, T),
    ) -> Result<(), DecodeError> {
        self.each_element(&mut |index, element| {
            let path = Path::Index(&context.path, index);
            keep(index, T::decode(element, DecodeContext { path, ..context }).map_err(|error| error.at(&path))?);
            Ok(())
        })
    }
}

fn parse(text: &RawValue) -> Result<Value, DecodeError> {
    serde_json::from_str(text.get()).map_err(DecodeError::new)
}

/// Passes the text of each entry of an object to `read`.
pub(in crate::types::api) fn each_entry_text(
    object: &RawValue,
    read: &mut dyn FnMut(&str, &RawValue) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut pieces = Pieces { read: Read::Entries(read), error: None };
    let ended = serde_json::Deserializer::from_str(object.get()).deserialize_map(&mut pieces);
    pieces.outcome(ended)
}

/// Passes the text of each element of a list to `read`.
pub(in crate::types::api) fn each_element_text(
    list: &RawValue,
    read: &mut dyn FnMut(&RawValue) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut pieces = Pieces { read: Read::Elements(read), error: None };
    let ended = serde_json::Deserializer::from_str(list.get()).deserialize_seq(&mut pieces);
    pieces.outcome(ended)
}

/// Visits the pieces of an object or list.
struct Pieces<'r> {
    read: Read<'r>,
    /// The error of `read`, which ends the visit.
    error: Option<DecodeError>,
}

enum Read<'r> {
    Entries(&'r mut dyn FnMut(&str, &RawValue) -> Result<(), DecodeError>),
    Elements(&'r mut dyn FnMut(&RawValue) -> Result<(), DecodeError>),
}

impl Pieces<'_> {
    fn outcome(self, ended: Result<(), serde_json::Error>) -> Result<(), DecodeError> {
        self.error.map_or_else(|| ended.map_err(DecodeError::new), Err)
    }
}

impl<'de> Visitor<'de> for &mut Pieces<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.read {
            Read::Entries(_) => "an object",
            Read::Elements(_) => "a list",
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Read::Entries(read) = &mut self.read else { return Err(A::Error::custom("expected a list")) };
        while let Some(key) = map.next_key::<String>()? {
            if let Err(error) = read(&key, map.next_value::<&RawValue>()?) {
                self.error = Some(error);
                return Err(A::Error::custom("not decoded"));
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Read::Elements(read) = &mut self.read else { return Err(A::Error::custom("expected an object")) };
        while let Some(element) = list.next_element::<&RawValue>()? {
            if let Err(error) = read(element) {
                self.error = Some(error);
                return Err(A::Error::custom("not decoded"));
            }
        }
        Ok(())
    }
}
