//! The downward API: a pod's metadata and its containers' resources, for environment variables and files. Pure.

use std::fmt;

use super::container::{Container, ResourceFieldSelector};
use super::map::Map;
use super::pod::Pod;
use super::quantity::Quantity;
use super::resources::{CPU, EPHEMERAL_STORAGE, HUGE_PAGES_PREFIX, MEMORY, ResourceList};

/// A field that the downward API does not have. The messages are upstream's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldProblem {
    NoSuchContainer { name: String },
    NoSuchField { path: String },
    NoSuchResource { resource: String },
}

/// A field of the metadata: a map as lines `key="value"`, or one value (`metadata.labels['app']`).
pub fn metadata_field(pod: &Pod, path: &str) -> Result<String, FieldProblem> {
    let no_such = || FieldProblem::NoSuchField { path: path.to_owned() };
    let meta = &pod.metadata;
    let map = |name: &str| match name {
        "metadata.annotations" => Ok(&meta.annotations),
        "metadata.labels" => Ok(&meta.labels),
        _ => Err(no_such()),
    };
    if let Some((name, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        return Ok(map(name)?.get(key).cloned().unwrap_or_default());
    }
    match path {
        "metadata.name" => Ok(meta.name.clone()),
        "metadata.namespace" => Ok(meta.namespace.clone()),
        "metadata.uid" => Ok(meta.uid.to_string()),
        _ => Ok(lines(map(path)?)),
    }
}

/// A container's request or limit in units of the divisor, rounded up. A missing limit falls back to the pod's limit,
/// then to the node's allocatable.
pub fn resource_field(
    pod: &Pod,
    container: Option<&Container>,
    field: &ResourceFieldSelector,
    allocatable: &ResourceList,
) -> Result<String, FieldProblem> {
    let no_container = || FieldProblem::NoSuchContainer { name: field.container_name.clone() };
    let container = container.ok_or_else(no_container)?;
    let no_such = || FieldProblem::NoSuchResource { resource: field.resource.clone() };
    let (list, resource) = field.resource.split_once('.').ok_or_else(no_such)?;
    if !matches!(resource, CPU | MEMORY | EPHEMERAL_STORAGE) && !resource.starts_with(HUGE_PAGES_PREFIX) {
        return Err(no_such());
    }
    let quantity = match list {
        "limits" => limit(pod, container, resource, allocatable),
        "requests" => container.resources.request(resource),
        _ => return Err(no_such()),
    };
    let amount: fn(Quantity) -> i64 = if resource == CPU { Quantity::milli_value } else { Quantity::value };
    let default_divisor = if resource == CPU { 1000 } else { 1 };
    let divisor = if field.divisor.is_zero() { default_divisor } else { amount(field.divisor).max(1) };
    let value = quantity.map_or(0, amount);
    Ok((value / divisor + i64::from(value % divisor > 0)).to_string())
}

fn limit(pod: &Pod, container: &Container, resource: &str, allocatable: &ResourceList) -> Option<Quantity> {
    let own_limit = container.resources.limit(resource).filter(|limit| !limit.is_zero());
    if !matches!(resource, CPU | MEMORY | EPHEMERAL_STORAGE) {
        return own_limit;
    }
    let pod_limit = || pod.spec.resources.as_ref()?.limit(resource).filter(|limit| !limit.is_zero());
    own_limit.or_else(pod_limit).or_else(|| allocatable.get(resource).copied())
}

fn lines(map: &Map<String>) -> String {
    let lines: Vec<String> = map.iter().map(|(key, value)| format!("{key}={}", quoted(value))).collect();
    lines.join("\n")
}

/// Quotes a string as Go's `%q` does.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            ' '..='~' => out.push(c),
            '\0'..='\u{7f}' => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if is_printable(c) => out.push(c),
            c if u32::from(c) < 0x1_0000 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    out.push('"');
    out
}

/// Rust escapes the characters that Go does not print. The leading letter keeps a combining mark, which Go does print,
/// from being escaped.
fn is_printable(c: char) -> bool {
    let text = String::from_iter(['a', c]);
    text.escape_debug().count() == 2
}

impl fmt::Display for FieldProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchContainer { name } => write!(f, "container {name} not found"),
            Self::NoSuchField { path } => write!(f, "unsupported fieldPath: {path}"),
            Self::NoSuchResource { resource } => write!(f, "unsupported container resource : {resource}"),
        }
    }
}

impl std::error::Error for FieldProblem {}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::types::api::decode;

    fn pod() -> Pod {
        let spec = json!({
            "metadata": {
                "name": "web", "namespace": "boats", "uid": "u1", "labels": {"case": "13", "app": "golden"},
                "annotations": {"a": "x\"\\\n\u{1}\u{7f}é\u{301}\u{a0}\u{200b}\u{1f600}\u{e0001}"},
            },
            "spec": {"containers": [{"name": "main", "resources": {"limits": {"memory": "1Gi"}}}]}
        });
        decode(spec).unwrap().value
    }

    #[test]
    fn map_is_one_line_a_key_quoted_as_in_go() {
        let field = |path| metadata_field(&pod(), path).unwrap();
        assert_eq!(field("metadata.labels"), "app=\"golden\"\ncase=\"13\"");
        assert_eq!(
            field("metadata.annotations"),
            "a=\"x\\\"\\\\\\n\\x01\\x7fé\u{301}\\u00a0\\u200b\u{1f600}\\U000e0001\""
        );
        assert_eq!(field("metadata.labels['app']"), "golden");
        assert_eq!(field("metadata.labels['none']"), "");
    }

    #[test]
    fn file_names_its_container() {
        let field = |container: &str| {
            let field = json!({"containerName": container, "resource": "limits.memory", "divisor": "1Mi"});
            let pod = pod();
            let container = pod.spec.containers_by_name().get(container).copied();
            resource_field(&pod, container, &decode(field).unwrap().value, &ResourceList::new())
        };
        assert_eq!(field("main"), Ok("1024".to_owned()));
        assert_eq!(field("").unwrap_err().to_string(), "container  not found");
    }
}
