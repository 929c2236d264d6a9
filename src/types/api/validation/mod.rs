//! Whether a pod is one that a node can run, field by field. Pure.
//!
//! The rules are those of `ValidatePodCreate` (`pkg/apis/core/validation/validation.go`) as far as a node can meet
//! them: what only a scheduler reads (affinity to pods, topology spread) is not looked at, and what the types already refuse
//! (an unknown word, two sources of one volume) is not looked at again. Every check costs at most n log n.

mod config_objects;
mod containers;
mod dns;
mod environment;
mod faults;
mod field_selectors;
mod file_paths;
mod metadata;
mod mounts;
pub mod names;
mod node_affinity;
mod pod_spec;
mod ports;
mod probes;
mod projections;
mod remote_volumes;
mod resources;
mod scope;
mod security;
mod static_pod;
mod volumes;

pub use faults::{FAULT_LIMIT, FieldError};
pub use resources::is_extended_resource;
pub use static_pod::static_pod_api_references;

use self::faults::Faults;
use super::decode::Path;
use super::{ConfigMap, Pod, Secret};

/// Everything that is wrong with a new pod that has its name, its namespace and its defaults; at most [`FAULT_LIMIT`]
/// faults are told.
pub fn validate_pod(pod: &Pod) -> Vec<FieldError> {
    let mut faults = Faults::default();
    metadata::check(&pod.metadata, &Path::Root.key("metadata"), &mut faults);
    pod_spec::check(&pod.spec, &pod.metadata, &Path::Root.key("spec"), &mut faults);
    faults.into_list()
}

/// Everything that is wrong with a pod from a manifest: also that it refers to objects of an API server.
pub fn validate_static_pod(pod: &Pod) -> Vec<FieldError> {
    let mut faults = validate_pod(pod);
    faults.extend(static_pod_api_references(pod));
    faults
}

/// Everything that is wrong with a ConfigMap that has its name and its namespace.
pub fn validate_config_map(config_map: &ConfigMap) -> Vec<FieldError> {
    let mut faults = Faults::default();
    config_objects::check_config_map(config_map, &mut faults);
    faults.into_list()
}

/// Everything that is wrong with a Secret that has its name, its namespace and its `stringData` among its data.
pub fn validate_secret(secret: &Secret) -> Vec<FieldError> {
    let mut faults = Faults::default();
    config_objects::check_secret(secret, &mut faults);
    faults.into_list()
}

#[cfg(test)]
mod tests;
