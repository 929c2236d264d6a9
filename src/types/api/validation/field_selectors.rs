//! Validates references to the pod's own fields in variables and files. Pure.

use super::faults::Faults;
use super::names::{ANNOTATION_KEY, LABEL_KEY};
use super::scope::Scope;
use crate::types::api::decode::Path;
use crate::types::api::{HUGE_PAGES_PREFIX, ObjectFieldSelector, ResourceFieldSelector};

/// The target of the value. Each target supports different fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldTarget {
    File,
    Variable,
}

pub(super) fn check_field(selector: &ObjectFieldSelector, into: FieldTarget, path: &Path<'_>, faults: &mut Faults) {
    if selector.api_version != "v1" {
        faults.invalid(&path.key("apiVersion"), &selector.api_version, "must be \"v1\"");
    }
    let field = selector.field_path.as_str();
    let path = path.key("fieldPath");
    if field.is_empty() {
        faults.required(&path);
    } else if let Some((map, key)) = subscript(field) {
        match map {
            "metadata.annotations" => faults.name(&path, key, &ANNOTATION_KEY),
            "metadata.labels" => faults.name(&path, key, &LABEL_KEY),
            _ => faults.invalid(&path, field, "only metadata.annotations and metadata.labels have keys"),
        }
    } else {
        let (holds, wanted) = match into {
            FieldTarget::File => (FILE_FIELDS.contains(&field), FILE_WANTED),
            FieldTarget::Variable => (VARIABLE_FIELDS.contains(&field), VARIABLE_WANTED),
        };
        if !holds {
            faults.invalid(&path, field, wanted);
        }
    }
}

const FILE_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
const FILE_WANTED: &str = "must be metadata.annotations, metadata.labels, metadata.name, metadata.namespace or \
                           metadata.uid";
const VARIABLE_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const VARIABLE_WANTED: &str = "must be metadata.annotations['<key>'], metadata.labels['<key>'], metadata.name, \
                               metadata.namespace, metadata.uid, spec.nodeName, spec.serviceAccountName, \
                               status.hostIP, status.hostIPs, status.podIP or status.podIPs";

/// Splits `map['key']`.
fn subscript(field: &str) -> Option<(&str, &str)> {
    field.strip_suffix("']")?.split_once("['").filter(|(map, _)| !map.is_empty())
}

pub(super) fn check_resource(
    selector: &ResourceFieldSelector,
    into: FieldTarget,
    scope: &Scope<'_>,
    path: &Path<'_>,
    faults: &mut Faults,
) {
    let name = selector.container_name.as_str();
    // A variable belongs to a container, a file does not.
    if name.is_empty() && into == FieldTarget::File {
        faults.required(&path.key("containerName"));
    } else if !name.is_empty() && !scope.containers.contains(name) {
        faults.invalid(&path.key("containerName"), name, "no container has this name");
    }
    if selector.resource.is_empty() {
        faults.required(&path.key("resource"));
    } else if let Some(divisors) = divisors(&selector.resource) {
        let divisor = selector.divisor;
        if !divisor.is_zero() && !divisors.contains(&divisor.to_string().as_str()) {
            let wanted = format_args!("must be one of {}", divisors.join(", "));
            faults.invalid(&path.key("divisor"), &divisor.to_string(), wanted);
        }
    } else {
        let wanted = "must be limits.<resource> or requests.<resource>, \
                      the resource cpu, memory, ephemeral-storage or hugepages-<size>";
        faults.invalid(&path.key("resource"), &selector.resource, wanted);
    }
}

/// The divisors that the resource may have.
fn divisors(field: &str) -> Option<&'static [&'static str]> {
    let resource = field.strip_prefix("limits.").or_else(|| field.strip_prefix("requests."))?;
    match resource {
        "cpu" => Some(&["1m", "1"]),
        "memory" | "ephemeral-storage" => Some(BYTE_DIVISORS),
        resource => resource.starts_with(HUGE_PAGES_PREFIX).then_some(BYTE_DIVISORS),
    }
}

const BYTE_DIVISORS: &[&str] = &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
