//! Encodes a type as JSON, with the fields in the order of their declaration. Pure.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use serde_json::Value;

/// A type that can be encoded as JSON.
pub trait Encode {
    fn write(&self, json: &mut Json);

    /// Whether to leave out a field with this value, as Go's `omitempty` does.
    ///
    /// Like a Go struct that is not a pointer, a struct is always written, at least as `{}`.
    fn omit(&self) -> bool {
        false
    }

    /// Writes the value of a required field that is `None`.
    fn write_none(json: &mut Json)
    where
        Self: Sized,
    {
        json.raw("null");
    }
}

/// `object` as a JSON value.
pub fn encode(object: &dyn Encode) -> Value {
    // `encode_text` writes valid JSON, so this cannot fail.
    serde_json::from_str(&encode_text(object)).unwrap_or_default()
}

/// `object` as JSON text, its fields in the order of the Go type.
pub fn encode_text(object: &dyn Encode) -> String {
    let mut json = Json { text: String::new(), first: true };
    object.write(&mut json);
    json.text
}

/// JSON text being written.
#[derive(Debug)]
pub struct Json {
    text: String,
    /// Nothing has been written into the innermost list or object yet.
    first: bool,
}

impl Json {
    pub(super) fn begin_object(&mut self) {
        self.text.push('{');
        self.first = true;
    }

    pub(super) fn end_object(&mut self) {
        self.text.push('}');
        self.first = false;
    }

    /// Writes a field unless it may be omitted. Converts its name from `snake_case` to `camelCase`.
    pub(super) fn field(&mut self, name: &str, value: &dyn Encode) {
        if !value.omit() {
            self.always(name, value);
        }
    }

    pub(super) fn always(&mut self, name: &str, value: &dyn Encode) {
        self.comma();
        self.text.push('"');
        let mut upper = false;
        for c in name.chars() {
            match c {
                '_' => upper = true,
                c if std::mem::take(&mut upper) => self.text.push(c.to_ascii_uppercase()),
                c => self.text.push(c),
            }
        }
        self.text.push_str("\":");
        value.write(self);
    }

    fn comma(&mut self) {
        if !std::mem::replace(&mut self.first, false) {
            self.text.push(',');
        }
    }

    pub(super) fn string(&mut self, text: &str) {
        self.text.push('"');
        for c in text.chars() {
            match c {
                '"' => self.text.push_str("\\\""),
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                '\r' => self.text.push_str("\\r"),
                '\t' => self.text.push_str("\\t"),
                '\u{8}' => self.text.push_str("\\b"),
                '\u{c}' => self.text.push_str("\\f"),
                '\0'..'\u{20}' => drop(write!(self.text, "\\u{:04x}", u32::from(c))),
                c => self.text.push(c),
            }
        }
        self.text.push('"');
    }

    pub(super) fn list<T>(&mut self, values: impl Iterator<Item = T>, write: impl Fn(T, &mut Self)) {
        self.text.push('[');
        self.first = true;
        for value in values {
            self.comma();
            write(value, self);
        }
        self.text.push(']');
        self.first = false;
    }

    /// Writes a value whose `Display` is valid JSON.
    pub(super) fn raw(&mut self, json: impl fmt::Display) {
        let _ = write!(self.text, "{json}");
    }
}

impl Encode for Value {
    fn write(&self, json: &mut Json) {
        json.raw(self);
    }
}

impl Encode for bool {
    fn write(&self, json: &mut Json) {
        json.raw(self);
    }

    fn omit(&self) -> bool {
        !*self
    }
}

impl Encode for i32 {
    fn write(&self, json: &mut Json) {
        json.raw(self);
    }

    fn omit(&self) -> bool {
        *self == 0
    }
}

impl Encode for i64 {
    fn write(&self, json: &mut Json) {
        json.raw(self);
    }

    fn omit(&self) -> bool {
        *self == 0
    }
}

impl Encode for String {
    fn write(&self, json: &mut Json) {
        json.string(self);
    }

    fn omit(&self) -> bool {
        self.is_empty()
    }
}

impl Encode for &str {
    fn write(&self, json: &mut Json) {
        json.string(self);
    }

    fn omit(&self) -> bool {
        self.is_empty()
    }
}

impl Encode for Cow<'static, str> {
    fn write(&self, json: &mut Json) {
        json.string(self);
    }

    fn omit(&self) -> bool {
        self.is_empty()
    }
}

impl<T: Encode> Encode for Box<T> {
    fn write(&self, json: &mut Json) {
        T::write(self, json);
    }
}

impl<T: Encode> Encode for Option<T> {
    fn write(&self, json: &mut Json) {
        match self {
            Some(value) => value.write(json),
            None => T::write_none(json),
        }
    }

    fn omit(&self) -> bool {
        self.is_none()
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn write(&self, json: &mut Json) {
        json.list(self.iter(), |value, json| value.write(json));
    }

    fn omit(&self) -> bool {
        self.is_empty()
    }
}

impl<V: Encode> Encode for super::Map<V> {
    fn write(&self, json: &mut Json) {
        json.begin_object();
        for (key, value) in self.iter() {
            json.comma();
            json.string(key);
            json.text.push(':');
            value.write(json);
        }
        json.end_object();
    }

    fn omit(&self) -> bool {
        self.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::types::api::{ContainerPort, Map};

    #[test]
    fn fields_keep_their_order_and_empty_ones_are_omitted() {
        let ports = vec![
            ContainerPort { name: "http".to_owned(), container_port: 80, ..ContainerPort::default() },
            ContainerPort { host_port: 1, host_ip: "127.0.0.1".to_owned(), ..ContainerPort::default() },
        ];
        assert_eq!(
            encode_text(&ports),
            r#"[{"name":"http","containerPort":80,"protocol":"TCP"},{"hostPort":1,"protocol":"TCP","hostIP":"127.0.0.1"}]"#
        );
        assert_eq!(encode_text(&Vec::<ContainerPort>::new()), "[]");
    }

    #[test]
    fn any_string_round_trips() {
        let text: String = (0..0x300).filter_map(char::from_u32).chain(['\u{2028}', '😀']).collect();
        let map: Map<String> = [(text.as_str(), text.clone()), ("a_b", String::new())].into_iter().collect();
        assert_eq!(encode(&map), json!({text.as_str(): text, "a_b": ""}));
    }
}
