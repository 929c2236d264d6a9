//! Validates the environment variables of a container and their sources. Pure.

use super::faults::Faults;
use super::field_selectors::{self, FieldTarget};
use super::file_paths;
use super::names::{CONFIG_KEY, DNS_LABEL, DNS_SUBDOMAIN, NAME_PREFIX, VARIABLE_NAME};
use super::scope::Scope;
use crate::types::api::decode::Path;
use crate::types::api::{
    Container, EnvFromRef, EnvFromSource, EnvVarRef, EnvVarSource, FileKeySelector, KeySelector, VolumeSource,
};

/// The longest key of an env file.
const MAX_FILE_KEY_CHARS: usize = 128;

pub(super) fn check(container: &Container, scope: &Scope<'_>, path: &Path<'_>, faults: &mut Faults) {
    let list = path.key("env");
    for (index, variable) in container.env.iter().enumerate() {
        check_variable(&variable, scope, &list.index(index), faults);
    }
    let list = path.key("envFrom");
    for (index, source) in container.env_from.iter().enumerate() {
        check_source(source, &list.index(index), faults);
    }
}

fn check_variable(variable: &EnvVarRef<'_>, scope: &Scope<'_>, path: &Path<'_>, faults: &mut Faults) {
    faults.required_name(&path.key("name"), variable.name, &VARIABLE_NAME);
    let Some(from) = variable.value_from else { return };
    let path = path.key("valueFrom");
    if !variable.value.is_empty() {
        faults.forbidden(&path, "when value is");
    }
    match &from.source {
        EnvVarSource::ConfigMapKey(key) => check_key(key, &path.key("configMapKeyRef"), faults),
        EnvVarSource::Field(field) => {
            field_selectors::check_field(field, FieldTarget::Variable, &path.key("fieldRef"), faults);
        }
        EnvVarSource::FileKey(key) => check_file_key(key, scope, &path.key("fileKeyRef"), faults),
        EnvVarSource::ResourceField(field) => {
            field_selectors::check_resource(field, FieldTarget::Variable, scope, &path.key("resourceFieldRef"), faults);
        }
        EnvVarSource::SecretKey(key) => check_key(key, &path.key("secretKeyRef"), faults),
    }
}

fn check_key(key: &KeySelector, path: &Path<'_>, faults: &mut Faults) {
    faults.required_name(&path.key("name"), &key.name, &DNS_SUBDOMAIN);
    faults.required_name(&path.key("key"), &key.key, &CONFIG_KEY);
}

fn check_file_key(key: &FileKeySelector, scope: &Scope<'_>, path: &Path<'_>, faults: &mut Faults) {
    let name = key.volume_name.as_str();
    faults.required_name(&path.key("volumeName"), name, &DNS_LABEL);
    match scope.volumes.get(name) {
        _ if name.is_empty() => {}
        None => faults.invalid(&path.key("volumeName"), name, "no volume has this name"),
        Some(VolumeSource::EmptyDir(_)) => {}
        Some(_) => faults.invalid(&path.key("volumeName"), name, "must be an emptyDir"),
    }
    file_paths::in_volume(&key.path, &path.key("path"), faults);
    faults.required_name(&path.key("key"), &key.key, &VARIABLE_NAME);
    if key.key.len() > MAX_FILE_KEY_CHARS {
        faults.invalid(&path.key("key"), &key.key, format_args!("must be at most {MAX_FILE_KEY_CHARS} characters"));
    }
}

fn check_source(source: &EnvFromSource, path: &Path<'_>, faults: &mut Faults) {
    faults.optional_name(&path.key("prefix"), &source.prefix, &VARIABLE_NAME);
    let (field, reference) = match &source.source {
        EnvFromRef::ConfigMap(reference) => ("configMapRef", reference),
        EnvFromRef::Secret(reference) => ("secretRef", reference),
    };
    faults.required_name(&path.key(field).key("name"), &reference.name, &NAME_PREFIX);
}
