//! Macros that declare API objects with one line a field. Pure.
//!
//! `object!` declares a struct with the JSON of the Go type of the same name: keys are camelCase, every field may be
//! absent, and a zero or empty field is omitted. Fields in `@always` are always written. A field whose key is not its
//! name in camelCase gives the key after the type: `host_ip: String = "hostIP"`.

use std::fmt;

macro_rules! object {
    (
        $(#[$meta:meta])*
        $visibility:vis struct $name:ident {
            $(@always { $($(#[$always_meta:meta])* $always:ident: $always_type:ty $(= $always_key:literal)?,)* })?
            $($(#[$field_meta:meta])* $field:ident: $type:ty $(= $key:literal)?,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq)]
        $visibility struct $name {
            $($($(#[$always_meta])* pub $always: $always_type,)*)?
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl $crate::types::api::decode::Object for $name {
            fn read(&mut self, entry: $crate::types::api::decode::Entry<'_>) -> Result<(), $crate::types::api::DecodeError> {
                $($(
                    if entry.is($crate::types::api::object::key!($always $($always_key)?)) {
                        return entry.read(&mut self.$always);
                    }
                )*)?
                $(
                    if entry.is($crate::types::api::object::key!($field $($key)?)) {
                        return entry.read(&mut self.$field);
                    }
                )*
                entry.unknown();
                Ok(())
            }
        }

        impl $crate::types::api::decode::Decode for $name {
            fn decode(
                input: $crate::types::api::decode::Input<'_>,
                context: $crate::types::api::decode::DecodeContext<'_>,
            ) -> Result<Self, $crate::types::api::DecodeError> {
                let mut object = Self::default();
                $crate::types::api::decode::read_object(&mut object, input, context)?;
                Ok(object)
            }

            fn decode_into(
                object: &mut Self,
                input: $crate::types::api::decode::Input<'_>,
                context: $crate::types::api::decode::DecodeContext<'_>,
            ) -> Result<(), $crate::types::api::DecodeError> {
                *object = Self::default();
                $crate::types::api::decode::read_object(object, input, context)
            }
        }

        impl $crate::types::api::encode::Encode for $name {
            fn write(&self, json: &mut $crate::types::api::encode::Json) {
                json.begin_object();
                $($(json.always($crate::types::api::object::key!($always $($always_key)?), &self.$always);)*)?
                $(json.field($crate::types::api::object::key!($field $($key)?), &self.$field);)*
                json.end_object();
            }
        }

        #[cfg(test)]
        impl $crate::types::api::fields::KnownFields for $name {
            fn visit(fields: &mut $crate::types::api::fields::Fields) {
                fields.note($crate::types::api::fields::Kind::Object);
                $($(fields.under(
                    $crate::types::api::object::key!($always $($always_key)?),
                    <$always_type as $crate::types::api::fields::KnownFields>::visit,
                );)*)?
                $(fields.under(
                    $crate::types::api::object::key!($field $($key)?),
                    <$type as $crate::types::api::fields::KnownFields>::visit,
                );)*
            }
        }
    };
}

/// A struct of this program's own JSON, which serde writes. `Entry::read` reads it: code that serde derives for reading is
/// five times as large.
///
/// Keys are camelCase, or given after the type. A field that is absent has its default value.
macro_rules! record {
    (@key $field:ident) => {
        stringify!($field)
    };
    (@key $field:ident $key:literal) => {
        $key
    };
    (
        $(#[$meta:meta])*
        $visibility:vis struct $name:ident {
            $($(#[$field_meta:meta])* $field_visibility:vis $field:ident: $type:ty $(= $key:literal)?,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
        #[serde(rename_all = "camelCase")]
        $visibility struct $name {
            $($(#[$field_meta])* $(#[serde(rename = $key)])? $field_visibility $field: $type,)*
        }

        impl $crate::types::api::Object for $name {
            fn read(&mut self, entry: $crate::types::api::Entry<'_>) -> Result<(), $crate::types::api::DecodeError> {
                $(
                    if entry.is($crate::types::api::record!(@key $field $($key)?)) {
                        return entry.read(&mut self.$field);
                    }
                )*
                Ok(())
            }
        }

        impl $crate::types::api::Decode for $name {
            fn decode(
                input: $crate::types::api::Input<'_>,
                context: $crate::types::api::DecodeContext<'_>,
            ) -> Result<Self, $crate::types::api::DecodeError> {
                let mut record = Self::default();
                $crate::types::api::read_object(&mut record, input, context)?;
                Ok(record)
            }

            fn decode_into(
                record: &mut Self,
                input: $crate::types::api::Input<'_>,
                context: $crate::types::api::DecodeContext<'_>,
            ) -> Result<(), $crate::types::api::DecodeError> {
                *record = Self::default();
                $crate::types::api::read_object(record, input, context)
            }
        }
    };
}

/// The key of a field: as given, or the field's name, which `Entry::is` and `Json::field` convert to camelCase.
macro_rules! key {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $key:literal) => {
        $key
    };
}

/// An enum of API strings: `Variant = "Word"`. The variant marked `#[default]` stands for an absent field.
///
/// After `lenient`, an unknown word counts as absent: the API server does not check a field of the status, which others
/// may write, and one such word must not make the rest unreadable.
macro_rules! words {
    (@is_absent $input:ident) => {
        $input.as_str() == Some("") && Self::from_word("").is_none()
    };
    (@is_absent $input:ident lenient) => {
        $input.as_str().is_some_and(|word| Self::from_word(word).is_none())
    };
    (@kind) => {
        $crate::types::api::fields::Kind::Words(Self::WORDS)
    };
    (@kind lenient) => {
        $crate::types::api::fields::Kind::Text
    };
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)* } $($lenient:ident)?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_meta])* $variant,)* }

        impl $name {
            pub const WORDS: &'static [&'static str] = &[$($word),*];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)* _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl $crate::types::api::decode::Decode for $name {
            fn decode(
                input: $crate::types::api::decode::Input<'_>,
                _context: $crate::types::api::decode::DecodeContext<'_>,
            ) -> Result<Self, $crate::types::api::DecodeError> {
                let word = $crate::types::api::decode::text(input)?;
                Self::from_word(&word)
                    .ok_or_else(|| $crate::types::api::object::unexpected(&word, Self::WORDS))
            }

            fn is_absent(input: &$crate::types::api::decode::Input<'_>) -> bool {
                words!(@is_absent input $($lenient)?)
            }
        }

        impl $crate::types::api::encode::Encode for $name {
            fn write(&self, json: &mut $crate::types::api::encode::Json) {
                json.string(self.as_str());
            }
        }

        #[cfg(test)]
        impl $crate::types::api::fields::KnownFields for $name {
            fn visit(fields: &mut $crate::types::api::fields::Fields) {
                fields.note(words!(@kind $($lenient)?));
            }
        }
    };
}

/// An enum of objects, exactly one of whose keys may be given: `Variant(Type) = "key"`. The variant after `else` stands
/// for keys of none.
macro_rules! one_of {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident($type:ty) = $key:literal,)* }
        $(else $other:ident)?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub enum $name { $($(#[$variant_meta])* $variant($type),)* $($other)? }

        impl $name {
            pub const KEYS: &'static [&'static str] = &[$($key),*];

            /// The key of this variant in its object.
            pub const fn key(&self) -> &'static str {
                match self { $(Self::$variant(_) => $key,)* $(Self::$other => "",)? }
            }

            /// Decodes an entry into `one`, which must be `None`, if its key belongs to a variant.
            pub(super) fn read(
                one: &mut Option<Self>,
                entry: $crate::types::api::decode::Entry<'_>,
            ) -> Result<(), $crate::types::api::DecodeError> {
                if !Self::KEYS.contains(&entry.key()) {
                    $(one.get_or_insert(Self::$other);)?
                    entry.unknown();
                    return Ok(());
                }
                if let Some(one) = one.as_ref()$(.filter(|one| **one != Self::$other))? {
                    return Err($crate::types::api::object::two_of(one.key(), &entry));
                }
                *one = match entry.key() {
                    $($key => Some(Self::$variant(entry.value()?)),)*
                    _ => None,
                };
                Ok(())
            }

            pub(super) fn write(&self, json: &mut $crate::types::api::encode::Json) {
                match self { $(Self::$variant(value) => json.always($key, value),)* $(Self::$other => {})? }
            }
        }

        #[cfg(test)]
        impl $crate::types::api::fields::KnownFields for $name {
            fn visit(fields: &mut $crate::types::api::fields::Fields) {
                $(fields.under($key, <$type as $crate::types::api::fields::KnownFields>::visit);)*
            }
        }
    };
}

/// An object that holds a `one_of!` beside plain fields.
macro_rules! one_of_object {
    ($name:ident { $($field:ident: $type:ty,)* @one $one:ident: $one_type:ty, default $default:expr }) => {
        impl $crate::types::api::decode::Decode for $name {
            fn decode(
                input: $crate::types::api::decode::Input<'_>,
                context: $crate::types::api::decode::DecodeContext<'_>,
            ) -> Result<Self, $crate::types::api::DecodeError> {
                #[derive(Default)]
                struct Parts {
                    $($field: $type,)*
                    one: Option<$one_type>,
                }

                impl $crate::types::api::decode::Object for Parts {
                    fn read(&mut self, entry: $crate::types::api::decode::Entry<'_>) -> Result<(), $crate::types::api::DecodeError> {
                        $(
                            if entry.is(stringify!($field)) {
                                return entry.read(&mut self.$field);
                            }
                        )*
                        <$one_type>::read(&mut self.one, entry)
                    }
                }

                let mut parts = Parts::default();
                $crate::types::api::decode::read_object(&mut parts, input, context)?;
                let none: Option<$one_type> = $default;
                match parts.one.or(none) {
                    Some($one) => Ok($name { $($field: parts.$field,)* $one }),
                    None => Err($crate::types::api::object::none_of(<$one_type>::KEYS)),
                }
            }
        }

        impl $crate::types::api::encode::Encode for $name {
            fn write(&self, json: &mut $crate::types::api::encode::Json) {
                json.begin_object();
                $(json.field(stringify!($field), &self.$field);)*
                self.$one.write(json);
                json.end_object();
            }
        }

        #[cfg(test)]
        impl $crate::types::api::fields::KnownFields for $name {
            fn visit(fields: &mut $crate::types::api::fields::Fields) {
                fields.note($crate::types::api::fields::Kind::Object);
                $(fields.under(stringify!($field), <$type as $crate::types::api::fields::KnownFields>::visit);)*
                <$one_type as $crate::types::api::fields::KnownFields>::visit(fields);
            }
        }
    };
}

pub(super) use key;
pub(crate) use record;

use super::decode::{Entry, text};
use super::{DecodeError, Input};

/// The error for a string that is not one of `words`.
pub(super) fn unexpected(word: &str, words: &[&str]) -> DecodeError {
    DecodeError::new(format_args!("expected {}, found {word:?}", List { words, quoted: true }))
}

/// The value of one of `words`.
pub(crate) fn decode_word<T: Copy>(input: Input<'_>, words: &[(&'static str, T)]) -> Result<T, DecodeError> {
    let word = text(input)?;
    let decoded = words.iter().find(|(accepted, _)| *accepted == word);
    decoded.map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        unexpected(&word, &words)
    })
}

/// The error for two keys that exclude each other. Its path is that of the object, not of the second key.
pub(super) fn two_of(one: &str, other: &Entry<'_>) -> DecodeError {
    other.object_error(format_args!("only one of {one} and {} may be given", other.key()))
}

/// The error for an object without any of `keys`, one of which is required.
pub(super) fn none_of(keys: &[&str]) -> DecodeError {
    DecodeError::new(format_args!("one of {} is required", List { words: keys, quoted: false }))
}

struct List<'a> {
    words: &'a [&'a str],
    quoted: bool,
}

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, word) in self.words.iter().enumerate() {
            match index {
                0 => {}
                index if index + 1 == self.words.len() => f.write_str(" or ")?,
                _ => f.write_str(", ")?,
            }
            if self.quoted {
                write!(f, "{word:?}")?;
            } else {
                f.write_str(word)?;
            }
        }
        Ok(())
    }
}
