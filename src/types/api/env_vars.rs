//! The environment variables of a container, in one piece. Pure.
//!
//! A pod may have a hundred thousand of them with a name of one letter: as objects each would take 90 bytes.

use std::fmt;

use super::container::{EnvVar, ValueFrom};
use super::decode::{Decode, DecodeContext, DecodeError, Input};
use super::encode::{Encode, Json};
use super::texts::{Texts, TextsBuilder};

/// Variables in the order of the spec; names may occur twice. One pointer, because most containers have none.
#[derive(Clone, Default, PartialEq)]
pub struct EnvVars(Option<Box<Variables>>);

#[derive(Clone, Default, PartialEq)]
struct Variables {
    /// The name and the value of each.
    texts: Texts,
    /// The sources of those that have one, with their indexes.
    sources: Box<[(usize, ValueFrom)]>,
}

/// One variable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EnvVarRef<'a> {
    pub name: &'a str,
    pub value: &'a str,
    pub value_from: Option<&'a ValueFrom>,
}

impl EnvVars {
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub fn iter(&self) -> impl Iterator<Item = EnvVarRef<'_>> {
        self.0.iter().flat_map(|variables| {
            let (mut texts, mut sources) = (variables.texts.iter(), variables.sources.iter().peekable());
            let pairs = std::iter::from_fn(move || Some((texts.next()?, texts.next()?)));
            pairs.enumerate().map(move |(index, (name, value))| {
                let value_from = sources.next_if(|(of, _)| *of == index).map(|(_, source)| source);
                EnvVarRef { name, value, value_from }
            })
        })
    }

    /// Keeps the variables that `keep` accepts.
    pub fn retain(&mut self, keep: impl Fn(EnvVarRef<'_>) -> bool) {
        let kept = self.iter().filter(|variable| keep(*variable)).map(|variable| EnvVar {
            name: variable.name.to_owned(),
            value: variable.value.to_owned(),
            value_from: variable.value_from.cloned().map(Box::new),
        });
        *self = kept.collect();
    }

    /// Removes the sources that `keep` does not accept; their variables stay.
    pub fn retain_sources(&mut self, keep: impl Fn(&ValueFrom) -> bool) {
        if let Some(variables) = &mut self.0 {
            let sources = std::mem::take(&mut variables.sources).into_iter();
            variables.sources = sources.filter(|(_, source)| keep(source)).collect();
        }
    }

    /// The sources, to apply defaults to them.
    pub fn sources_mut(&mut self) -> impl Iterator<Item = &mut ValueFrom> {
        self.0.iter_mut().flat_map(|variables| variables.sources.iter_mut()).map(|(_, source)| source)
    }
}

/// Collects variables.
#[derive(Default)]
struct EnvVarsBuilder {
    texts: TextsBuilder,
    sources: Vec<(usize, ValueFrom)>,
}

impl EnvVarsBuilder {
    fn push(&mut self, index: usize, variable: EnvVar) {
        self.texts.push(&variable.name);
        self.texts.push(&variable.value);
        self.sources.extend(variable.value_from.map(|source| (index, *source)));
    }

    fn build(self) -> EnvVars {
        let (texts, sources) = (self.texts.build(), self.sources.into());
        EnvVars((!texts.is_empty()).then(|| Box::new(Variables { texts, sources })))
    }
}

impl FromIterator<EnvVar> for EnvVars {
    fn from_iter<I: IntoIterator<Item = EnvVar>>(variables: I) -> Self {
        let mut all = EnvVarsBuilder::default();
        variables.into_iter().enumerate().for_each(|(index, variable)| all.push(index, variable));
        all.build()
    }
}

impl fmt::Debug for EnvVars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Decode for EnvVars {
    fn decode(input: Input<'_>, context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        let mut variables = EnvVarsBuilder::default();
        input.each_decoded(context, &mut |index, variable| variables.push(index, variable))?;
        Ok(variables.build())
    }
}

impl Encode for EnvVars {
    fn write(&self, json: &mut Json) {
        json.list(self.iter(), |variable, json| {
            json.begin_object();
            json.always("name", &variable.name);
            json.field("value", &variable.value);
            if let Some(source) = variable.value_from {
                json.always("valueFrom", source);
            }
            json.end_object();
        });
    }

    fn omit(&self) -> bool {
        self.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{EnvVarSource, decode, encode};
    use super::*;

    fn variables() -> Value {
        json!([
            {"name": "A", "value": "\u{e9}"},
            {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "A"},
            {"name": "C", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        ])
    }

    #[test]
    fn variables_are_those_of_the_list() {
        let decoded = decode::<EnvVars>(variables()).unwrap().value;
        assert_eq!(encode(&decoded), variables());
        let names: Vec<&str> = decoded.iter().map(|variable| variable.name).collect();
        assert_eq!(names, ["A", "B", "A", "C"]);
        let with_source: Vec<bool> = decoded.iter().map(|variable| variable.value_from.is_some()).collect();
        assert_eq!(with_source, [false, true, false, true]);
        let one_by_one: Vec<EnvVar> = decode(variables()).unwrap().value;
        assert_eq!(decoded, one_by_one.into_iter().collect());
        assert!(EnvVars::default().omit() && !decoded.omit());
    }

    #[test]
    fn kept_variables_keep_their_sources() {
        let mut kept = decode::<EnvVars>(variables()).unwrap().value;
        kept.retain(|variable| variable.name != "A");
        let rest = json!([variables()[1], variables()[3]]);
        assert_eq!(encode(&kept), rest);
        kept.retain_sources(|from| matches!(from.source, EnvVarSource::Field(_)));
        assert_eq!(encode(&kept), json!([variables()[1], {"name": "C"}]));
        kept.retain(|_| false);
        assert_eq!(kept, EnvVars::default());
    }

    #[test]
    fn wrong_variable_is_named_by_its_index() {
        let error = decode::<EnvVars>(json!([{"name": "A"}, {"name": 1}])).unwrap_err();
        assert_eq!(error.path(), "[1].name");
    }
}
