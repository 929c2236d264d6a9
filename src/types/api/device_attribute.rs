//! Attributes of devices, as ResourceSlices show them, and selectors of devices in annotations. Pure.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::{Value, json};

use super::yaml;
use crate::types::sorted::SortedMap;

/// Upstream's limits of an attribute's name and value, and of the number of attributes.
const MAX_ATTRIBUTE_NAME_BYTES: usize = 32;
pub const MAX_ATTRIBUTE_BYTES: usize = 64;
pub const MAX_ATTRIBUTES: usize = 32;
/// Limits of an annotation.
const MAX_SELECTORS_BYTES: usize = 16 << 10;
const MAX_ALTERNATIVES: usize = 64;

/// A `DeviceAttribute` of `resource.k8s.io/v1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceAttribute {
    Bool(bool),
    Int(i64),
    String(String),
    /// A semantic version.
    Version(String),
}

pub type DeviceAttributes = SortedMap<String, DeviceAttribute>;

impl DeviceAttribute {
    /// What [`Self::read`] reads.
    pub const FORM: &'static str = "a string of at most 64 bytes, a whole number, true, false, or {version: \"1.2.3\"}";

    /// From a scalar, or `version: 1.2.3`. The error says what is expected.
    pub fn read(value: &Value) -> Result<Self, &'static str> {
        let read = match value {
            Value::Bool(value) => Some(Self::Bool(*value)),
            Value::Number(number) => number.as_i64().map(Self::Int),
            Value::String(text) => (1..=MAX_ATTRIBUTE_BYTES).contains(&text.len()).then(|| Self::String(text.clone())),
            Value::Object(fields) if fields.len() == 1 => {
                let version = fields.get("version").and_then(Value::as_str).filter(|text| is_semantic_version(text));
                version.map(|text| Self::Version(text.to_owned()))
            }
            _ => None,
        };
        read.ok_or(Self::FORM)
    }

    /// As in a ResourceSlice.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Bool(value) => json!({"bool": value}),
            Self::Int(value) => json!({"int": value}),
            Self::String(text) => json!({"string": text}),
            Self::Version(text) => json!({"version": text}),
        }
    }

    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Bool(value) => value.to_string().into(),
            Self::Int(value) => value.to_string().into(),
            Self::String(text) | Self::Version(text) => text.into(),
        }
    }
}

/// Whether the text is a C identifier of at most 32 characters.
pub fn is_attribute_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.len() <= MAX_ATTRIBUTE_NAME_BYTES
        && name.bytes().next().is_some_and(|first| is_inner(first) && !first.is_ascii_digit())
        && name.bytes().all(is_inner)
}

fn is_semantic_version(text: &str) -> bool {
    let (rest, build) = text.split_once('+').map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (core, pre) = rest.split_once('-').map_or((rest, None), |(core, pre)| (core, Some(pre)));
    let is_number = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) && (part == "0" || !part.starts_with('0'))
    };
    let is_word =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let is_all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    text.len() <= MAX_ATTRIBUTE_BYTES
        && core.split('.').count() == 3
        && core.split('.').all(is_number)
        && pre.is_none_or(|pre| pre.split('.').all(|part| is_word(part) && (!is_all_digits(part) || is_number(part))))
        && build.is_none_or(|build| build.split('.').all(is_word))
}

/// Which devices a pod accepts: for each resource, conditions on attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceSelectors(SortedMap<String, SortedMap<String, Condition>>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    AnyOf(Vec<String>),
    /// All of them.
    Versions(Vec<VersionBound>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct VersionBound {
    accepted: &'static [Ordering],
    version: String,
}

const COMPARISONS: [(&str, &[Ordering]); 4] = [
    (">=", &[Ordering::Greater, Ordering::Equal]),
    ("<=", &[Ordering::Less, Ordering::Equal]),
    (">", &[Ordering::Greater]),
    ("<", &[Ordering::Less]),
];

impl DeviceSelectors {
    /// Parses the value of the annotation: YAML or JSON. The error says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_SELECTORS_BYTES {
            return Err(format!("longer than {MAX_SELECTORS_BYTES} bytes"));
        }
        let documents = yaml::parse(text.as_bytes()).map_err(|error| error.to_string())?;
        let mut documents = documents.into_iter();
        let value = match (documents.next(), documents.next()) {
            (Some(document), None) => document.strict().map_err(|error| error.to_string())?,
            _ => Value::Null,
        };
        let wanted = "expected resources with attributes, as {example.com/camera: {model: imx219}}";
        let resources = value.as_object().filter(|resources| !resources.is_empty()).ok_or(wanted)?;
        let mut selectors = SortedMap::new();
        for (resource, attributes) in resources {
            let attributes = attributes
                .as_object()
                .filter(|attributes| !attributes.is_empty())
                .ok_or_else(|| format!("{resource}: expected attributes, as {{model: imx219, firmware: \">=2.1\"}}"))?;
            let mut conditions = SortedMap::new();
            for (name, value) in attributes {
                if !is_attribute_name(name) {
                    return Err(format!("{resource}: {name:?} is not the name of an attribute"));
                }
                let condition = Condition::read(value).map_err(|why| format!("{resource}: {name}: {why}"))?;
                conditions.insert(name.clone(), condition);
            }
            selectors.insert(resource.clone(), conditions);
        }
        Ok(Self(selectors))
    }

    pub fn resources(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Whether a device of the resource fulfils all conditions. A device without an attribute fulfils none on it.
    pub fn accept(&self, resource: &str, attributes: &DeviceAttributes) -> bool {
        let Some(conditions) = self.0.get(resource) else { return true };
        let holds = |(name, condition): (&String, &Condition)| {
            attributes.get(name).is_some_and(|attribute| condition.holds(&attribute.text()))
        };
        conditions.iter().all(holds)
    }
}

impl Condition {
    fn read(value: &Value) -> Result<Self, String> {
        if let Some(alternatives) = value.as_array() {
            if !(1..=MAX_ALTERNATIVES).contains(&alternatives.len()) {
                return Err(format!("expected one to {MAX_ALTERNATIVES} values"));
            }
            let texts = alternatives.iter().map(|value| scalar(value).filter(|text| !is_comparison(text)));
            let texts: Option<Vec<String>> = texts.collect();
            return texts
                .map(Self::AnyOf)
                .ok_or_else(|| "expected strings, numbers or booleans in the list".to_owned());
        }
        let text = scalar(value).ok_or("expected a value, a list of values, or a version as \">=2.1\"")?;
        if !is_comparison(&text) {
            return Ok(Self::AnyOf(vec![text]));
        }
        let bounds = text.split_whitespace().map(VersionBound::read);
        let bounds: Option<Vec<VersionBound>> = bounds.collect();
        let wrong = || format!("expected versions as \">=2.1\" or \">=2.1 <3\", found {text:?}");
        bounds.map(Self::Versions).ok_or_else(wrong)
    }

    fn holds(&self, attribute: &str) -> bool {
        match self {
            Self::AnyOf(texts) => texts.iter().any(|text| text == attribute),
            Self::Versions(bounds) => {
                is_version(attribute)
                    && bounds.iter().all(|bound| bound.accepted.contains(&compare_versions(attribute, &bound.version)))
            }
        }
    }
}

impl VersionBound {
    fn read(text: &str) -> Option<Self> {
        let comparison = COMPARISONS.iter().find_map(|(sign, accepted)| Some((text.strip_prefix(sign)?, *accepted)));
        let (version, accepted) = comparison.filter(|(version, _)| is_version(version))?;
        Some(Self { accepted, version: version.to_owned() })
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::Bool(value) => Some(value.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) if (1..=MAX_ATTRIBUTE_BYTES).contains(&text.len()) => Some(text.clone()),
        _ => None,
    }
}

fn is_comparison(text: &str) -> bool {
    text.starts_with(['<', '>'])
}

/// Whether the text begins with a number, after an optional `v`.
fn is_version(text: &str) -> bool {
    text.strip_prefix('v').unwrap_or(text).starts_with(|first: char| first.is_ascii_digit())
}

/// Compares dotted numbers; missing ones are zero. A pre-release (`2.1-rc1`) precedes its version.
fn compare_versions(left: &str, right: &str) -> Ordering {
    let split = |text: &str| {
        let text = text.strip_prefix('v').unwrap_or(text);
        let text = text.split_once('+').map_or(text, |(text, _)| text);
        text.split_once('-').map_or((text.to_owned(), None), |(core, pre)| (core.to_owned(), Some(pre.to_owned())))
    };
    let ((left, left_pre), (right, right_pre)) = (split(left), split(right));
    compare_parts(&left, &right, "0").then_with(|| match (left_pre, right_pre) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(left), Some(right)) => compare_parts(&left, &right, ""),
    })
}

fn compare_parts(left: &str, right: &str, missing: &str) -> Ordering {
    let (mut left, mut right) = (left.split('.'), right.split('.'));
    loop {
        let (one, other) = match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (one, other) => (one.unwrap_or(missing), other.unwrap_or(missing)),
        };
        let order = match (one.parse::<u64>(), other.parse::<u64>()) {
            (Ok(one), Ok(other)) => one.cmp(&other),
            _ => one.cmp(other),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(pairs: &[(&str, &str)]) -> DeviceAttributes {
        let attribute = |text: &str| DeviceAttribute::String(text.to_owned());
        pairs.iter().map(|(name, text)| ((*name).to_owned(), attribute(text))).collect()
    }

    #[test]
    fn attributes_have_upstreams_types_and_limits() {
        let read = |value: Value| DeviceAttribute::read(&value).map(|attribute| attribute.to_json()).ok();
        assert_eq!(read(json!("imx219")), Some(json!({"string": "imx219"})));
        assert_eq!(read(json!(30)), Some(json!({"int": 30})));
        assert_eq!(read(json!(true)), Some(json!({"bool": true})));
        assert_eq!(read(json!({"version": "2.1.0-rc.1+b5"})), Some(json!({"version": "2.1.0-rc.1+b5"})));
        for wrong in [
            json!(""),
            json!("x".repeat(65)),
            json!(2.5),
            json!(null),
            json!([]),
            json!({"version": "2.1"}),
            json!({"version": "02.1.0"}),
            json!({"version": "2.1.0", "string": "x"}),
        ] {
            assert_eq!(read(wrong.clone()), None, "{wrong}");
        }
        assert!(is_attribute_name("vendorId") && is_attribute_name("_x9"));
        assert!(!is_attribute_name("") && !is_attribute_name("9x") && !is_attribute_name("a-b"));
        assert!(!is_attribute_name(&"a".repeat(33)));
    }

    #[test]
    fn device_fulfils_all_conditions_of_its_resource() {
        let text = "a.b/camera: {model: [imx219, imx477], bus: csi, firmware: \">=2.1 <3\", port: 1, hot: true}";
        let selectors = DeviceSelectors::parse(text).unwrap();
        let all = [("model", "imx219"), ("bus", "csi"), ("firmware", "2.1.3"), ("port", "1"), ("hot", "true")];
        let with = |name: &str, text: &str| {
            let mut changed = attributes(&all);
            changed.insert(name.to_owned(), DeviceAttribute::String(text.to_owned()));
            selectors.accept("a.b/camera", &changed)
        };
        assert!(selectors.accept("a.b/camera", &attributes(&all)));
        assert!(with("model", "imx477") && !with("model", "ov5647") && !with("bus", "usb") && !with("hot", "false"));
        assert!(!with("firmware", "2.0.9") && !with("firmware", "3") && !with("firmware", "unknown"));
        assert!(with("firmware", "v2.10") && !with("firmware", "2.1-rc1"));
        assert!(!selectors.accept("a.b/camera", &attributes(&all[1..])), "no model");
        assert!(selectors.accept("a.b/other", &attributes(&[])));
        assert_eq!(selectors.resources().collect::<Vec<_>>(), ["a.b/camera"]);
        let json = r#"{"a.b/camera": {"model": "imx219", "firmware": ">=2.1"}}"#;
        assert!(DeviceSelectors::parse(json).unwrap().accept("a.b/camera", &attributes(&all)));
    }

    #[test]
    fn wrong_selectors_have_one_clear_error() {
        let wanted = "expected resources with attributes, as {example.com/camera: {model: imx219}}";
        for (text, error) in [
            ("", wanted),
            ("camera", wanted),
            ("{}", wanted),
            ("a.b/c: imx219", "a.b/c: expected attributes, as {model: imx219, firmware: \">=2.1\"}"),
            ("a.b/c: {}", "a.b/c: expected attributes, as {model: imx219, firmware: \">=2.1\"}"),
            ("a.b/c: {my-model: x}", "a.b/c: \"my-model\" is not the name of an attribute"),
            ("a.b/c: {model: []}", "a.b/c: model: expected one to 64 values"),
            ("a.b/c: {model: [x, {}]}", "a.b/c: model: expected strings, numbers or booleans in the list"),
            ("a.b/c: {model: {}}", "a.b/c: model: expected a value, a list of values, or a version as \">=2.1\""),
            (
                "a.b/c: {firmware: '>=x'}",
                "a.b/c: firmware: expected versions as \">=2.1\" or \">=2.1 <3\", found \">=x\"",
            ),
        ] {
            assert_eq!(DeviceSelectors::parse(text).unwrap_err(), error, "{text}");
        }
        assert!(DeviceSelectors::parse("a: {b: c, b: d}").is_err() && DeviceSelectors::parse("{").is_err());
        assert!(DeviceSelectors::parse(&"x".repeat(20_000)).unwrap_err().starts_with("longer than"));
    }
}
