//! Lists of objects whose fields are texts, in one piece. Pure.
//!
//! A pod may have fifty thousand of them: as JSON values each would take hundreds of bytes.

use std::fmt;
use std::marker::PhantomData;

use super::decode::{Decode, DecodeContext, DecodeError, Entry, Input, Object, read_object};
use super::encode::{Encode, Json};
use super::texts::{Texts, TextsBuilder};

/// The keys of the objects of a list.
pub trait TextKeys {
    const KEYS: &'static [&'static str];
}

/// A list of objects with the keys `K`. An empty text counts as absent.
pub struct TextObjects<K> {
    /// The texts of all keys of each object.
    texts: Texts,
    keys: PhantomData<K>,
}

/// One object of the list.
#[derive(Clone, Copy, Debug)]
pub struct TextObject<'a, K> {
    objects: &'a TextObjects<K>,
    index: usize,
}

impl<K: TextKeys> TextObjects<K> {
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = TextObject<'_, K>> {
        let objects = self.texts.len() / K::KEYS.len().max(1);
        (0..objects).map(|index| TextObject { objects: self, index })
    }
}

impl<'a, K: TextKeys> TextObject<'a, K> {
    pub fn get(&self, key: &str) -> Option<&'a str> {
        let index = K::KEYS.iter().position(|key_of_kind| *key_of_kind == key)?;
        self.objects.texts.get(self.index * K::KEYS.len() + index).filter(|text| !text.is_empty())
    }
}

/// The fields of an object that is decoded.
struct Fields<K> {
    texts: Vec<String>,
    keys: PhantomData<K>,
}

impl<K: TextKeys> Object for Fields<K> {
    fn read(&mut self, entry: Entry<'_>) -> Result<(), DecodeError> {
        let index = K::KEYS.iter().position(|key| *key == entry.key());
        match index.and_then(|text_slot| self.texts.get_mut(text_slot)) {
            Some(text) => entry.read(text),
            None => {
                entry.unknown();
                Ok(())
            }
        }
    }
}

impl<K: TextKeys> Decode for Fields<K> {
    fn decode(input: Input<'_>, context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        let mut fields = Self { texts: vec![String::new(); K::KEYS.len()], keys: PhantomData };
        read_object(&mut fields, input, context)?;
        Ok(fields)
    }
}

impl<K: TextKeys> Decode for TextObjects<K> {
    fn decode(input: Input<'_>, context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        let mut texts = TextsBuilder::default();
        input
            .each_decoded(context, &mut |_, fields: Fields<K>| fields.texts.iter().for_each(|text| texts.push(text)))?;
        Ok(Self { texts: texts.build(), keys: PhantomData })
    }
}

impl<K: TextKeys> Encode for TextObjects<K> {
    fn write(&self, json: &mut Json) {
        json.list(self.iter(), |object, json| {
            json.begin_object();
            for key in K::KEYS {
                if let Some(text) = object.get(key) {
                    json.always(key, &text);
                }
            }
            json.end_object();
        });
    }

    fn omit(&self) -> bool {
        self.is_empty()
    }
}

impl<K> Clone for TextObjects<K> {
    fn clone(&self) -> Self {
        Self { texts: self.texts.clone(), keys: PhantomData }
    }
}

impl<K> Default for TextObjects<K> {
    fn default() -> Self {
        Self { texts: Texts::default(), keys: PhantomData }
    }
}

impl<K> PartialEq for TextObjects<K> {
    fn eq(&self, other: &Self) -> bool {
        self.texts == other.texts
    }
}

impl<K> fmt::Debug for TextObjects<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.texts.fmt(f)
    }
}

macro_rules! text_objects {
    ($($(#[$meta:meta])* $name:ident, $keys:ident = $($key:literal),*;)*) => { $(
        $(#[$meta])*
        pub type $name = TextObjects<$keys>;

        #[derive(Clone, Copy, Debug)]
        pub struct $keys;

        impl TextKeys for $keys {
            const KEYS: &'static [&'static str] = &[$($key),*];
        }
    )* };
}

text_objects! {
    /// Exactly one of the last two is set.
    PodResourceClaims, PodResourceClaimKeys = "name", "resourceClaimName", "resourceClaimTemplateName";
    PodResourceClaimStatuses, PodResourceClaimStatusKeys = "name", "resourceClaimName";
    PodSchedulingGates, PodSchedulingGateKeys = "name";
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{ObjectText, decode, encode};
    use super::*;

    #[test]
    fn objects_are_those_of_the_list() {
        let list = json!([{"name": "a", "resourceClaimName": "c"}, {}, {"resourceClaimTemplateName": "t\u{e9}"}]);
        let claims: PodResourceClaims = decode(list.clone()).unwrap().value;
        assert_eq!(encode(&claims), list);
        let texts = |object: TextObject<'_, PodResourceClaimKeys>| {
            PodResourceClaimKeys::KEYS.iter().map(|key| object.get(key).unwrap_or("-").to_owned()).collect::<Vec<_>>()
        };
        let all: Vec<Vec<String>> = claims.iter().map(texts).collect();
        assert_eq!(all, [["a", "c", "-"], ["-", "-", "-"], ["-", "-", "t\u{e9}"]]);
        assert_eq!(claims.iter().next().unwrap().get("other"), None);
        assert!(!claims.is_empty() && decode::<PodResourceClaims>(json!([])).unwrap().value.omit());
        assert_eq!(decode::<PodResourceClaims>(json!([{"name": "a"}, {"name": 1}])).unwrap_err().path(), "[1].name");
        assert_eq!(decode::<PodSchedulingGates>(json!([{"nam": "a"}])).unwrap().unknown, ["[0].nam"]);
    }

    #[test]
    fn large_list_takes_about_its_text() {
        let list = vec![json!({"name": "r"}); 10_000];
        let text = ObjectText::of(&json!(list));
        let claims: PodResourceClaims = text.decode().unwrap().value;
        assert_eq!(claims.iter().count(), 10_000);
        assert!(claims.texts.allocated() <= text.as_str().len() + 1, "{}", claims.texts.allocated());
    }
}
