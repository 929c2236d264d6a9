//! Lists every field of the API types by walking the types. For tests.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::{
    Bytes, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, Dropped, EnvVar,
    EnvVars, IntOrString, Map, NodeSelectorTerm, NodeSelectorTerms, PodUid, Quantity, Reason, StorageMedium, TextKeys,
    TextObjects, Texts, Time, Unread, UnreadList,
};

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Any JSON value.
    Any,
    Bool,
    Int32,
    Int64,
    IntOrText,
    List,
    /// An object with arbitrary keys.
    Map,
    Object,
    Quantity,
    Text,
    Time,
    Words(&'static [&'static str]),
}

/// One step of the path to a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    /// The first element of a list.
    First,
}

#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) path: Vec<Step>,
    pub(crate) kind: Kind,
}

impl Field {
    /// `object` with `value` in this field. Missing parents are created, and a missing list with `element`.
    pub(crate) fn put(&self, mut object: Value, value: Value, element: &Value) -> Value {
        let mut at = &mut object;
        for step in &self.path {
            at = match step {
                Step::Key(key) => {
                    if !at.is_object() {
                        *at = json!({});
                    }
                    at.as_object_mut().unwrap().entry(key.clone()).or_insert(Value::Null)
                }
                Step::First => {
                    if !at.is_array() {
                        *at = json!([element]);
                    }
                    &mut at.as_array_mut().unwrap()[0]
                }
            };
        }
        *at = value;
        object
    }
}

/// A type whose fields can be listed.
pub(crate) trait KnownFields {
    fn visit(fields: &mut Fields);
}

/// The fields found so far, and the path of the walk.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    path: Vec<Step>,
    fields: Vec<Field>,
}

/// All fields of `T`, starting with the object itself.
pub(crate) fn fields_of<T: KnownFields>() -> Vec<Field> {
    let mut fields = Fields::default();
    T::visit(&mut fields);
    fields.fields
}

impl Fields {
    pub(crate) fn note(&mut self, kind: Kind) {
        self.fields.push(Field { path: self.path.clone(), kind });
    }

    /// `name` is the key, or a field name in snake_case.
    pub(crate) fn under(&mut self, name: &str, visit: impl FnOnce(&mut Self)) {
        self.step(Step::Key(camel_case(name)), visit);
    }

    fn step(&mut self, step: Step, visit: impl FnOnce(&mut Self)) {
        self.path.push(step);
        visit(self);
        self.path.pop();
    }
}

impl Field {
    /// The path as errors show it: `spec.containers[0].name`.
    pub(crate) fn written(&self) -> String {
        let mut path = String::new();
        for step in &self.path {
            match step {
                Step::Key(key) if path.is_empty() => path.push_str(key),
                Step::Key(key) => path.extend([".", key]),
                Step::First => path.push_str("[0]"),
            }
        }
        path
    }
}

fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let mut key = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        key.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        key.extend(letters);
    }
    key
}

macro_rules! plain {
    ($($type:ty = $kind:ident;)*) => { $(
        impl KnownFields for $type {
            fn visit(fields: &mut Fields) {
                fields.note(Kind::$kind);
            }
        }
    )* };
}

plain! {
    bool = Bool;
    i32 = Int32;
    i64 = Int64;
    String = Text;
    Bytes = Text;
    Cow<'static, str> = Text;
    Dropped = Any;
    IntOrString = IntOrText;
    PodUid = Text;
    Quantity = Quantity;
    Reason = Text;
    StorageMedium = Text;
    Time = Time;
    Unread = Any;
    Value = Any;
}

impl<T: KnownFields> KnownFields for Box<T> {
    fn visit(fields: &mut Fields) {
        T::visit(fields);
    }
}

impl<T: KnownFields> KnownFields for Option<T> {
    fn visit(fields: &mut Fields) {
        T::visit(fields);
    }
}

impl<T: KnownFields> KnownFields for Vec<T> {
    fn visit(fields: &mut Fields) {
        fields.note(Kind::List);
        fields.step(Step::First, T::visit);
    }
}

impl KnownFields for Texts {
    fn visit(fields: &mut Fields) {
        Vec::<String>::visit(fields);
    }
}

impl<K: TextKeys> KnownFields for TextObjects<K> {
    fn visit(fields: &mut Fields) {
        fields.note(Kind::List);
        fields.step(Step::First, |fields| {
            fields.note(Kind::Object);
            K::KEYS.iter().for_each(|key| fields.under(key, String::visit));
        });
    }
}

impl KnownFields for NodeSelectorTerms {
    fn visit(fields: &mut Fields) {
        Vec::<NodeSelectorTerm>::visit(fields);
    }
}

impl KnownFields for EnvVars {
    fn visit(fields: &mut Fields) {
        Vec::<EnvVar>::visit(fields);
    }
}

impl KnownFields for UnreadList {
    fn visit(fields: &mut Fields) {
        Vec::<Value>::visit(fields);
    }
}

impl<T: KnownFields> KnownFields for Map<T> {
    fn visit(fields: &mut Fields) {
        fields.note(Kind::Map);
        fields.under("key", T::visit);
    }
}

impl KnownFields for ContainerState {
    fn visit(fields: &mut Fields) {
        fields.note(Kind::Object);
        fields.under("waiting", ContainerStateWaiting::visit);
        fields.under("running", ContainerStateRunning::visit);
        fields.under("terminated", ContainerStateTerminated::visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::Pod;

    #[test]
    fn walk_reaches_the_last_field_of_a_pod() {
        let fields = fields_of::<Pod>();
        let kind = |path: &str| fields.iter().find(|field| field.written() == path).map(|field| field.kind);
        assert_eq!(kind("spec.containers"), Some(Kind::List));
        assert_eq!(kind("spec.setHostnameAsFQDN"), Some(Kind::Bool));
        assert_eq!(kind("spec.containers[0].livenessProbe.httpGet.port"), Some(Kind::IntOrText));
        assert_eq!(kind("spec.volumes[0].projected.sources[0].configMap.items[0].mode"), Some(Kind::Int32));
        assert_eq!(kind("metadata.labels.key"), Some(Kind::Text));
        assert_eq!(kind("spec.restartPolicy"), Some(Kind::Words(&["Always", "Never", "OnFailure"])));
        assert!(fields.len() > 500, "{}", fields.len());
    }
}
