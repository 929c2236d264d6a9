//! Lists of texts in one piece, and JSON that the agent does not read. Pure.
//!
//! A pod may have hundreds of thousands of arguments of one letter: as strings each would take 56 bytes.

use std::fmt;

use serde_json::Value;

use super::decode::{Decode, DecodeContext, DecodeError, Input};
use super::encode::{Encode, Json};

/// A list of texts.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Texts {
    /// All of them, without separators.
    text: Box<str>,
    /// The end of each.
    ends: Box<[u32]>,
}

impl Texts {
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn get(&self, index: usize) -> Option<&str> {
        let end = |index: usize| usize::try_from(*self.ends.get(index)?).ok();
        let begin = index.checked_sub(1).map_or(Some(0), end)?;
        self.text.get(begin..end(index)?)
    }

    /// Bytes of the heap.
    #[cfg(test)]
    pub(super) fn allocated(&self) -> usize {
        self.text.len() + size_of_val(&*self.ends)
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let ends = self.ends.iter().map(|end| usize::try_from(*end).unwrap_or(usize::MAX));
        ends.scan(0, |begin, end| Some(self.text.get(std::mem::replace(begin, end)..end).unwrap_or_default()))
    }

    pub fn to_vec(&self) -> Vec<String> {
        self.iter().map(str::to_owned).collect()
    }
}

/// Collects a list of texts.
#[derive(Default)]
pub(super) struct TextsBuilder {
    text: String,
    ends: Vec<u32>,
}

impl TextsBuilder {
    pub(super) fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.ends.push(u32::try_from(self.text.len()).unwrap_or(u32::MAX));
    }

    pub(super) fn build(self) -> Texts {
        Texts { text: self.text.into(), ends: self.ends.into() }
    }
}

impl<T: AsRef<str>> FromIterator<T> for Texts {
    fn from_iter<I: IntoIterator<Item = T>>(texts: I) -> Self {
        let mut all = TextsBuilder::default();
        texts.into_iter().for_each(|text| all.push(text.as_ref()));
        all.build()
    }
}

impl fmt::Debug for Texts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Encode for Texts {
    fn write(&self, json: &mut Json) {
        json.list(self.iter(), |text, json| json.string(text));
    }

    fn omit(&self) -> bool {
        self.is_empty()
    }
}

/// Any JSON, kept as text. The agent only passes it on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread(Box<str>);

impl Decode for Unread {
    fn decode(input: Input<'_>, _context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        Ok(Self(match input {
            Input::Value(value) => value.to_string().into(),
            Input::Text(text) => text.get().into(),
        }))
    }
}

impl Encode for Unread {
    fn write(&self, json: &mut Json) {
        json.raw(&self.0);
    }
}

/// A list of any JSON, kept as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnreadList(Option<Box<str>>);

impl Decode for UnreadList {
    fn decode(input: Input<'_>, _context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        Ok(Self(match input {
            Input::Value(Value::Null) => None,
            Input::Value(Value::Array(elements)) if elements.is_empty() => None,
            Input::Value(list @ Value::Array(_)) => Some(list.to_string().into()),
            Input::Text(text) if text.get().starts_with('[') => Some(text.get().into()),
            other => return Err(DecodeError::expected("a list", &other)),
        }))
    }
}

impl Encode for UnreadList {
    fn write(&self, json: &mut Json) {
        json.raw(self.0.as_deref().unwrap_or("[]"));
    }

    fn omit(&self) -> bool {
        self.0.is_none()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{decode, encode};
    use super::*;

    #[test]
    fn texts_are_those_of_the_list() {
        for list in [&["a", "", "\u{e9}b\"", "c"][..], &[""], &[]] {
            let texts: Texts = decode(json!(list)).unwrap().value;
            assert_eq!(
                (texts.to_vec(), texts.is_empty()),
                (list.iter().map(|text| (*text).to_owned()).collect(), list.is_empty())
            );
            assert_eq!(encode(&texts), json!(list));
            assert_eq!((0..texts.len()).map_while(|index| texts.get(index)).collect::<Vec<_>>(), list);
            assert_eq!(texts.get(list.len()), None);
            assert_eq!(format!("{texts:?}"), format!("{list:?}"));
            assert_eq!(texts, list.iter().collect());
        }
        assert_ne!(Texts::from_iter(["ab", ""]), Texts::from_iter(["a", "b"]));
        let error = decode::<Texts>(json!(["a", 1])).unwrap_err();
        assert_eq!(error.path(), "[1]");
    }

    #[test]
    fn unread_json_is_passed_on() {
        for value in [json!({"b": [1, {"x": null}], "a": "\u{1}"}), json!([]), json!("x")] {
            assert_eq!(encode(&decode::<Unread>(value.clone()).unwrap().value), value);
        }
        let list = json!([{"topologyKey": "a"}, 1]);
        assert_eq!(encode(&decode::<UnreadList>(list.clone()).unwrap().value), list);
        for none in [json!([]), Value::Null] {
            let none = decode::<UnreadList>(none).unwrap().value;
            assert!(none.omit() && none == UnreadList::default());
        }
        assert!(decode::<UnreadList>(json!({})).is_err());
    }
}
