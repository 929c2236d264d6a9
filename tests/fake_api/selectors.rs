//! Field and label selectors.

use serde_json::Value;

use super::api_error::ApiError;

/// Selects objects of a collection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    fields: Vec<Term>,
    labels: Vec<Term>,
}

/// One requirement: equal to a value, or not.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    path: String,
    equal: bool,
    /// `None`: the key only has to exist, or not to exist.
    value: Option<String>,
}

const KNOWN_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "spec.unschedulable",
    "spec.signerName",
    "spec.driver",
    "spec.clusterIP",
    "spec.type",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
    "type",
    "reason",
    "source",
    "reportingComponent",
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
];

impl Selector {
    pub(crate) fn parse(fields: &str, labels: &str) -> Result<Self, ApiError> {
        let selector = Self { fields: terms(fields, false), labels: terms(labels, true) };
        let unknown = selector.fields.iter().find(|term| !KNOWN_FIELDS.contains(&&*term.path));
        match unknown {
            Some(term) => Err(ApiError::bad_request(format!("field label not supported: {}", term.path))),
            None => Ok(selector),
        }
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.fields.is_empty() && self.labels.is_empty()
    }

    /// The value that the selector requires of a field.
    pub(crate) fn field(&self, path: &str) -> Option<&str> {
        self.fields.iter().find(|term| term.path == path && term.equal)?.value.as_deref()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let field = |term: &Term| {
            let found = term.path.split('.').try_fold(object, |value, name| value.get(name));
            let found = match found {
                Some(Value::String(text)) => text.clone(),
                Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
                _ => String::new(),
            };
            (Some(&found) == term.value.as_ref()) == term.equal
        };
        let label = |term: &Term| {
            let found = object["metadata"]["labels"].get(&term.path).and_then(Value::as_str);
            match &term.value {
                Some(value) => (found == Some(value.as_str())) == term.equal,
                None => found.is_some() == term.equal,
            }
        };
        self.fields.iter().all(field) && self.labels.iter().all(label)
    }
}

fn terms(text: &str, may_exist: bool) -> Vec<Term> {
    let term = |part: &str| {
        let part = part.trim();
        for (operator, equal) in [("!=", false), ("==", true), ("=", true)] {
            if let Some((path, value)) = part.split_once(operator) {
                return Term { path: path.to_owned(), equal, value: Some(value.to_owned()) };
            }
        }
        let (path, equal) = part.strip_prefix('!').map_or((part, true), |path| (path, false));
        Term { path: path.to_owned(), equal, value: (!may_exist).then(String::new) }
    };
    text.split(',').filter(|part| !part.trim().is_empty()).map(term).collect()
}
