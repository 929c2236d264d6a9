//! An API object as the text that the API server sent. Pure.

use serde_json::Value;
use serde_json::value::RawValue;

use super::decode::{Decode, DecodeError, Decoded, Input, decode_input, each_element_text, each_entry_text};

/// A JSON object as text: as a [`Value`] it would take up to twenty times the memory.
#[derive(Clone, Debug)]
pub struct ObjectText(Box<RawValue>);

/// Compared by their texts.
impl PartialEq for ObjectText {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl ObjectText {
    /// Checks that the text is JSON.
    pub fn parse(text: Vec<u8>) -> Result<Self, DecodeError> {
        let text = String::from_utf8(text).map_err(|error| DecodeError::new(error.utf8_error()))?;
        RawValue::from_string(text).map(Self).map_err(DecodeError::new)
    }

    pub fn of(value: &Value) -> Self {
        Self(RawValue::from_string(value.to_string()).unwrap_or_default())
    }

    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    pub fn is_object(&self) -> bool {
        self.as_str().starts_with('{')
    }

    pub fn into_bytes(self) -> Vec<u8> {
        Box::<str>::from(self.0).into_boxed_bytes().into_vec()
    }

    /// Decodes it as a `T`. Unknown fields are collected and cause no error.
    pub fn decode<T: Decode>(&self) -> Result<Decoded<T>, DecodeError> {
        decode_input(Input::of(&self.0)?)
    }

    pub fn value(&self) -> Result<Value, DecodeError> {
        serde_json::from_str(self.as_str()).map_err(DecodeError::new)
    }

    /// The text of these keys of the object; the last, if a key occurs twice.
    pub fn parts<const N: usize>(&self, keys: [&str; N]) -> Result<[Option<Self>; N], DecodeError> {
        let mut parts = [const { None }; N];
        each_entry_text(&self.0, &mut |key, value| {
            if let Some((_, part)) = keys.iter().zip(&mut parts).find(|(wanted, _)| **wanted == key) {
                *part = Some(Self(value.to_owned()));
            }
            Ok(())
        })?;
        Ok(parts)
    }

    /// Strings of the object's metadata; empty if they are absent.
    pub fn metadata<const N: usize>(&self, keys: [&str; N]) -> [String; N] {
        let mut texts = [const { String::new() }; N];
        // What is malformed has no such strings.
        let _ = each_entry_text(&self.0, &mut |key, metadata| {
            if key != "metadata" {
                return Ok(());
            }
            each_entry_text(metadata, &mut |key, value| {
                if let Some((_, text)) = keys.iter().zip(&mut texts).find(|(wanted, _)| **wanted == key) {
                    *text = serde_json::from_str(value.get()).unwrap_or_default();
                }
                Ok(())
            })
        });
        texts
    }

    /// The elements of a list.
    pub fn elements(&self) -> Result<Vec<Self>, DecodeError> {
        let mut elements = Vec::new();
        each_element_text(&self.0, &mut |element| {
            elements.push(Self(element.to_owned()));
            Ok(())
        })?;
        Ok(elements)
    }

    /// A list of these objects.
    pub fn list<'a>(objects: impl Iterator<Item = &'a Self>) -> Self {
        let mut text = String::from("[");
        for (index, object) in objects.enumerate() {
            if index > 0 {
                text.push(',');
            }
            text.push_str(object.as_str());
        }
        text.push(']');
        Self(RawValue::from_string(text).unwrap_or_default())
    }

    /// Without the fields at these paths, such as `metadata.managedFields`. A malformed object stays as it is.
    #[must_use]
    pub fn without(&self, paths: &[&str]) -> Self {
        let mut text = String::with_capacity(self.as_str().len());
        match write_without(&mut text, &self.0, paths) {
            Ok(()) => RawValue::from_string(text).map_or_else(|_| self.clone(), Self),
            Err(_) => self.clone(),
        }
    }
}

fn write_without(text: &mut String, object: &RawValue, paths: &[&str]) -> Result<(), DecodeError> {
    if !object.get().starts_with('{') {
        text.push_str(object.get());
        return Ok(());
    }
    text.push('{');
    let mut is_first = true;
    each_entry_text(object, &mut |key, value| {
        if paths.contains(&key) {
            return Ok(());
        }
        if !std::mem::take(&mut is_first) {
            text.push(',');
        }
        text.push_str(&serde_json::to_string(key).map_err(DecodeError::new)?);
        text.push(':');
        let inner: Vec<&str> = paths.iter().filter_map(|path| path.strip_prefix(key)?.strip_prefix('.')).collect();
        if inner.is_empty() {
            text.push_str(value.get());
            return Ok(());
        }
        write_without(text, value, &inner)
    })?;
    text.push('}');
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::types::api::{Pod, decode};

    fn large_pod() -> Value {
        let variables: Vec<Value> =
            (0..1000).map(|number| json!({"name": format!("V{number}"), "value": "\u{e9}\"x"})).collect();
        let arguments: Vec<String> = (0..3000).map(|number| number.to_string()).collect();
        let annotations: serde_json::Map<String, Value> =
            (0..1000).map(|number| (format!("a.b/{number}"), json!("t"))).collect();
        json!({
            "metadata": {"namespace": "ns", "name": "n", "annotations": annotations, "managedFields": [{"manager": "m"}]},
            "spec": {
                "containers": [{"name": "c", "image": "i", "env": variables, "args": arguments, "odd": 1}],
                "topologySpreadConstraints": vec![json!({"topologyKey": "zone"}); 500],
                "nodeSelector": null,
            },
            "status": {"phase": "Running"},
        })
    }

    #[test]
    fn large_text_decodes_as_its_value_does() {
        let value = large_pod();
        let (text, parsed) = (ObjectText::of(&value).decode::<Pod>().unwrap(), decode::<Pod>(value).unwrap());
        assert_eq!(text.value, parsed.value);
        assert_eq!(text.unknown, parsed.unknown);
        assert_eq!(text.unknown, ["spec.containers[0].odd"]);
    }

    #[test]
    fn errors_in_a_large_text_have_the_path_and_kind_of_the_value() {
        for (path, wrong) in [
            ("/spec/containers/0/env/700/name", json!(1)),
            ("/spec/containers/0/env", json!("x")),
            ("/spec/containers/0/args/2999", json!({})),
            ("/spec/containers", json!({"name": "x".repeat(5000), "a": 1})),
            ("/metadata/annotations", json!(vec!["x"; 3000])),
        ] {
            let mut value = large_pod();
            *value.pointer_mut(path).unwrap() = wrong;
            let text = ObjectText::of(&value).decode::<Pod>().unwrap_err();
            assert_eq!(text, decode::<Pod>(value).unwrap_err(), "{path}");
        }
    }

    #[test]
    fn malformed_text_of_a_part_is_an_error_at_the_path_of_its_list() {
        let text = large_pod().to_string().replace("\"name\":\"V700\"", r#""name":"\ud800""#);
        let error = ObjectText::parse(text.into_bytes()).unwrap().decode::<Pod>().unwrap_err();
        assert_eq!(error.path(), "spec.containers[0].env");
    }

    #[test]
    fn fields_are_left_out() {
        let object = json!({"metadata": {"name": "n", "managedFields": [1]}, "status": {}, "data": {"status": "x", "a\"b": "y"}});
        let kept = ObjectText::of(&object).without(&["metadata.managedFields", "status", "none.there"]);
        assert_eq!(kept.value().unwrap(), json!({"metadata": {"name": "n"}, "data": {"status": "x", "a\"b": "y"}}));
        assert_eq!(
            ObjectText::of(&json!({"metadata": null})).without(&["metadata.x"]).as_str(),
            r#"{"metadata":null}"#
        );
        assert_eq!(ObjectText::of(&json!([1])).without(&["metadata"]).as_str(), "[1]");
    }

    #[test]
    fn names_are_read_from_the_metadata_alone() {
        let object = json!({"data": {"name": "no"}, "metadata": {"uid": "u", "name": "n\u{e9}", "labels": {"uid": "x"}}, "name": 1});
        let [name, uid, namespace] = ObjectText::of(&object).metadata(["name", "uid", "namespace"]);
        assert_eq!((name.as_str(), uid.as_str(), namespace.as_str()), ("n\u{e9}", "u", ""));
        assert_eq!(ObjectText::of(&json!({"metadata": {"name": 1}})).metadata(["name"]), [""]);
        assert_eq!(ObjectText::of(&json!("x")).metadata(["name"]), [""]);
    }

    #[test]
    fn lists_and_parts_are_texts() {
        let list = ObjectText::of(&json!({"kind": "List", "items": [{"a": 1}, {"b": 2}]}));
        let [items, none] = list.parts(["items", "none"]).unwrap();
        let items = items.unwrap().elements().unwrap();
        assert_eq!((items.len(), none), (2, None));
        assert_eq!(ObjectText::list(items.iter()).as_str(), r#"[{"a":1},{"b":2}]"#);
        assert!(list.elements().is_err() && ObjectText::parse(b"{\"a\":1}x".to_vec()).is_err());
    }
}
