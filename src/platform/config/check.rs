//! Validates a configuration document against the schema. Pure.

use core::net::IpAddr;
use std::fmt;

use serde_json::{Map, Value};

use super::cipher_suite::CipherSuite;
use super::did_you_mean::nearest;
use super::duration;
use super::schema::{Field, FieldSupport, KUBELET_CONFIGURATION, Kind};
use crate::types::api::{DeviceAttribute, Quantity, SysctlNamespace, dotted_sysctl};
use crate::types::cpu_set::CpuSet;
use crate::types::decimal::parse_decimal;

/// An invalid value and its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Such as `logging.verbosity` or `clusterDNS[1]`; empty for the document itself.
    pub(crate) path: String,
    pub(crate) fault: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() { f.write_str(&self.fault) } else { write!(f, "{}: {}", self.path, self.fault) }
    }
}

/// A fault of settings that exclude each other.
pub(super) fn conflict(path: &str, fault: String) -> Problem {
    Problem { path: path.to_owned(), fault }
}

/// Checks that `document` is a configuration. Fails with the first problem.
pub(super) fn check_document(document: &Value) -> Result<(), Problem> {
    check_document_of(document, "KubeletConfiguration", &["kubelet.config.k8s.io/v1beta1"], KUBELET_CONFIGURATION)
}

/// Checks that `document` is of this kind, in one of these versions, and has only these fields.
pub(super) fn check_document_of(
    document: &Value,
    kind: &str,
    versions: &[&str],
    fields: &[Field],
) -> Result<(), Problem> {
    let mut walk = Walk::default();
    let root = walk.mapping(document)?;
    for (name, wanted) in [("apiVersion", versions), ("kind", &[kind])] {
        match root.get(name) {
            Some(Value::String(value)) if wanted.contains(&value.as_str()) => {}
            Some(other) => return Err(walk.inside(name, |walk| walk.expected(&either(wanted), other))),
            None => return Err(walk.inside(name, |walk| walk.fault(format!("required: {}", either(wanted))))),
        }
    }
    walk.object(fields, root)
}

/// Checks that `document` is empty or a mapping of these fields.
pub(super) fn check_fields(document: &Value, fields: &[Field]) -> Result<(), Problem> {
    let mut walk = Walk::default();
    if document.is_null() { Ok(()) } else { walk.object(fields, walk.mapping(document)?) }
}

/// Fields that are set but have no effect, by their paths.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ineffective {
    pub(super) not_yet: Vec<String>,
    pub(super) moot: Vec<String>,
}

impl Ineffective {
    /// Notes the field if its value asks for something.
    pub(super) fn note(&mut self, field: &Field, value: &Value, name: String) {
        match field.standing {
            FieldSupport::NotYet if !asks_nothing(&field.kind, value) => self.not_yet.push(name),
            FieldSupport::Moot if !asks_nothing(&field.kind, value) => self.moot.push(name),
            FieldSupport::OnlyTrue if *value == Value::Bool(false) => self.moot.push(name),
            FieldSupport::InForce
            | FieldSupport::NotYet
            | FieldSupport::Moot
            | FieldSupport::OnlyTrue
            | FieldSupport::Refused => {}
        }
    }

    pub(super) fn append(&mut self, more: &mut Self) {
        self.not_yet.append(&mut more.not_yet);
        self.moot.append(&mut more.moot);
    }

    /// The warnings, which name the fields.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        let warning =
            |text: &str, fields: &[String]| (!fields.is_empty()).then(|| format!("{text}: {}", fields.join(", ")));
        let not_yet = warning("not supported yet, without effect", &self.not_yet);
        not_yet.into_iter().chain(warning("without effect here", &self.moot))
    }
}

/// The fields of a checked document that have no effect.
pub(super) fn ineffective(fields: &Map<String, Value>) -> Ineffective {
    let mut walk = Walk::default();
    // The document is already checked.
    let _ = walk.object(KUBELET_CONFIGURATION, fields);
    walk.ineffective
}

/// Removes the fields of a document that the schema does not know. Returns their paths, each with the name that may have
/// been meant.
///
/// The kubelet decodes `v1beta1` strictly, and after an error once more without unknown fields.
pub(super) fn remove_unknown(document: &mut Value, fields: &[Field]) -> Vec<String> {
    let mut unknown = Vec::new();
    remove_unknown_below(document, fields, "", &mut unknown);
    unknown
}

fn remove_unknown_below(value: &mut Value, fields: &[Field], path: &str, unknown: &mut Vec<String>) {
    let Value::Object(values) = value else { return };
    values.retain(|name, value| {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let Some(field) = fields.iter().find(|field| field.name == name) else {
            unknown.push(format!("{path}: unknown field{}, ignored", hint(name, fields)));
            return false;
        };
        match (&field.kind, value) {
            (Kind::Object(fields), value) => remove_unknown_below(value, fields, &path, unknown),
            (Kind::List(Kind::Object(fields)), Value::Array(items)) => {
                for (index, item) in items.iter_mut().enumerate() {
                    remove_unknown_below(item, fields, &format!("{path}[{index}]"), unknown);
                }
            }
            _ => {}
        }
        true
    });
}

/// The name that may have been meant.
fn hint(name: &str, fields: &[Field]) -> String {
    let near = nearest(name, fields.iter().map(|field| field.name));
    near.map(|near| format!(" (did you mean {near}?)")).unwrap_or_default()
}

/// Checks `value` against `kind`. Returns the paths in it that have no effect.
pub(super) fn check_value(kind: &Kind, value: &Value) -> Result<Ineffective, Problem> {
    let mut walk = Walk::default();
    walk.value(kind, value)?;
    Ok(walk.ineffective)
}

/// The field at a dotted path.
pub(super) fn field(path: &str) -> Option<&'static Field> {
    let mut fields = KUBELET_CONFIGURATION;
    let mut names = path.split('.').peekable();
    loop {
        let name = names.next()?;
        let field = fields.iter().find(|field| field.name == name)?;
        match &field.kind {
            Kind::Object(inner) | Kind::Options(inner) if names.peek().is_some() => fields = inner,
            _ => return names.next().is_none().then_some(field),
        }
    }
}

#[derive(Default)]
struct Walk {
    path: String,
    ineffective: Ineffective,
}

impl Walk {
    fn object(&mut self, fields: &[Field], values: &Map<String, Value>) -> Result<(), Problem> {
        for (name, value) in values {
            let Some(field) = fields.iter().find(|field| field.name == name) else {
                let hint = hint(name, fields);
                return Err(self.inside(name, |walk| walk.fault(format!("unknown field{hint}"))));
            };
            self.inside(name, |walk| walk.field(field, value))?;
        }
        Ok(())
    }

    fn field(&mut self, field: &Field, value: &Value) -> Result<(), Problem> {
        if let Kind::Object(fields) | Kind::Options(fields) = &field.kind {
            return if value.is_null() { Ok(()) } else { self.object(fields, self.mapping(value)?) };
        }
        self.value(&field.kind, value)?;
        if field.standing == FieldSupport::Refused && !asks_nothing(&field.kind, value) {
            return Err(self.fault("not supported"));
        }
        self.ineffective.note(field, value, self.path.clone());
        Ok(())
    }

    fn value(&mut self, kind: &Kind, value: &Value) -> Result<(), Problem> {
        // A drop-in removes a value by null, and Go reads null as not set.
        if value.is_null() {
            return Ok(());
        }
        match kind {
            Kind::Object(fields) | Kind::Options(fields) => self.object(fields, self.mapping(value)?),
            Kind::List(kind) => {
                let Value::Array(items) = value else { return Err(self.expected("a list", value)) };
                for (index, item) in items.iter().enumerate() {
                    self.within(&format!("[{index}]"), |walk| walk.value(kind, item))?;
                }
                Ok(())
            }
            Kind::Map(kind) => {
                for (name, value) in self.mapping(value)? {
                    self.within(&format!("[{name}]"), |walk| walk.value(kind, value))?;
                }
                Ok(())
            }
            Kind::Keys(names, kind) => {
                for (name, value) in self.mapping(value)? {
                    if !names.contains(&name.as_str()) {
                        return Err(self.fault(format!("unknown name {name} (expected {})", either(names))));
                    }
                    self.within(&format!("[{name}]"), |walk| walk.value(kind, value))?;
                }
                Ok(())
            }
            _ if fits(kind, value) => Ok(()),
            _ => Err(self.expected(&wanted(kind), value)),
        }
    }

    fn mapping<'a>(&self, value: &'a Value) -> Result<&'a Map<String, Value>, Problem> {
        value.as_object().ok_or_else(|| self.expected("a mapping", value))
    }

    fn inside<T>(&mut self, name: &str, then: impl FnOnce(&mut Self) -> T) -> T {
        let dot = if self.path.is_empty() { "" } else { "." };
        self.within(&format!("{dot}{name}"), then)
    }

    fn within<T>(&mut self, step: &str, then: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        self.path.push_str(step);
        let result = then(self);
        self.path.truncate(length);
        result
    }

    fn expected(&self, wanted: &str, value: &Value) -> Problem {
        self.fault(format!("expected {wanted}, found {}", shown(value)))
    }

    fn fault(&self, fault: impl Into<String>) -> Problem {
        Problem { path: self.path.clone(), fault: fault.into() }
    }
}

/// Whether a scalar is one of `kind`.
fn fits(kind: &Kind, value: &Value) -> bool {
    match (kind, value) {
        (Kind::Bool, Value::Bool(_)) | (Kind::Text | Kind::Path, Value::String(_)) => true,
        (Kind::AbsolutePath, Value::String(text)) => text.is_empty() || is_normalized_path(text),
        (Kind::CipherSuite, Value::String(text)) => CipherSuite::of(text).is_some(),
        (Kind::Attribute, value) => DeviceAttribute::read(value).is_ok(),
        (Kind::BoolText, Value::String(text)) => go_bool(text).is_some(),
        (Kind::Cpus, Value::String(text)) => CpuSet::parse(text).is_some(),
        (Kind::Int(least, most), Value::Number(number)) => {
            number.as_i64().is_some_and(|number| (*least..=*most).contains(&number))
        }
        (Kind::Number(least, most), Value::Number(number)) => {
            number.as_f64().is_some_and(|number| (*least..=*most).contains(&number))
        }
        (Kind::LogDuration, Value::Number(number)) => number.is_u64(),
        (Kind::Quantity | Kind::Threshold, Value::Number(number)) => is_quantity(&number.to_string()),
        (Kind::Word(words), Value::String(text)) => text.is_empty() || words.contains(&text.as_str()),
        (Kind::Endpoint, Value::String(text)) => text.is_empty() || socket_path(text).is_some(),
        (Kind::Ip, Value::String(text)) => text.is_empty() || text.parse::<IpAddr>().is_ok(),
        (Kind::Sysctl, Value::String(text)) => is_sysctl(text),
        (Kind::Duration(least, most), Value::String(text)) => duration::parse(text).is_some_and(|duration| {
            !duration.negative && (duration.size.is_zero() || (*least..=*most).contains(&duration.size))
        }),
        (Kind::AnyDuration, Value::String(text)) => duration::parse(text).is_some(),
        (Kind::LogDuration, Value::String(text)) => duration::parse(text).is_some_and(|duration| !duration.negative),
        (Kind::Quantity, Value::String(text)) => is_quantity(text),
        (Kind::AnyQuantity, Value::String(text)) => text.is_empty() || text.parse::<Quantity>().is_ok(),
        (Kind::AnyQuantity, Value::Number(number)) => number.to_string().parse::<Quantity>().is_ok(),
        (Kind::Percent, Value::String(text)) => is_percent(text),
        (Kind::Threshold, Value::String(text)) => is_percent(text) || is_quantity(text),
        _ => false,
    }
}

/// `a, b or c`.
fn either(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [word] => (*word).to_owned(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

/// The expected value, for error messages.
pub(super) fn wanted(kind: &Kind) -> String {
    match kind {
        Kind::Bool => "true or false".to_owned(),
        Kind::BoolText => "\"true\" or \"false\"".to_owned(),
        Kind::Cpus => "CPU numbers such as 0-1,4".to_owned(),
        Kind::Int(least, i64::MAX) => format!("a whole number from {least}"),
        Kind::Int(0, most) if *most == i64::from(i32::MAX) => "a whole number from 0".to_owned(),
        Kind::Int(least, most) => format!("a whole number from {least} to {most}"),
        Kind::Number(least, most) => format!("a number from {least} to {most}"),
        Kind::Text => "a string".to_owned(),
        Kind::Attribute => DeviceAttribute::FORM.to_owned(),
        Kind::Path => "a path".to_owned(),
        Kind::AbsolutePath => "an absolute, normalized path in ASCII such as /var/log/pods".to_owned(),
        Kind::CipherSuite => "a cipher suite of Go such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".to_owned(),
        Kind::Word(words) => {
            let words: Vec<&str> = words.iter().copied().filter(|word| !word.is_empty()).collect();
            either(&words)
        }
        Kind::Endpoint => "a socket as unix:///run/containerd/containerd.sock".to_owned(),
        Kind::Ip => "an IP address".to_owned(),
        Kind::Sysctl => "a namespaced sysctl such as net.core.somaxconn or kernel.msg*".to_owned(),
        Kind::Duration(least, _) if least.is_zero() => "a duration such as 1m30s".to_owned(),
        Kind::Duration(least, most) => format!("a duration from {} to {}", go(*least), go(*most)),
        Kind::AnyDuration | Kind::LogDuration => "a duration such as 1m30s".to_owned(),
        Kind::Quantity | Kind::AnyQuantity => "a quantity such as 10Mi".to_owned(),
        Kind::Threshold => "a quantity such as 10Mi or a percentage such as 10%".to_owned(),
        Kind::Percent => "a percentage such as 10%".to_owned(),
        Kind::List(_) => "a list".to_owned(),
        Kind::Map(_) | Kind::Keys(..) | Kind::Object(_) | Kind::Options(_) => "a mapping".to_owned(),
    }
}

fn go(size: std::time::Duration) -> duration::SignedDuration {
    duration::SignedDuration { negative: false, size }
}

/// A value as errors show it: short, and on one line.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(value) => value.to_string(),
        Value::String(text) if text.chars().count() > MAX_SHOWN_VALUE_CHARS => {
            format!("{:?}", text.chars().take(MAX_SHOWN_VALUE_CHARS).chain("...".chars()).collect::<String>())
        }
        Value::String(text) => format!("{text:?}"),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a mapping".to_owned(),
    }
}

/// How many characters of a wrong value an error repeats.
const MAX_SHOWN_VALUE_CHARS: usize = 60;

/// Whether a value equals the default behaviour, so that ignoring it needs no warning.
pub(super) fn asks_nothing(kind: &Kind, value: &Value) -> bool {
    match (kind, value) {
        (_, Value::Null | Value::Bool(false)) => true,
        (_, Value::Number(number)) => number.as_f64() == Some(0.0),
        (Kind::Word(words), Value::String(text)) => text.is_empty() || words.first() == Some(&text.as_str()),
        (Kind::Duration(..) | Kind::AnyDuration | Kind::LogDuration, Value::String(text)) => {
            duration::parse(text).is_some_and(|duration| duration.size.is_zero())
        }
        (Kind::BoolText, Value::String(text)) => go_bool(text) == Some(false),
        (_, Value::String(text)) => text.is_empty() || text == "0",
        (_, Value::Array(items)) => items.is_empty(),
        (_, Value::Object(fields)) => fields.is_empty(),
        (_, Value::Bool(true)) => false,
    }
}

/// The path of `unix:///path`. A bare absolute path is a deprecated form of the same.
pub(super) fn socket_path(endpoint: &str) -> Option<&str> {
    let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
    path.starts_with('/').then_some(path)
}

/// Absolute, as Go's `filepath.Clean` leaves it, and ASCII: `ValidateKubeletConfiguration` in
/// pkg/kubelet/apis/config/validation.
fn is_normalized_path(text: &str) -> bool {
    let mut parts = text.strip_prefix('/').unwrap_or_default().split('/');
    text == "/" || (text.is_ascii() && parts.all(|part| !["", ".", ".."].contains(&part)))
}

/// Pods may set only namespaced sysctls.
fn is_sysctl(text: &str) -> bool {
    let name = dotted_sysctl(text.strip_suffix('*').unwrap_or(text));
    !name.contains(['*', ' ']) && SysctlNamespace::of(&name).is_some()
}

/// Parses a boolean as Go's `strconv.ParseBool` does.
pub(super) fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "True" | "TRUE" => Some(true),
        "0" | "f" | "F" | "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

fn is_percent(text: &str) -> bool {
    let number = text.strip_suffix('%').and_then(parse_decimal);
    number.is_some_and(|number| (0.0..=100.0).contains(&number))
}

fn is_quantity(text: &str) -> bool {
    text.parse::<Quantity>().is_ok_and(|quantity| !quantity.is_negative())
}
