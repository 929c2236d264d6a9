//! Environment variables of a container. Pure.

use core::net::IpAddr;
use std::collections::BTreeMap;

use super::config_error::ConfigError;
use super::pod_index::PodIndex;
use super::service_links::service_variables;
use crate::kubelet::node::NodeSettings;
use crate::kubelet::volumes::{FileValue, MountProblem, PATH_MAX};
use crate::state::objects::{ConfigObject, Lookup, ObjectKey, ObjectKind, Objects};
use crate::types::api::{
    Container, EnvFromRef, EnvVarSource, FileKeySelector, KeySelector, MAX_ARGUMENT_BYTES, MAX_ENVIRONMENT_BYTES,
    Texts, expand_bytes, expand_command, metadata_field, resource_field, text_of,
};
use crate::types::error::ErrorChain;
use crate::types::sorted::{SortOnce, SortedMap, SortedSet};

/// Sources of variables other than the container spec.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EnvironmentInputs<'a> {
    pub(crate) index: &'a PodIndex<'a>,
    /// IPs of the sandbox; the node's for a host-network pod.
    pub(crate) pod_ips: &'a [IpAddr],
    pub(crate) node: &'a NodeSettings,
    pub(crate) objects: &'a Objects,
    /// Values from files in volumes, in the order of the variables.
    pub(crate) from_files: &'a [FileValue],
}

/// Variables in the order of their first definition; a later value replaces an earlier one in place.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    variables: BTreeMap<String, Variable>,
    /// Total size of names and values.
    bytes: usize,
}

#[derive(Debug)]
struct Variable {
    order: usize,
    value: Vec<u8>,
}

impl Environment {
    /// From the container spec; variables may refer to earlier ones.
    pub(crate) fn new(container: &Container, inputs: EnvironmentInputs<'_>) -> Result<Self, ConfigError> {
        let mut environment = Self::default();
        let pod = inputs.index.pod;
        let links = pod.spec.enable_service_links.unwrap_or(true);
        let services = service_variables(inputs.objects.services(pod), &pod.metadata.namespace, links, MAX_VARIABLES)?;
        let mut variables_of_objects = 0;
        for from in &container.env_from {
            let (kind, object) = match &from.source {
                EnvFromRef::ConfigMap(object) => (ObjectKind::ConfigMap, object),
                EnvFromRef::Secret(object) => (ObjectKind::Secret, object),
            };
            let Some(object) = inputs.object(kind, &object.name, object.optional)? else { continue };
            for (key, value) in object.variables() {
                // A pod may name a large object thousands of times.
                variables_of_objects += 1;
                if variables_of_objects > MAX_VARIABLES {
                    return Err(ConfigError::TooManyVariables { most: MAX_VARIABLES });
                }
                environment.set(&[from.prefix.as_str(), key].concat(), value.to_owned())?;
            }
        }
        // Of two with the same name, the first one counts.
        let by_name: SortedMap<&str, &str> =
            services.iter().rev().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let mut from_files = inputs.from_files.iter();
        for variable in container.env.iter() {
            let value = match variable.value_from {
                Some(from) if variable.value.is_empty() => match &from.source {
                    EnvVarSource::ConfigMapKey(key) => inputs.key(ObjectKind::ConfigMap, key)?.map(<[u8]>::to_vec),
                    EnvVarSource::Field(field) => Some(inputs.field(&field.field_path)?.into_bytes()),
                    EnvVarSource::FileKey(key) => inputs.file_key(key, from_files.next())?.map(String::into_bytes),
                    EnvVarSource::ResourceField(field) => {
                        let named = match field.container_name.as_str() {
                            "" => Some(container),
                            name => inputs.index.container(name),
                        };
                        Some(resource_field(pod, named, field, &inputs.node.allocatable)?.into_bytes())
                    }
                    EnvVarSource::SecretKey(key) => inputs.key(ObjectKind::Secret, key)?.map(<[u8]>::to_vec),
                },
                _ => Some(expand_bytes(variable.value, MAX_ARGUMENT_BYTES, &mut |name| {
                    let service = || by_name.get(name).map(|value| value.as_bytes());
                    environment.get(name).or_else(service)
                })),
            };
            if let Some(value) = value {
                environment.set(variable.name, value)?;
            }
        }
        // Variables of the spec take precedence.
        for (name, value) in services {
            if environment.get(&name).is_none() {
                environment.set(&name, value.into_bytes())?;
            }
        }
        Ok(environment)
    }

    /// Expands variable references in `texts`; `bytes` counts the size of the program's arguments.
    pub(crate) fn expand_all(&self, texts: &Texts, bytes: &mut usize) -> Result<Vec<String>, ConfigError> {
        Ok(expand_command(texts, bytes, &|name| self.get(name))?)
    }

    /// Total size of names and values.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Expands a subpath. All its references must have values; the error has the names of those without.
    pub(crate) fn expand_path(&self, text: &str) -> Result<String, MountProblem> {
        let mut names = SortedSet::new();
        let expanded = expand_bytes(text, PATH_MAX, &mut |name| {
            let value = self.get(name).filter(|value| !value.is_empty());
            if value.is_none() {
                names.insert(name.to_owned());
            }
            value
        });
        match expanded.len() {
            _ if !names.is_empty() => Err(MountProblem::MissingValues { names }),
            PATH_MAX.. => Err(MountProblem::PathTooLong),
            _ => Ok(text_of(expanded)),
        }
    }

    pub(crate) fn into_variables(self) -> Vec<(String, Vec<u8>)> {
        let mut variables: Vec<_> = self.variables.into_iter().collect();
        variables.sort_once_by_key(|(_, variable)| variable.order);
        variables.into_iter().map(|(name, variable)| (name, variable.value)).collect()
    }

    fn get(&self, name: &str) -> Option<&[u8]> {
        self.variables.get(name).map(|variable| variable.value.as_slice())
    }

    /// Rejects values beyond the kernel's limit, for which exec would only report that the argument list is too long.
    fn set(&mut self, name: &str, value: Vec<u8>) -> Result<(), ConfigError> {
        self.bytes += name.len() + value.len();
        if name.len() + value.len() + 1 >= MAX_ARGUMENT_BYTES || self.bytes > MAX_ENVIRONMENT_BYTES {
            return Err(ConfigError::VariableTooLong { name: name.to_owned() });
        }
        let index = self.variables.len();
        match self.variables.get_mut(name) {
            Some(variable) => variable.value = value,
            None => drop(self.variables.insert(name.to_owned(), Variable { order: index, value })),
        }
        Ok(())
    }
}

impl<'a> EnvironmentInputs<'a> {
    /// A missing optional object is skipped; a missing required one is an error.
    fn object(
        &self,
        kind: ObjectKind,
        name: &str,
        optional: Option<bool>,
    ) -> Result<Option<&'a ConfigObject>, ConfigError> {
        match self.objects.get(self.index.pod, kind, name) {
            Lookup::Found(object) => Ok(Some(object)),
            Lookup::Missing if optional == Some(true) => Ok(None),
            Lookup::Missing => Err(ConfigError::NoSuchObject { kind, name: name.to_owned() }),
            Lookup::Unknown(why) => Err(ConfigError::ObjectUnknown { kind, why }),
        }
    }

    fn key(&self, kind: ObjectKind, selector: &KeySelector) -> Result<Option<&'a [u8]>, ConfigError> {
        let KeySelector { name, key, optional } = selector;
        let Some(object) = self.object(kind, name, *optional)? else { return Ok(None) };
        let value = object.variable(key);
        if value.is_none() && *optional != Some(true) {
            let object = ObjectKey { kind, namespace: self.index.pod.metadata.namespace.clone(), name: name.clone() };
            return Err(ConfigError::NoSuchKey { object, key: key.clone() });
        }
        Ok(value)
    }

    /// An empty value counts as not set, as upstream.
    fn file_key(&self, key: &FileKeySelector, value: Option<&FileValue>) -> Result<Option<String>, ConfigError> {
        let file = match value {
            Some(FileValue { value: Err(error), .. }) => {
                return Err(ConfigError::EnvFile { why: ErrorChain(error).to_string() });
            }
            Some(FileValue { value: Ok(Some(value)), .. }) if !value.is_empty() => return Ok(Some(value.clone())),
            Some(FileValue { file, .. }) => file,
            None => &key.path,
        };
        if key.optional == Some(true) {
            return Ok(None);
        }
        Err(ConfigError::NoSuchFileKey { key: key.key.clone(), file: file.clone() })
    }

    /// The value of a pod field, for the field paths that variables support.
    fn field(&self, path: &str) -> Result<String, ConfigError> {
        let pod = self.index.pod;
        let on_node = self.pod_ips.is_empty() && pod.spec.host_network;
        let node_ips = self.node.node_ips.current();
        let pod_ips = if on_node { node_ips.as_slice() } else { self.pod_ips };
        let first = |ips: &[IpAddr]| ips.first().map(IpAddr::to_string).unwrap_or_default();
        Ok(match path {
            // `spec.host` is the deprecated name of spec.nodeName.
            "spec.nodeName" | "spec.host" => pod.spec.node_name.clone(),
            "spec.serviceAccountName" => pod.spec.service_account_name.clone(),
            "status.hostIP" => first(&node_ips),
            "status.hostIPs" => joined(&node_ips),
            "status.podIP" => first(pod_ips),
            "status.podIPs" => joined(pod_ips),
            path => metadata_field(pod, path)?,
        })
    }
}

/// Most variables of all objects in `envFrom`, repeated ones included, and of all Services; the pod itself bounds those of
/// `env`. With 64 bytes each, as those of Services have, they fill the 2 MiB that the usual limit of the stack leaves to a
/// program's environment.
const MAX_VARIABLES: usize = 32 << 10;

fn joined(ips: &[IpAddr]) -> String {
    ips.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
