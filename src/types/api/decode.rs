//! Decodes JSON into a type by the rules of the API; reports the path of errors and unknown fields. Pure.
//!
//! Not serde: for the eighty types of a pod its derived code is five times as large, and it does not read `null` as
//! "absent", as the API does.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;

use serde_json::Value;

pub use self::input::Input;
pub(super) use self::input::{each_element_text, each_entry_text};

/// A decoded value, and the fields of the input that its type does not have.
#[derive(Clone, Debug)]
pub struct Decoded<T> {
    pub value: T,
    /// Paths such as `spec.containers[0].imge`; at most [`MAX_UNKNOWN_FIELDS`] of them.
    pub unknown: Vec<String>,
}

/// A type that can be decoded from JSON.
pub trait Decode: Sized {
    fn decode(input: Input<'_>, context: DecodeContext<'_>) -> Result<Self, DecodeError>;

    /// Replaces `value`. An object is read in place: a large one is not moved.
    fn decode_into(value: &mut Self, input: Input<'_>, context: DecodeContext<'_>) -> Result<(), DecodeError> {
        *value = Self::decode(input, context)?;
        Ok(())
    }

    /// Decodes an optional field, where `null` means absent.
    fn decode_option(input: Input<'_>, context: DecodeContext<'_>) -> Result<Option<Self>, DecodeError> {
        if input.is_null() { Ok(None) } else { Self::decode(input, context).map(Some) }
    }

    /// Whether a field with this value counts as absent. As with the API's defaults, that is so for an empty string
    /// where one of some words is expected.
    fn is_absent(_input: &Input<'_>) -> bool {
        false
    }
}

/// Decodes `value` as a `T`. Unknown fields are collected and cause no error.
pub fn decode<T: Decode>(value: Value) -> Result<Decoded<T>, DecodeError> {
    decode_input(Input::Value(value))
}

/// Decodes JSON text as a `T`. Unknown fields are ignored.
pub fn decode_bytes<T: Decode>(json: &[u8]) -> Result<T, DecodeError> {
    let value = serde_json::from_slice(json).map_err(DecodeError::new)?;
    decode(value).map(|decoded| decoded.value)
}

pub(super) fn decode_input<T: Decode>(input: Input<'_>) -> Result<Decoded<T>, DecodeError> {
    let unknown = RefCell::new(Vec::new());
    let value = T::decode(input, DecodeContext { path: Path::Root, unknown: &unknown })?;
    Ok(Decoded { value, unknown: unknown.into_inner() })
}

/// The cap on the list of unknown fields.
pub const MAX_UNKNOWN_FIELDS: usize = 64;

/// A value that does not fit its type: its path, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    path: Option<String>,
    problem: String,
}

impl DecodeError {
    pub(super) fn new(problem: impl fmt::Display) -> Self {
        Self { path: None, problem: problem.to_string() }
    }

    pub(super) fn expected(expected: &str, input: &Input<'_>) -> Self {
        Self::new(format_args!("expected {expected}, found {}", input.kind()))
    }

    /// Sets the path, unless an inner value has already set it.
    fn at(mut self, path: &Path<'_>) -> Self {
        self.path.get_or_insert_with(|| path.to_string());
        self
    }

    /// The error in a document that has this one below `path`.
    pub(crate) fn below(mut self, path: &str) -> Self {
        self.path = Some([path, self.path()].concat());
        self
    }

    /// The path of the field; empty for the document itself.
    pub fn path(&self) -> &str {
        self.path.as_deref().unwrap_or_default()
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path() {
            "" => f.write_str(&self.problem),
            path => write!(f, "{path}: {}", self.problem),
        }
    }
}

impl std::error::Error for DecodeError {}

/// The path of a value. It lives on the stack, and becomes text only for an error or an unknown field.
#[derive(Clone, Copy)]
pub(super) enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(parent, key) => {
                parent.fmt(f)?;
                // A key that contains dots (a label, an annotation) would read as several keys.
                if key.is_empty() || key.contains(['.', '[', ']', ' ']) {
                    write!(f, "[{key:?}]")
                } else if matches!(parent, Self::Root) {
                    f.write_str(key)
                } else {
                    write!(f, ".{key}")
                }
            }
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// The path of a value, and the list that collects the document's unknown fields.
#[derive(Clone, Copy)]
pub struct DecodeContext<'a> {
    path: Path<'a>,
    unknown: &'a RefCell<Vec<String>>,
}

impl fmt::Debug for DecodeContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DecodeContext({})", self.path)
    }
}

/// A struct that is decoded entry by entry.
pub(crate) trait Object {
    fn read(&mut self, entry: Entry<'_>) -> Result<(), DecodeError>;
}

/// A field of an object. Its code is compiled once for each type, not for each field.
pub(crate) trait Field {
    fn read(&mut self, entry: Entry<'_>) -> Result<(), DecodeError>;
}

impl<T: Decode> Field for T {
    fn read(&mut self, entry: Entry<'_>) -> Result<(), DecodeError> {
        if T::is_absent(&entry.value) {
            return Ok(());
        }
        T::decode_into(self, entry.value, entry.context)
    }
}

/// One entry of an object: key, value and path.
pub(crate) struct Entry<'a> {
    key: &'a str,
    value: Input<'a>,
    context: DecodeContext<'a>,
}

impl<'a> Entry<'a> {
    pub(super) fn key(&self) -> &'a str {
        self.key
    }

    /// Whether the key is `name`, or `name` in camelCase: `host_network` matches `hostNetwork`.
    pub(crate) fn is(&self, name: &str) -> bool {
        let mut key = self.key.bytes();
        let mut upper = false;
        for byte in name.bytes() {
            if byte == b'_' {
                upper = true;
                continue;
            }
            let expected = if upper { byte.to_ascii_uppercase() } else { byte };
            upper = false;
            if key.next() != Some(expected) {
                return false;
            }
        }
        key.next().is_none()
    }

    pub(super) fn value<T: Decode>(self) -> Result<T, DecodeError> {
        T::decode(self.value, self.context)
    }

    pub(crate) fn read(self, field: &mut dyn Field) -> Result<(), DecodeError> {
        field.read(self)
    }

    pub(super) fn unknown(&self) {
        let mut unknown = self.context.unknown.borrow_mut();
        if unknown.len() < MAX_UNKNOWN_FIELDS {
            unknown.push(self.context.path.to_string());
        }
    }

    /// An error with the path of the enclosing object.
    pub(super) fn object_error(&self, problem: fmt::Arguments<'_>) -> DecodeError {
        let error = DecodeError::new(problem);
        match self.context.path {
            Path::Key(object, _) => error.at(object),
            Path::Root | Path::Index(..) => error,
        }
    }
}

/// Passes each entry to `object`. An entry that is `null` counts as absent.
pub(crate) fn read_object(
    object: &mut dyn Object,
    input: Input<'_>,
    context: DecodeContext<'_>,
) -> Result<(), DecodeError> {
    input.each_entry(&mut |key, value| {
        if value.is_null() {
            return Ok(());
        }
        let path = Path::Key(&context.path, key);
        let entry = Entry { key, value, context: DecodeContext { path, ..context } };
        object.read(entry).map_err(|error| error.at(&path))
    })
}

pub(super) fn text(input: Input<'_>) -> Result<String, DecodeError> {
    match input {
        Input::Value(Value::String(text)) => Ok(text),
        Input::Value(Value::Null) => Ok(String::new()),
        // In YAML `80`, `yes` and `on` are no strings.
        other @ Input::Value(Value::Bool(_) | Value::Number(_)) => {
            Err(DecodeError::new(format_args!("expected a string, found {}: put it in quotes", other.kind())))
        }
        other => Err(DecodeError::expected("a string", &other)),
    }
}

fn integer(input: &Input<'_>) -> Result<i64, DecodeError> {
    let number = match input {
        Input::Value(Value::Number(number)) => number,
        Input::Value(Value::Null) => return Ok(0),
        Input::Value(Value::String(text)) if text.parse::<i64>().is_ok() => {
            return Err(DecodeError::new(format_args!("expected a number, found a string: remove the quotes")));
        }
        other => return Err(DecodeError::expected("a number", other)),
    };
    match (number.as_i64(), number.as_u64()) {
        (Some(number), _) => Ok(number),
        (None, Some(_)) => Err(out_of_range(number)),
        (None, None) => Err(DecodeError::new(format_args!("expected a whole number, found {number}"))),
    }
}

fn out_of_range(number: impl fmt::Display) -> DecodeError {
    DecodeError::new(format_args!("the number {number} is out of range"))
}

impl Decode for Value {
    fn decode(input: Input<'_>, _context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        input.into_value()
    }
}

impl Decode for bool {
    fn decode(input: Input<'_>, _context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        match input {
            Input::Value(Value::Bool(value)) => Ok(value),
            Input::Value(Value::Null) => Ok(false),
            other => Err(DecodeError::expected("a boolean", &other)),
        }
    }
}

/// Numbers of our own records.
impl Decode for u64 {
    fn decode(input: Input<'_>, _context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        match &input {
            Input::Value(Value::Number(number)) => number.as_u64().ok_or_else(|| out_of_range(number)),
            other => Err(DecodeError::expected("a number", other)),
        }
    }
}

impl Decode for u32 {
    fn decode(input: Input<'_>, context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        let number = u64::decode(input, context)?;
        Self::try_from(number).map_err(|_| out_of_range(number))
    }
}

impl<T: Decode + Copy> Decode for (T, T) {
    fn decode(input: Input<'_>, context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        match Vec::<T>::decode(input, context)?.as_slice() {
            [first, second] => Ok((*first, *second)),
            numbers => Err(DecodeError::new(format_args!("expected two numbers, found {}", numbers.len()))),
        }
    }
}

impl Decode for serde_json::Map<String, Value> {
    fn decode(input: Input<'_>, _context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        match input.into_value()? {
            Value::Object(entries) => Ok(entries),
            other => Err(DecodeError::expected("an object", &Input::Value(other))),
        }
    }
}

impl Decode for i32 {
    fn decode(input: Input<'_>, _context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        let number = integer(&input)?;
        Self::try_from(number).map_err(|_| out_of_range(number))
    }
}

impl Decode for i64 {
    fn decode(input: Input<'_>, _context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        integer(&input)
    }
}

impl Decode for String {
    fn decode(input: Input<'_>, _context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        text(input)
    }
}

impl Decode for Cow<'static, str> {
    fn decode(input: Input<'_>, _context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        text(input).map(Cow::Owned)
    }
}

impl<T: Decode> Decode for Box<T> {
    fn decode(input: Input<'_>, context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        T::decode(input, context).map(Box::new)
    }

    fn decode_into(value: &mut Self, input: Input<'_>, context: DecodeContext<'_>) -> Result<(), DecodeError> {
        T::decode_into(value, input, context)
    }
}

impl<T: Decode> Decode for Option<T> {
    fn decode(input: Input<'_>, context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        T::decode_option(input, context)
    }

    fn is_absent(input: &Input<'_>) -> bool {
        T::is_absent(input)
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn decode(input: Input<'_>, context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        let mut list = Self::with_capacity(input.known_len());
        input.each_decoded(context, &mut |_, element| list.push(element))?;
        // A list that was read element by element has grown to up to twice its length.
        list.shrink_to_fit();
        Ok(list)
    }
}

impl Decode for super::Texts {
    fn decode(input: Input<'_>, context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        let mut texts = super::texts::TextsBuilder::default();
        input.each_decoded(context, &mut |_, text: String| texts.push(&text))?;
        Ok(texts.build())
    }
}

impl<V: Decode> Decode for super::Map<V> {
    fn decode(input: Input<'_>, context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        let mut list: Vec<(Box<str>, V)> = Vec::with_capacity(input.known_len());
        input.each_entry(&mut |key, value| {
            let path = Path::Key(&context.path, key);
            let value = V::decode(value, DecodeContext { path, ..context }).map_err(|error| error.at(&path))?;
            list.push((key.into(), value));
            Ok(())
        })?;
        list.shrink_to_fit();
        Ok(list.into_iter().collect())
    }
}

mod input;
#[cfg(test)]
mod tests;
